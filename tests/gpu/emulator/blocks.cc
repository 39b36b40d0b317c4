#include "gpu/emulator/blocks.h"

#include <fmt/format.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "gpu/emulator/fault.h"
#include "gpu/emulator/memory.h"

namespace nlsplit::emulator {
namespace {

constexpr int most_threads = 1024;  // of a block
constexpr size_t stack_bytes = size_t{128} << 10;

enum class Waits { nothing, barrier, lanes, ended };

struct Thread {
  Waits waits = Waits::ended;
  int fiber = -1;
  uint32_t mask = 0;               // which lanes it waits for
  uint64_t given = 0;              // and what it gives them
  uint64_t seen[warp_lanes] = {};  // what all gave
};

struct Fiber {
  ucontext_t first;  // how it begins; afterwards it goes on where it was
  jmp_buf at;
  bool begun = false;
};

// The block that runs. Fibers take one thread after the other: as many are needed as wait at a time.
struct State {
  std::byte* stacks;
  std::vector<Fiber> fibers = std::vector<Fiber>(most_threads);
  std::vector<int> idle;
  std::vector<Thread> threads = std::vector<Thread>(most_threads);
  std::vector<int> order;  // in which threads begin
  size_t begun = 0;
  std::vector<int> ready;  // may go on
  int running = 0, fiber = 0;
  Place* place;  // with the stacks: kernels may read it
  const Call* call = nullptr;
  std::string name;
  jmp_buf scheduler;  // in go_on()
  bool stopped = false;

  State() {
    const size_t bytes = most_threads * stack_bytes + sizeof(Place);
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED, "no memory for the stacks of the emulated threads");
    stacks = static_cast<std::byte*>(at);
    place = new (stacks + most_threads * stack_bytes) Place{};
  }
};

State& state() {
  static State all;
  return all;
}

// Not asked for within a fiber: another thread of the host may go on with it.
thread_local bool runs_kernel = false;

void enter(int thread) {
  State& s = state();
  s.running = thread;
  s.threads[static_cast<size_t>(thread)].waits = Waits::nothing;
  s.threads[static_cast<size_t>(thread)].fiber = s.fiber;
  s.place->thread = {static_cast<unsigned>(thread), 0, 0};
}

void leave() {
  State& s = state();
  if (_setjmp(s.fibers[static_cast<size_t>(s.fiber)].at) == 0) _longjmp(s.scheduler, 1);
}

void fiber_main() {
  State& s = state();
  for (;;) {
    while (s.begun < s.order.size()) {
      enter(s.order[s.begun++]);
      s.call->thread(s.call->arguments.data());
      s.threads[static_cast<size_t>(s.running)].waits = Waits::ended;
    }
    s.idle.push_back(s.fiber);
    leave();
  }
}

// Until the fiber waits or has nothing to do.
void go_on(int number) {
  State& s = state();
  s.fiber = number;
  Fiber& fiber = s.fibers[static_cast<size_t>(number)];
  if (_setjmp(s.scheduler) != 0) return;
  if (fiber.begun) _longjmp(fiber.at, 1);
  fiber.begun = true;
  getcontext(&fiber.first);
  fiber.first.uc_stack.ss_sp = s.stacks + static_cast<size_t>(number) * stack_bytes;
  fiber.first.uc_stack.ss_size = stack_bytes;
  makecontext(&fiber.first, fiber_main, 0);
  setcontext(&fiber.first);
}

void fail(int thread, const std::string& what) {
  State& s = state();
  report(fmt::format("{}: block {} thread {} {}", s.name, s.place->block.x, thread, what));
  s.stopped = true;
}

// Those whose lanes have all come, and with the same mask, may go on.
void release_lanes() {
  State& s = state();
  const size_t count = s.order.size();
  for (size_t first = 0; first < count; first += warp_lanes) {
    std::vector<size_t> released;
    for (size_t t = first; t < std::min(count, first + warp_lanes); ++t) {
      if (s.threads[t].waits != Waits::lanes) continue;
      bool all = true;
      for (size_t lane = 0; lane < warp_lanes; ++lane) {
        if ((s.threads[t].mask >> lane & 1) == 0) continue;
        const Thread* other = first + lane < count ? &s.threads[first + lane] : nullptr;
        all = all && other != nullptr && other->waits == Waits::lanes && other->mask == s.threads[t].mask;
      }
      if (all) released.push_back(t);
    }
    for (const size_t t : released) {
      for (size_t lane = 0; lane < warp_lanes && first + lane < count; ++lane)
        s.threads[t].seen[lane] = s.threads[first + lane].given;
    }
    for (const size_t t : released) s.ready.push_back(static_cast<int>(t));
  }
}

// Nobody can go on: all wait at the barrier, or some wait for what never comes. False: the block is done.
bool release() {
  State& s = state();
  release_lanes();
  if (!s.ready.empty()) return true;
  int waiting = -1, elsewhere = -1;
  for (size_t t = 0; t < s.order.size(); ++t)
    (s.threads[t].waits == Waits::barrier ? waiting : elsewhere) = static_cast<int>(t);
  if (waiting >= 0 && elsewhere < 0) {
    s.ready = s.order;
    begin_phase();
    return true;
  }
  for (size_t t = 0; t < s.order.size() && !s.stopped; ++t) {
    const Thread& thread = s.threads[t];
    if (thread.waits == Waits::barrier)
      fail(static_cast<int>(t), fmt::format("waits at a barrier that thread {} does not reach", elsewhere));
    if (thread.waits == Waits::lanes) {
      fail(static_cast<int>(t),
           fmt::format("waits for lanes {:#010x}, and not all of them come with this mask", thread.mask));
    }
  }
  return false;
}

void run_block() {
  State& s = state();
  s.begun = 0;
  s.ready.clear();
  for (;;) {
    if (!s.ready.empty()) {
      const int thread = s.ready.back();
      s.ready.pop_back();
      Thread& t = s.threads[static_cast<size_t>(thread)];
      s.fiber = t.fiber;
      enter(thread);
      go_on(t.fiber);
    } else if (s.begun < s.order.size()) {
      const int fiber = s.idle.back();
      s.idle.pop_back();
      go_on(fiber);
    } else if (s.stopped || !release()) {
      return;
    }
    if (s.stopped) return;
  }
}

}  // namespace

