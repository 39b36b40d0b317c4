#include "exec/mpi/start_watch.h"

#include <fmt/format.h>
#include <netdb.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "exec/heartbeat/greeting.h"

namespace nlsplit::inline exec {

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr double notice_s = 5, slow_name_s = 1;

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

}  // namespace

struct StartWatch::State {
  int rank = 0;
  bool speaks_of_host = false;
  Notice notice;
  SteadyClock::time_point begin = SteadyClock::now();
  std::string host = own_host();
  std::atomic<double> resolved_s{-1};  // -1: not yet
  std::mutex mutex;
  std::condition_variable changed;
  bool started = false, over = false;
  bool said = false;

  std::string name_text() const {
    const double took_s = resolved_s;
    if (took_s < 0)
      return fmt::format("the name of this host, '{}', is not resolved after {:.1f} s (is it in /etc/hosts?)", host,
                         seconds_since(begin));
    if (took_s < slow_name_s) return "";
    return fmt::format("the name of this host, '{}', took {:.1f} s to resolve (is it in /etc/hosts?)", host, took_s);
  }

  void resolve() {
    addrinfo* list = nullptr;
    if (::getaddrinfo(host.c_str(), nullptr, nullptr, &list) == 0) ::freeaddrinfo(list);
    resolved_s = seconds_since(begin);
  }

  void wait() {
    std::unique_lock lock(mutex);
    // The system clock: see waker.h.
    const auto until =
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::duration<double>(notice_s));
    if (changed.wait_until(lock, until, [this] { return started || over; })) return;
    const std::string name = name_text();
    if (!name.empty() && speaks_of_host)
      notice(fmt::format("rank {} on host {} still waits in the start; {}", rank, host, name));
    else if (rank == 0)
      notice(fmt::format("rank {} on host {} still waits in MPI_Init for other ranks", rank, host));
    said = true;
  }
};

StartWatch::StartWatch(int rank, bool is_first_on_host, Notice notice) : state_(std::make_shared<State>()) {
  state_->rank = rank;
  state_->speaks_of_host = is_first_on_host;
  state_->notice = std::move(notice);
  if (state_->notice) std::thread([state = state_] { state->wait(); }).detach();
}

StartWatch::~StartWatch() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->over = true;
  }
  state_->changed.notify_all();
}

void StartWatch::resolve_name() { state_->resolve(); }

void StartWatch::mpi_has_started() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->started = true;
  }
  state_->changed.notify_all();
}

void StartWatch::say_what_is_missing(const std::string& missing) const {
  if (seconds_since(state_->begin) < notice_s) return;
  {
    const std::lock_guard lock(state_->mutex);
    if (std::exchange(state_->said, true) || !state_->notice) return;
  }
  state_->notice(
      fmt::format("rank {} on host {} still waits in the start for {}", state_->rank, state_->host, missing));
}

std::string StartWatch::slow_name() const {
  const std::string text = state_->name_text();
  return text.empty() ? "" : "; " + text;
}

}  // namespace nlsplit::inline exec
