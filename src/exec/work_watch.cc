#include "exec/work_watch.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <utility>

namespace nlsplit::inline exec {
namespace {

constexpr double looks_per_limit = 8;
constexpr double shortest_look_s = 0.01, longest_look_s = 0.25;
// A look that comes later than this was itself held up: the process was stopped, or the machine had no time for it.
constexpr double longest_charge_s = 1;
constexpr double to_end_s = 2;  // how long an overdue piece of work may take to notice that the run has ended

std::chrono::steady_clock::duration of(double s) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(s));
}

}  // namespace

ThreadTimes thread_times(pid_t thread) {
  ThreadTimes times;
  const std::string folder = fmt::format("/proc/self/task/{}/", thread);
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  unsigned long long ran_ns = 0, waited_ns = 0;
  const File file(std::fopen((folder + "schedstat").c_str(), "re"), std::fclose);
  if (file == nullptr || std::fscanf(file.get(), "%llu %llu", &ran_ns, &waited_ns) != 2) return times;
  times.waited_s = static_cast<double>(waited_ns) * 1e-9;
  times.ran_s = static_cast<double>(ran_ns) * 1e-9;
  if (const File state_file(std::fopen((folder + "stat").c_str(), "re"), std::fclose); state_file != nullptr) {
    char state = 0;  // behind the name, which may hold anything but is 15 characters at most
    times.runnable = std::fscanf(state_file.get(), "%*d (%*15[^)]) %c", &state) == 1 && state == 'R';
  }
  return times;
}

void WorkWatch::Charge::begin(uint64_t which, Clock::time_point now) {
  piece = which;
  since = now;
  threads.clear();
}

void WorkWatch::Charge::add(const std::vector<pid_t>& all, double elapsed_s) {
  const double counted = std::min(elapsed_s, longest_charge_s);
  for (const pid_t id : all) {
    const ThreadTimes now = thread_times(id);
    const auto [at, is_new] = threads.try_emplace(id, Thread{now, now});
    if (is_new) continue;
    Thread& thread = at->second;
    thread.elapsed_s += counted;
    const bool queued = now.runnable && now.ran_s == thread.last.ran_s;
    thread.queued_s = queued ? thread.queued_s + counted : 0;
    thread.last = now;
  }
}

double WorkWatch::Charge::least_s() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [id, thread] : threads) {
    const double waited_s = thread.last.waited_s - thread.first.waited_s + thread.queued_s;
    least = std::min(least, std::max(0.0, thread.elapsed_s - waited_s));
  }
  return threads.empty() ? 0 : least;
}

double WorkWatch::Charge::ran_s() const {
  double most = 0;
  for (const auto& [id, thread] : threads) most = std::max(most, thread.last.ran_s - thread.first.ran_s);
  return most;
}

WorkWatch::WorkWatch(Liveness& liveness, Options options)
    : liveness_(liveness), options_(std::move(options)), owner_(::gettid()), thread_([this] { watch(); }) {}

WorkWatch::~WorkWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  condition_.notify_one();
  thread_.join();
}

WorkWatch::Watched::Watched(WorkWatch& watch, Computations computations) : watch_(watch) {
  const std::lock_guard lock(watch_.mutex_);
  watch_.computations_ = std::move(computations);
}

WorkWatch::Watched::~Watched() {
  const std::lock_guard lock(watch_.mutex_);
  watch_.computations_ = {};
}

void WorkWatch::expect(double known_s, std::string_view who) {
  const Deadlines& deadlines = options_.deadlines;
  const std::lock_guard lock(mutex_);
  allowed_s_ = deadlines.floor_s > 0 ? deadlines.factor * known_s + deadlines.floor_s : 0;
  because_ = known_s > 0 ? fmt::format("{} times {} {:.3g} s, and {:.3g} s: --deadline-factor, --deadline-floor",
                                       deadlines.factor, who, known_s, deadlines.floor_s)
                         : "nothing is predicted or measured: --deadline-floor";
}

WorkWatch::Clock::duration WorkWatch::between_looks() const {
  double shortest = longest_look_s;
  for (const double limit : {allowed_s_, options_.deadlines.prepare_s}) {
    if (limit > 0) shortest = std::min(shortest, limit / looks_per_limit);
  }
  return of(std::max(shortest, shortest_look_s));
}

// false: the watch ends.
bool WorkWatch::sleep(std::unique_lock<std::mutex>& lock, Clock::duration duration) {
  // The system clock: see waker.h.
  const auto until =
      std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::system_clock::duration>(duration);
  return !condition_.wait_until(lock, until, [this] { return stop_; });
}

void WorkWatch::watch() {
  ::prctl(PR_SET_NAME, "nls-watch");  // for top -H
  Charge computation, preparation;
  Clock::time_point last = Clock::now();
  std::unique_lock lock(mutex_);
  while (sleep(lock, between_looks())) {
    const Clock::time_point now = Clock::now();
    const double elapsed = std::chrono::duration<double>(now - std::exchange(last, now)).count();
    const auto goes_on_for_s = [&now](const Charge& charge) {
      return std::chrono::duration<double>(now - charge.since).count();
    };
    if (const uint64_t piece = liveness_.computations(); (piece & 1) != 0 && allowed_s_ > 0 && computations_.threads) {
      if (piece != computation.piece) computation.begin(piece, now);
      computation.add(computations_.threads(), elapsed);
      if (computation.least_s() > allowed_s_) {
        const Error why = lost(fmt::format(
            "{} has computed for {:.1f} s and does not end: its thread used {:.1f} s of processor time, and {:.3g} s "
            "are allowed ({})",
            computations_.current(), goes_on_for_s(computation), computation.ran_s(), allowed_s_, because_));
        return end_run(
            why, [&] { return liveness_.computations() == piece; }, lock);
      }
    }
    if (liveness_.works() && options_.deadlines.prepare_s > 0) {
      const auto piece = static_cast<uint64_t>(liveness_.last_move());
      if (piece != preparation.piece) preparation.begin(piece, now);
      preparation.add({owner_}, elapsed);
      if (preparation.least_s() > options_.deadlines.prepare_s) {
        const Error why = lost(fmt::format(
            "{} come to no end: one piece of them has taken {:.1f} s, {:.1f} s of them processor time, and {:.3g} s "
            "are "
            "allowed (--prepare-limit)",
            liveness_.phase(), goes_on_for_s(preparation), preparation.ran_s(), options_.deadlines.prepare_s));
        return end_run(
            why, [&] { return liveness_.works() && static_cast<uint64_t>(liveness_.last_move()) == piece; }, lock);
      }
    }
  }
}

void WorkWatch::end_run(const Error& why, const std::function<bool()>& goes_on, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  if (options_.on_overdue) options_.on_overdue(why);
  overdue_.store(true, std::memory_order_release);
  lock.lock();
  for (const Clock::time_point until = Clock::now() + of(to_end_s); Clock::now() < until;) {
    if (!goes_on() || !sleep(lock, of(shortest_look_s))) return;
  }
  lock.unlock();
  if (options_.on_stuck) options_.on_stuck(why);
}

}  // namespace nlsplit::inline exec
