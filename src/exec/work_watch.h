// WorkWatch: ends a run in which a device computes, or a rank prepares it, for longer than it may: a kernel or a GPU
// that never returns would hang all ranks, because to the heartbeat they live.
//
//   WorkWatch watch(transport.liveness(), {deadlines, on_overdue, on_stuck});   // a thread; looks four times a second
//   const WorkWatch::Watched watched(watch, {threads, current});                // before the first computation
//   watch.expect(0.2, "the predicted");                                         // seconds
//
// A thread is charged with the time in which it runs or sleeps, not with that in which it waits for a core (Linux:
// /proc/self/task/TID/schedstat). So a kernel that spins is charged with its processor time and one that blocks with
// the wall's, and a busy machine is no alarm. Where the system does not tell, the wall's time counts. Of several
// threads that share a computation, the one with the least charge counts: the others may wait for it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/result.h"
#include "exec/liveness.h"

namespace nlsplit::inline exec {

// How long what a rank does itself may take. Waiting for others is the watchdog's business.
struct Deadlines {
  // A computation may take so many times what its device is predicted to compute in an execution (or the longest
  // execution so far took), and floor_s more. Smaller: a prediction that is far off ends a run that is only slow.
  double factor = 10;
  double floor_s = 120;  // alone where nothing is predicted yet; 0: no deadline for computations
  // Preparations: how long a rank may read, check or pack one piece without coming to the next, and how long all may
  // wait for each other while no byte moves; 0: for ever.
  double prepare_s = 300;
};

// The computations of a device; called on the watch's thread.
struct Computations {
  std::function<std::vector<pid_t>()> threads;  // the threads that share a computation
  std::function<std::string()> current;         // the current one: "device A slot 2 (F.2) `y = …`"
};

// Seconds that a thread of this process has waited for a core, without the wait it is in, and those it has run; 0 where
// the system does not tell. And whether it runs or waits for a core now: it does not sleep.
struct ThreadTimes {
  double waited_s = 0, ran_s = 0;
  bool runnable = false;
};
ThreadTimes thread_times(pid_t thread);

class WorkWatch {
 public:
  struct Options {
    Deadlines deadlines = {};
    std::function<void(const Error&)> on_overdue = nullptr;  // on the watch's thread, once: ends the run
    // After it, if what took too long still goes on after a while. The process cannot go on: no thread can be ended.
    std::function<void(const Error&)> on_stuck = nullptr;
  };
  // The thread that makes it is the one whose preparations are watched.
  WorkWatch(Liveness& liveness, Options options);
  ~WorkWatch();
  WorkWatch(const WorkWatch&) = delete;
  WorkWatch& operator=(const WorkWatch&) = delete;

  // Computations have a deadline as long as this lives; after its end `computations` is not called any more.
  class Watched {
   public:
    Watched(WorkWatch& watch, Computations computations);
    ~Watched();
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;

   private:
    WorkWatch& watch_;
  };
  // on_overdue has been called: all threads that can must end.
  bool overdue() const { return overdue_.load(std::memory_order_acquire); }

  // The time of all of a device's computations in an execution, and its source for messages; 0: not known.
  void expect(double known_s, std::string_view who);

 private:
  using Clock = std::chrono::steady_clock;
  // The charge of a piece of work since it was first seen.
  struct Charge {
    struct Thread {
      ThreadTimes first, last;
      double elapsed_s = 0;  // on the wall, between looks
      double queued_s = 0;   // of it at the end, waiting for a core: the system counts that only when it gets one
    };
    uint64_t piece = 0;
    Clock::time_point since;
    std::map<pid_t, Thread> threads;

    void begin(uint64_t which, Clock::time_point now);
    void add(const std::vector<pid_t>& all, double elapsed_s);
    double least_s() const;
    double ran_s() const;  // the most of one thread
  };

  void watch();
  void end_run(const Error& why, const std::function<bool()>& goes_on, std::unique_lock<std::mutex>& lock);
  Clock::duration between_looks() const;
  bool sleep(std::unique_lock<std::mutex>& lock, Clock::duration duration);

  Liveness& liveness_;
  const Options options_;
  const pid_t owner_;
  std::atomic<bool> overdue_{false};
  std::mutex mutex_;  // for all below
  std::condition_variable condition_;
  bool stop_ = false;
  Computations computations_;
  double allowed_s_ = 0;  // of charged time, each computation; 0: for ever
  std::string because_;   // how that came about
  std::thread thread_;
};

}  // namespace nlsplit::inline exec
