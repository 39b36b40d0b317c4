// DeadlineGuard: calls a function on a thread of its own if it still exists after some seconds. For calls of foreign
// libraries that may never return.
//
//   const DeadlineGuard guard(60, [](double waited_s) { end_the_process(waited_s); });
//   MPI_Init(…);
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace nlsplit::inline exec {

class DeadlineGuard {
 public:
  // `patience_s` of 0 or less: for ever.
  DeadlineGuard(double patience_s, std::function<void(double waited_s)> late);
  ~DeadlineGuard();
  DeadlineGuard(const DeadlineGuard&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace nlsplit::inline exec
