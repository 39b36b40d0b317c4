// Liveness: what one device of a run is doing, to detect a hang and to say where. The device's threads write it, any
// thread reads it.
//
//   liveness.begin("the start of repeat 3");      // a phase; begins the count of idle seconds anew
//   liveness.moved();                             // something arrived or left
//   liveness.idle_s()                             // 0 while it computes or works, however long that takes
//   const Liveness::Work work(liveness);          // in this scope the owner of the transport works; Wait: not here
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "exec/flight_recorder.h"

namespace nlsplit::inline exec {

class Liveness {
 public:
  Liveness() { moved(); }

  void moved() { moved_.store(now(), std::memory_order_relaxed); }
  // The thread that computes: a computation begins, or ends.
  void computing(bool on) {
    if (!on) moved();
    const uint64_t before = computations_.load(std::memory_order_relaxed);
    if (on != ((before & 1) != 0)) computations_.store(before + 1, std::memory_order_relaxed);
  }
  // `peer`: the rank that is waited for; -1: none, or any.
  void begin(const std::string& phase, int peer = -1) {
    moved();
    if (FlightRecorder* recorder = recorder_.load(std::memory_order_relaxed)) recorder->phase(phase, peer);
    const std::lock_guard lock(mutex_);
    if (phase_ != phase) phase_ = phase;
  }

  // Sets a function that returns the instruction that waits for `peer`, or for any rank if it is -1. It is called on
  // other threads until the next explain() returns; nullptr: only the phase is reported.
  void explain(std::function<std::string(int peer)> explanation) {
    const std::lock_guard lock(mutex_);
    explanation_ = std::move(explanation);
  }

  // Phases are kept there, too. It outlives this.
  void record_in(FlightRecorder* recorder) { recorder_.store(recorder, std::memory_order_relaxed); }

  bool computes() const { return (computations() & 1) != 0; }
  uint64_t computations() const { return computations_.load(std::memory_order_relaxed); }  // odd while one is under way
  // The owner of the transport does something itself: it reads, checks, packs weights.
  bool works() const { return works_.load(std::memory_order_relaxed); }
  double idle_s() const {
    if (computes() || works()) return 0;
    return std::chrono::duration<double>(Clock::duration(now() - last_move())).count();
  }
  std::chrono::steady_clock::rep last_move() const { return moved_.load(std::memory_order_relaxed); }
  std::string phase() const {
    const std::lock_guard lock(mutex_);
    return phase_;
  }
  // "device A slot 2 (F.2) `recv a from B tag 0`", or "the start of repeat 3".
  std::string waits_in(int peer) const {
    const std::lock_guard lock(mutex_);
    return explanation_ ? explanation_(peer) : phase_;
  }
  // "computes", "works on the preparations", "waits in the start of repeat 3".
  std::string doing(int peer) const {
    if (computes()) return "computes";
    return works() ? "works on " + phase() : "waits in " + waits_in(peer);
  }

  // The owner of the transport works, or waits, until the end of the scope; then what it did before. One thread.
  class Scope {
   public:
    Scope(Liveness& liveness, bool works) : liveness_(liveness), before_(liveness.works()) { set(works); }
    ~Scope() { set(before_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    void set(bool works) {
      if (works == liveness_.works()) return;
      liveness_.moved();  // idleness, or a piece of work, is counted from here
      liveness_.works_.store(works, std::memory_order_relaxed);
      if (FlightRecorder* recorder = liveness_.recorder_.load(std::memory_order_relaxed)) recorder->works(works);
    }
    Liveness& liveness_;
    const bool before_;
  };
  struct Work : Scope {
    explicit Work(Liveness& liveness) : Scope(liveness, true) {}
  };
  struct Wait : Scope {
    explicit Wait(Liveness& liveness) : Scope(liveness, false) {}
  };

 private:
  using Clock = std::chrono::steady_clock;
  static Clock::rep now() { return Clock::now().time_since_epoch().count(); }

  std::atomic<Clock::rep> moved_;
  std::atomic<uint64_t> computations_{0};
  std::atomic<bool> works_{false};
  std::atomic<FlightRecorder*> recorder_{nullptr};
  mutable std::mutex mutex_;
  std::string phase_ = "the preparations";
  std::function<std::string(int peer)> explanation_;
};

}  // namespace nlsplit::inline exec
