// ChildWatch: whether a child process that is waited for still gets on: it uses processor time, reads or writes.
//
//   ChildWatch watch(child, limits);
//   while (…) if (const Status status = watch.look(); !status.ok()) …     // end it; of kind `lost`
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>

#include "base/result.h"

namespace nlsplit::inline measure {

struct ChildLimits {
  double idle_s = 300;                     // without processor time, and without a byte read or written; 0: for ever
  double processor_s = 0;                  // of processor time in all; 0: any
  std::function<void()> looked = nullptr;  // told at each look: whoever waits is alive, and the child is judged here
};

class ChildWatch {
 public:
  ChildWatch(pid_t child, ChildLimits limits) : child_(child), limits_(std::move(limits)) {}
  // At most some times a second. Error: a limit is passed.
  Status look();

 private:
  using Clock = std::chrono::steady_clock;
  const pid_t child_;
  const ChildLimits limits_;
  Clock::time_point last_look_ = Clock::now();
  double idle_s_ = 0, processor_s_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace nlsplit::inline measure
