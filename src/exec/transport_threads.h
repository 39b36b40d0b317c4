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
#include "exec/transport_kind.h"

namespace nlsplit::inline exec {

class ThreadWorld final : public World {
 public:
  ThreadWorld(int size, Bytes eager_limit, std::function<void(const Error&)> on_failure = nullptr);
  ~ThreadWorld() override;
  Transport& endpoint(int rank) override;
  std::optional<Error> failure() const override;

 private:
  struct Shared;
  class Endpoint;
  std::unique_ptr<Shared> shared_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

std::unique_ptr<World> make_thread_world(int size, Bytes eager_limit, std::function<void(const Error&)> on_failure);

}  // namespace nlsplit::inline exec
