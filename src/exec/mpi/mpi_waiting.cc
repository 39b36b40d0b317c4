#include "exec/mpi/mpi_waiting.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace nlsplit::inline exec {
namespace {

// The interval of polling, if no socket announces messages.
constexpr std::chrono::microseconds shortest_sleep(50), longest_sleep(500);
// Between looks, while sockets tell: only in case they missed something.
constexpr std::chrono::microseconds shortest_watch(1000), longest_watch(16000);
constexpr std::chrono::milliseconds between_searches(50);  // for new sockets
constexpr std::chrono::microseconds between_rests(2000);   // some thousandths of a core
constexpr int tolerated_misses = 3;
// Open MPI 4 looks at its sockets in one of so many calls (opal/runtime/opal_progress.c).
constexpr int calls_of_a_look = 8;
// A look at nothing takes less than a microsecond or two, one that copied a fragment (32 KiB through shared memory)
// longer. On a slow processor it is so many times a look at nothing.
constexpr std::chrono::microseconds least_busy_look(3);
constexpr int busy_look_factor = 3, looks_at_nothing = 65;

// Is there a core for polling beside the one that computes?
bool has_spare_core(size_t ranks) {
  const size_t cores = std::thread::hardware_concurrency();
  cpu_set_t mine;
  const size_t usable = sched_getaffinity(0, sizeof(mine), &mine) == 0 ? static_cast<size_t>(CPU_COUNT(&mine)) : cores;
  return usable < cores ? usable >= 2 : cores >= 2 * ranks;  // bound to its own cores, or sharing all of them
}

}  // namespace

// Since Linux 6.6 who wakes may have to wait for milliseconds unless its turns are short (6.12 lets us ask for that);
// before, it had the right of way.
void ask_for_short_turns() {
  struct Attributes {  // the kernel's sched_attr, first version; its header and the C library's exclude each other
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
  } attributes{};
  constexpr uint64_t shortest_ns = 100'000;
  constexpr uint64_t not_inherited = 1;  // SCHED_FLAG_RESET_ON_FORK: the threads that compute start from this one
  if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  attributes.size = sizeof(attributes);
  attributes.runtime = shortest_ns;
  attributes.flags |= not_inherited;
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);  // a wish
}

void MpiWaiting::set_up(Polling polling, MPI_Comm control, std::vector<int> not_ours, size_t neighbours) {
  control_ = control;
  not_ours_ = std::move(not_ours);
  alone_here_ = neighbours <= 1;
  spins_ = polling == Polling::spin || (polling == Polling::automatic && has_spare_core(neighbours));
  time_looks_at_nothing();
}

void MpiWaiting::pause(int rounds) {
  const bool moving = longest_look_ > busy_look_;
  longest_look_ = {};
  slept_in_vain_ = false;
  ++pauses_;
  if (rounds == 0 || moving) quiet_ = 0;
  if (spins_) {
    std::this_thread::yield();
    return;
  }
  // Not yield(): whoever yields to a thread that computes gets the core back with the kernel's next tick, up to 4 ms
  // later. wake() wakes only who sleeps.
  if (moving) return;
  const bool watch = sockets_tell();
  const auto shortest = watch ? shortest_watch : shortest_sleep, longest = watch ? longest_watch : longest_sleep;
  asleep_.store(true, std::memory_order_relaxed);
  const SocketWaiter::Woken woken = waiter_.sleep(std::min(longest, shortest * (1 << std::min(quiet_++, 4))));
  asleep_.store(false, std::memory_order_relaxed);
  slept_in_vain_ = watch && woken == SocketWaiter::Woken::by_time;
  if (woken != SocketWaiter::Woken::by_wake) look();
}

// Where sockets tell, they end the sleep.
void MpiWaiting::rest() {
  slept_in_vain_ = false;
  sockets_tell();
  if (waiter_.sleep(between_rests) != SocketWaiter::Woken::by_wake) look();
}

void MpiWaiting::wake() {
  if (spins_) return;
  waiter_.wake();
  // Only who sleeps comes before the thread that computes. Who is awake and moves messages may have lost this core to
  // it, until the kernel's next tick.
  if (!asleep_.load(std::memory_order_relaxed)) std::this_thread::yield();
}

void MpiWaiting::ended(const MpiRequest& request) {
  if (slept_in_vain_ && sockets_missed(request)) ++misses_;
  slept_in_vain_ = false;
}

// Makes MPI look at its sockets. What has ended, a test finds.
void MpiWaiting::look() {
  for (int call = 0; call < calls_of_a_look; ++call) {
    int found = 0;
    const Clock::time_point before = Clock::now();
    MPI_Iprobe(MPI_ANY_SOURCE, 0, control_, &found, MPI_STATUS_IGNORE);
    longest_look_ = std::max(longest_look_, Clock::now() - before);
  }
}

void MpiWaiting::time_looks_at_nothing() {
  std::vector<Clock::duration> looks(looks_at_nothing);
  for (Clock::duration& took : looks) {
    longest_look_ = {};
    look();
    took = longest_look_;
  }
  longest_look_ = {};
  std::ranges::nth_element(looks, looks.begin() + looks_at_nothing / 2);
  busy_look_ = std::max<Clock::duration>(least_busy_look, busy_look_factor * looks[looks_at_nothing / 2]);
}

// Whether everything that comes is announced. Not what comes from this machine, or over a fabric that is no network
// for the kernel: that shows when messages end after sleeps in which no socket had news.
bool MpiWaiting::sockets_tell() {
  if (!alone_here_ || misses_ > tolerated_misses) return false;
  if (const Clock::time_point now = Clock::now(); now >= next_search_) {
    waiter_.find_sockets(not_ours_);
    next_search_ = now + between_searches;
  }
  return waiter_.has_sockets();
}

// Of what ended after a sleep in vain: whether it came another way than through a socket that is watched. Not what
// began after that sleep, or came between its end and now, as on a busy machine it often does. A collective ends some
// looks after its last message.
bool MpiWaiting::sockets_missed(const MpiRequest& request) {
  if (request.collective || request.begun == pauses_ || waiter_.has_news()) return false;
  return waiter_.find_sockets(not_ours_) == 0;  // a new connection is no other way
}

}  // namespace nlsplit::inline exec