const Place& here() { return *state().place; }
int running_thread() { return runs_kernel ? state().running : -1; }
bool is_local(const void* at) {
  const auto* byte = static_cast<const std::byte*>(at);
  const State& s = state();
  const std::vector<std::byte>& arguments = s.call->arguments;
  return (byte >= s.stacks && byte < s.stacks + most_threads * stack_bytes + sizeof(Place)) ||
         (byte >= arguments.data() && byte < arguments.data() + arguments.size());
}

void barrier() {
  State& s = state();
  s.threads[static_cast<size_t>(s.running)].waits = Waits::barrier;
  leave();
}

uint64_t exchange(uint32_t mask, uint64_t value, int lane) {
  State& s = state();
  Thread& thread = s.threads[static_cast<size_t>(s.running)];
  if ((mask >> own_lane() & 1) == 0) stop(fmt::format("waits for lanes {:#010x} and is none of them", mask));
  if ((mask >> lane & 1) == 0) stop(fmt::format("wants the value of lane {}, which is not of {:#010x}", lane, mask));
  thread.waits = Waits::lanes;
  thread.mask = mask;
  thread.given = value;
  leave();
  return thread.seen[lane];
}

void stop(const std::string& what) {
  State& s = state();
  fail(s.running, what);
  _longjmp(s.scheduler, 1);
}

void run_kernel(int gpu, const Blocks& blocks, int threads, Random& random, const Call& call) {
  State& s = state();
  s.call = &call;
  const std::string file = std::filesystem::path(blocks.line.file_name()).filename().string();
  s.name = blocks.name != nullptr ? blocks.name : fmt::format("the kernel of {}:{}", file, blocks.line.line());
  s.place->threads = {static_cast<unsigned>(threads), 1, 1};
  s.place->blocks = {blocks.count, 1, 1};
  s.order.resize(static_cast<size_t>(threads));
  s.idle.resize(s.fibers.size());
  std::iota(s.idle.begin(), s.idle.end(), 0);
  s.stopped = false;
  runs_kernel = true;
  begin_kernel(gpu);
  const bool last_first = random.below(2) != 0;
  for (unsigned b = 0; b < blocks.count && !s.stopped; ++b) {
    s.place->block = {last_first ? blocks.count - 1 - b : b, 0, 0};
    std::iota(s.order.begin(), s.order.end(), 0);
    if (random.below(2) != 0) std::reverse(s.order.begin(), s.order.end());
    begin_block();
    run_block();
  }
  if (s.stopped) {
    for (Fiber& fiber : s.fibers) fiber.begun = false;  // what they were doing is given up
  }
  runs_kernel = false;
  end_kernel();
}

}  // namespace nlsplit::emulator
