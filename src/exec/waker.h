// Waker: one thread sleeps for a while, others may end its sleep. A wake() that comes first is not lost.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace nlsplit::inline exec {

class Waker {
 public:
  void sleep(std::chrono::microseconds longest) {
    std::unique_lock lock(mutex_);
    // The system clock, because ThreadSanitizer of GCC 12 does not know how the standard library waits for the steady
    // one. A jump of it only ends or prolongs one short sleep, and prolonged ones are ended by wake().
    condition_.wait_until(lock, std::chrono::system_clock::now() + longest, [this] { return awake_; });
    awake_ = false;
  }

  void wake() {
    {
      const std::lock_guard lock(mutex_);
      awake_ = true;
    }
    condition_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool awake_ = false;
};

}  // namespace nlsplit::inline exec
