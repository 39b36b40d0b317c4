// The devices of a run as threads of one process, exchanging messages through memory. For tests and laptops.
//
//   ThreadWorld world(3, program.eager_limit);
//   … on thread d: run(program, …, world.endpoint(d), …)      // exec/run_threads.h does all of this
//
// It keeps the difference that MPI makes: a message up to the eager limit is copied aside and its sender goes on at
// once, a larger one waits until the receiver has posted, and is then copied once.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/units.h"
#include "exec/transport.h"

namespace nlsplit {

class ThreadWorld {
 public:
  // `on_failure`: told the first reason for an abort(), on the thread that found it, before anybody else knows.
  ThreadWorld(int size, Bytes eager_limit, std::function<void(const Error&)> on_failure = nullptr);
  ~ThreadWorld();
  Transport& endpoint(int rank);
  std::optional<Error> failure() const;  // why the first abort() happened

 private:
  struct Shared;
  class Endpoint;
  std::unique_ptr<Shared> shared_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

}  // namespace nlsplit
