#include "exec/backends/workers.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <numeric>
#include <thread>

#include "base/rest_a_moment.h"

namespace nlsplit::inline exec {
namespace {

// Turns of looking for work before a worker sleeps: some ten microseconds, longer than from one kernel to the next.
constexpr int spins_before_sleep = 4000;

// At this niceness the share of the thread that moves messages is nine tenths of a core; a higher one makes no message
// faster (docs/performance.md, "Messages go first").
constexpr int niceness = 10;

constexpr size_t line_bytes = 128;  // two lines of 64: they are fetched in pairs

std::vector<int> usable_cores() {
  std::vector<int> cores;
  cpu_set_t mine;
  if (sched_getaffinity(0, sizeof(mine), &mine) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &mine)) cores.push_back(core);
  }
  return cores;
}

}  // namespace

void pin_thread(int core) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  pthread_setaffinity_np(pthread_self(), sizeof(only), &only);
}

void let_messages_go_first() {
  constexpr id_t this_thread = 0;  // on Linux each thread has a niceness of its own
  if (::getpriority(PRIO_PROCESS, this_thread) < niceness) ::setpriority(PRIO_PROCESS, this_thread, niceness);
}

ChosenCores choose_cores(const Program& program, int device, const std::vector<int>& devices_of_this_machine,
                         uint64_t run, const std::string& claims) {
  const auto cores_of = [&](int d) {
    const DeviceProgram& what = program.devices[static_cast<size_t>(d)];
    return what.kind == DeviceKind::host ? size_t{0} : static_cast<size_t>(what.cores);
  };
  const size_t wanted = cores_of(device);
  const std::vector<int> usable = usable_cores();
  size_t first = 0, all = 0;
  const bool bound = usable.size() < std::thread::hardware_concurrency();  // mpirun gave this rank cores of its own
  for (const int d : devices_of_this_machine) {
    if (bound) break;
    if (d < device) first += cores_of(d);
    all += cores_of(d);
  }
  all = std::max(all, first + wanted);
  ChosenCores chosen;
  if (wanted == 0 || all > usable.size()) return chosen;
  // Its own share of the usable ones; what no device of this run would choose; then whatever is free.
  const auto at = [&usable](size_t i) { return usable.begin() + static_cast<std::ptrdiff_t>(i); };
  std::vector<int> order(at(first), at(first + wanted));
  order.insert(order.end(), at(all), usable.end());
  order.insert(order.end(), usable.begin(), at(first));
  order.insert(order.end(), at(first + wanted), at(all));
  chosen.claim = CoreClaim::take(order, wanted, run, claims);
  chosen.shared = chosen.claim.others_have();
  if (wanted > 1 || devices_of_this_machine.size() > 1) chosen.pins = chosen.claim.cores();
  return chosen;
}

struct Workers::State {
  std::vector<int> pins;
  void (*body)(void*, int) = nullptr;
  void* context = nullptr;
  std::atomic<uint32_t> round{0};  // grows with every call, and once more at the end
  std::atomic<int> busy{0};        // workers other than the caller still at it
  bool stop = false;
  std::vector<std::thread> threads;
  std::vector<std::atomic<pid_t>> ids;  // [worker]; 0: has not begun

  void work(int worker) {
    ids[static_cast<size_t>(worker)].store(::gettid(), std::memory_order_relaxed);
    let_messages_go_first();
    if (!pins.empty()) pin_thread(pins[static_cast<size_t>(worker)]);
    for (uint32_t seen = 0;;) {
      for (int i = 0; i < spins_before_sleep && round.load(std::memory_order_acquire) == seen; ++i) rest_a_moment();
      round.wait(seen, std::memory_order_acquire);
      seen = round.load(std::memory_order_acquire);
      if (stop) return;
      body(context, worker);
      busy.fetch_sub(1, std::memory_order_release);
    }
  }

  static void run(void* self, void (*body)(void*, int), void* context) {
    State& s = *static_cast<State*>(self);
    s.body = body;
    s.context = context;
    s.busy.store(static_cast<int>(s.threads.size()), std::memory_order_relaxed);
    s.begin_round();
    // What the others read lies in the caller's frame; what this thread spills while it computes lies in frames below.
    // They must not share cache lines, or each spill would take a line away from all workers.
    alignas(line_bytes) std::byte gap[2 * line_bytes];
    asm volatile("" : : "r"(gap) : "memory");
    body(context, 0);
    // The other workers are at their last pieces. If they share cores with other threads, they may use this core.
    for (int i = 0; s.busy.load(std::memory_order_acquire) > 0; ++i) {
      i < spins_before_sleep ? rest_a_moment() : std::this_thread::yield();
    }
  }

  void begin_round() {
    round.fetch_add(1, std::memory_order_release);
    round.notify_all();
  }
};

Workers::Workers(int count, std::vector<int> pins) : state_(std::make_unique<State>()) {
  CHECK(count >= 1 && (pins.empty() || pins.size() == static_cast<size_t>(count)), "a core for each worker, or none");
  state_->pins = std::move(pins);
  state_->ids = std::vector<std::atomic<pid_t>>(static_cast<size_t>(count));
  for (int worker = 1; worker < count; ++worker)
    state_->threads.emplace_back([state = state_.get(), worker] { state->work(worker); });
}

Workers::~Workers() {
  state_->stop = true;
  state_->begin_round();
  for (std::thread& thread : state_->threads) thread.join();
}

void Workers::pin_caller() const {
  if (!state_->pins.empty()) pin_thread(state_->pins[0]);
}

Crew Workers::crew() {
  return {static_cast<int>(state_->threads.size()) + 1, state_->threads.empty() ? nullptr : &State::run, state_.get()};
}

std::vector<pid_t> Workers::threads() const {
  std::vector<pid_t> begun;
  for (const std::atomic<pid_t>& id : state_->ids) {
    if (const pid_t thread = id.load(std::memory_order_relaxed); thread != 0) begun.push_back(thread);
  }
  return begun;
}

}  // namespace nlsplit::inline exec
