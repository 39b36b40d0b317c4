// Liveness: what one device of a run is doing, for those who ask whether the run hangs and where. The device's threads
// write it, any thread reads it.
//
//   liveness.begin("the start of repeat 3");      // a phase; begins the count of idle seconds anew
//   liveness.moved();                             // something arrived or left
//   liveness.idle_s()                             // 0 while it computes, however long that takes
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>

namespace nlsplit {

class Liveness {
 public:
  Liveness() { moved(); }

  void moved() { moved_.store(now(), std::memory_order_relaxed); }
  void computing(bool on) {
    if (!on) moved();
    computing_.store(on, std::memory_order_relaxed);
  }
  void begin(const std::string& phase) {
    moved();
    const std::lock_guard lock(mutex_);
    if (phase_ != phase) phase_ = phase;
  }

  // Asked for the instruction that waits for `peer`, or for anybody if it is -1. It is called on other threads until
  // the next explain() returns; nullptr: the phase is all there is to say.
  void explain(std::function<std::string(int peer)> explanation) {
    const std::lock_guard lock(mutex_);
    explanation_ = std::move(explanation);
  }

  bool computes() const { return computing_.load(std::memory_order_relaxed); }
  double idle_s() const {
    if (computes()) return 0;
    return std::chrono::duration<double>(Clock::duration(now() - moved_.load(std::memory_order_relaxed))).count();
  }
  // "device A slot 2 (F.2) `recv a from B tag 0`", or "the start of repeat 3".
  std::string waits_in(int peer) const {
    const std::lock_guard lock(mutex_);
    return explanation_ ? explanation_(peer) : phase_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static Clock::rep now() { return Clock::now().time_since_epoch().count(); }

  std::atomic<Clock::rep> moved_;
  std::atomic<bool> computing_{false};
  mutable std::mutex mutex_;
  std::string phase_ = "the preparations";
  std::function<std::string(int peer)> explanation_;
};

}  // namespace nlsplit
