#include "exec/device_run.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/gauge.h"
#include "exec/device_flight.h"
#include "exec/device_index.h"
#include "exec/workers.h"

namespace nlsplit::inline exec {
namespace {

using Clock = std::chrono::steady_clock;

// How often a copy to or from a GPU is asked whether it is done: in so long PCIe 4 moves half a megabyte.
constexpr std::chrono::microseconds copy_look(20);

// One direction of traffic with one peer, in order; online that of one tag.
struct Fifo {
  struct InFlight {
    uint32_t instance;
    Transport::Request request;
    cuda::Event* copy;  // to or from a GPU; not nullptr: under way, before a send and after a recv
    Clock::time_point posted;
  };
  std::deque<InFlight> in_flight;
  std::atomic<uint32_t> first{no_instance};  // of in_flight, for other threads

  void add(const InFlight& transfer) {
    const uint32_t instance = transfer.instance;
    in_flight.push_back(transfer);
    if (in_flight.size() == 1) first.store(instance, std::memory_order_relaxed);
  }
  void remove_first() {
    in_flight.pop_front();
    first.store(in_flight.empty() ? no_instance : in_flight.front().instance, std::memory_order_relaxed);
  }
};

}  // namespace

struct DeviceRun::State : DeviceIndex {
  const KernelTable& kernels;
  std::byte* arena;
  Transport& transport;
  DeviceRunOptions options;

  std::vector<Fifo> fifos;

  std::vector<int> waits_for;        // computes': under `mutex`; transfers': the caller's thread alone
  std::vector<double> there;         // with a clock: when the last of what a compute waited for ended; under `mutex`
  std::vector<int> slot_waits;       // under `mutex`
  std::optional<DeviceTurns> turns;  // under `mutex`
  bool asked_again = false;          // under `mutex`: a slot has become ready since the policy was asked
  std::vector<uint32_t> ran;         // computes, in the order in which they ran: `computed` of them can be read
  std::vector<int> decided;          // slots, in the same; the worker alone
  std::vector<Interval> times;
  std::vector<uint32_t> ready;                 // transfers to issue
  uint32_t left = 0;                           // instances that have not ended
  std::atomic<uint32_t> computed{0};           // how many of `ran` have ended
  std::atomic<uint32_t> current{no_instance};  // what the worker computes, or computed last
  std::atomic<pid_t> worker_thread{0};

  mutable std::mutex mutex;
  std::condition_variable condition;  // a compute's inputs have come, or go, or stop
  bool go = false, stop = false, armed = false;
  std::optional<Error> broken;  // why the GPU does not go on; under `mutex`
  std::atomic<bool> is_broken{false};
  double gpu_zero = 0;  // when the GPU's clock began, by ours; the worker alone
  double gauge_s = 0;
  Clock::time_point gauged = {};
  Clock::time_point zero;
  size_t overruns = 0;
  std::thread worker;
  Workers workers;  // who share its computations
  DeviceFlight flight;

  State(const Program& program, const Dependencies& deps, int d, const KernelTable& kernels, std::byte* arena,
        Transport& transport, const DeviceRunOptions& options)
      : DeviceIndex(program, deps, d),
        kernels(kernels),
        arena(arena),
        transport(transport),
        options(options),
        fifos(fifo_peers.size()),
        ran(computes.size(), 0),
        workers(device.cores, options.pins),
        flight(*this, options.recorder) {}

  double now() const { return since_zero(Clock::now()); }
  double since_zero(Clock::time_point at) const { return std::chrono::duration<double>(at - zero).count(); }

  // Now; and kept for the flight recorder.
  double note(FlightEvent event, uint32_t i) {
    const Clock::time_point at = Clock::now();
    flight.computes(at, event, i);
    return since_zero(at);
  }

  // `at`: when what it waited for ended.
  void release(uint32_t to, double at) {
    if (transfers(to)) {
      if (--waits_for[to] == 0) ready.push_back(to);
      return;
    }
    bool met;
    {
      const std::lock_guard lock(mutex);
      if (!there.empty()) there[to] = std::max(there[to], at);
      if (holds_slot(to)) {
        met = --slot_waits[static_cast<size_t>(slot_of(to))] == 0;
        if (met) slot_is_ready(slot_of(to));
      } else {
        met = --waits_for[to] == 0;
      }
    }
    if (met) condition.notify_one();
  }

  void end(uint32_t i) {
    --left;
    for (uint32_t s = successor_begin[i]; s < successor_begin[i + 1]; ++s) release(successors[s], times[i].finish);
  }

  // Under `mutex`.
  void slot_is_ready(int s) {
    const FreeSlot& slot = online_slots[static_cast<size_t>(s)];
    turns->ready(s, slot.chosen, {slot.slot, go ? now() : 0, options.online->remaining_s[static_cast<size_t>(s)]});
    asked_again = true;
  }

  // The worker: all computes, slot by slot.
  void compute() {
    workers.pin_caller();
    worker_thread.store(::gettid(), std::memory_order_relaxed);
    ::prctl(PR_SET_NAME, "nls-compute");  // for top -H
    ::prctl(PR_SET_TIMERSLACK, 1UL);      // of this thread: sleeps of a device clock end in time
    double nominal = 0;                   // when the computation before ended, by the device clock
    gauge();
    {
      std::unique_lock lock(mutex);
      armed = true;
      condition.notify_one();
      condition.wait(lock, [this] { return go || stop; });
    }
    if (options.gpu != nullptr) {
      transport.liveness().computing(true);  // it waits for the GPU, which may hang
      if (const Status status = options.gpu->begin(); !status.ok()) return give_up(status.error());
      gpu_zero = now();
      transport.liveness().computing(false);
    }
    size_t k = 0;
    for (size_t turn = 0; turn < device.order.size() && k < computes.size(); ++turn) {
      const std::optional<int> next = next_slot(static_cast<int>(turn), nominal);
      if (!next) return;
      const auto s = static_cast<size_t>(*next);
      for (uint32_t c = computes_of[s]; c < computes_of[s + 1];) {
        const uint32_t end = run_end(c, computes_of[s + 1]);
        const bool ends_slot = options.online && end == computes_of[s + 1];
        if (!run_some({computes.data() + c, computes.data() + end}, k, ends_slot, nominal)) return;
        k += end - c;
        c = end;
      }
      if (options.online) end_slot(s);
    }
    note(FlightEvent::finishes, no_instance);
  }

  // The slot for this turn; online when there is one whose turn it is. None: stop.
  std::optional<int> next_slot(int turn, double& nominal) {
    if (!options.online) return turn;
    std::unique_lock lock(mutex);
    while (!stop) {
      if (const std::optional<int> chosen = turns->next(now())) {
        decided.push_back(*chosen);
        return chosen;
      }
      asked_again = false;
      note(FlightEvent::waits, no_instance);
      condition.wait(lock, [this] { return stop || asked_again; });
      nominal = std::max(nominal, now());
    }
    return std::nullopt;
  }

  void end_slot(size_t s) {
    const std::lock_guard lock(mutex);
    for (const int later : slots_after[s]) {
      if (--slot_waits[static_cast<size_t>(later)] == 0) slot_is_ready(later);
    }
  }

  bool is_awaited(uint32_t i) const { return successor_begin[i] != successor_begin[i + 1]; }

  // How far a GPU is given computations at once, from the c-th on: none but the first waits for a transfer, none but
  // the last is awaited by one. With a clock each is looked at by itself.
  uint32_t run_end(uint32_t c, uint32_t slot_end) const {
    if (options.gpu == nullptr || !options.clock.empty()) return c + 1;
    while (c + 1 < slot_end && !is_awaited(computes[c]) && waits_for_at_start[computes[c + 1]] == 0) ++c;
    return c + 1;
  }

  // Computations, the first of them the k-th to run, once what it needs is there. false: stop.
  bool run_some(std::span<const uint32_t> some, size_t k, bool ends_slot, double& nominal) {
    const uint32_t i = some.front();
    {
      std::unique_lock lock(mutex);
      if (waits_for[i] != 0) {
        note(FlightEvent::waits, i);
        condition.wait(lock, [&] { return stop || waits_for[i] == 0; });
        nominal = std::max(nominal, now());
      }
      if (stop) return false;
      // What it waited for may have come while this machine was behind the clock.
      if (!there.empty()) nominal = std::max(nominal, there[i]);
    }
    const size_t done = k + some.size();
    const bool awaited = is_awaited(some.back()) || done == computes.size();
    const bool settle = awaited || ends_slot || !options.clock.empty();
    current.store(i, std::memory_order_relaxed);
    transport.liveness().computing(true);
    if (options.gpu == nullptr) {
      times[i].start = note(FlightEvent::begins, i);
      execute(program, device, kernels, slot(i), instr(i), arena, workers.crew());
      times[i].finish = note(FlightEvent::ends, i);
    } else if (const Status status = run_on_gpu(some, settle); !status.ok()) {
      give_up(status.error());
      return false;
    }
    // Whoever is asked what comes next is asked by the device's clock.
    if (!options.clock.empty()) nominal = keep_time(i, nominal, awaited || ends_slot);
    transport.liveness().computing(false);  // a GPU may; but the next one may wait for a message, and that can hang
    std::ranges::copy(some, ran.begin() + static_cast<std::ptrdiff_t>(k));
    if (options.gpu != nullptr && !settle) return true;
    computed.store(static_cast<uint32_t>(done), std::memory_order_release);
    if (awaited) transport.wake();
    return true;
  }

  // Begins them; `settle`: and waits for their end, and so for all that were begun.
  Status run_on_gpu(std::span<const uint32_t> some, bool settle) {
    std::vector<Gpu::Step> steps;
    const double begun = note(FlightEvent::begins, some.front());
    for (const uint32_t i : some) {
      steps.push_back({i, &instr(i)});
      times[i].start = begun;
    }
    RETURN_IF_ERROR(options.gpu->execute(slot(some.front()), steps));
    if (!settle) return ok_status();
    ASSIGN_OR_RETURN(const std::vector<GpuTime> all, options.gpu->finish());
    // Its clock runs a little faster or slower than ours, and where its zero lies among our times is known to some
    // microseconds only. None ran before it was begun, nor after its end was seen.
    const double seen = note(FlightEvent::ends, some.back());
    for (const GpuTime& ran : all) {
      Interval& time = times[ran.tag];
      time.start = std::clamp(gpu_zero + ran.start_s, time.start, seen);
      time.finish = std::clamp(gpu_zero + ran.finish_s, time.start, seen);
    }
    return ok_status();
  }

  void give_up(const Error& why) {
    transport.liveness().computing(false);
    {
      const std::lock_guard lock(mutex);
      broken = why;
    }
    is_broken.store(true, std::memory_order_release);
    transport.wake();
  }

  // Not before each of many short repeats.
  void gauge() {
    constexpr std::chrono::milliseconds fresh(20);
    if (gauge_s > 0 && Clock::now() - gauged < fresh) return;
    gauge_s = gauge_seconds();
    gauged = Clock::now();
  }

  // By the device clock: when computation i ends. Only what others wait for is held back until then.
  double keep_time(uint32_t i, double begin, bool awaited) {
    const Instr& what = instr(i);
    const double measured = times[i].finish - times[i].start;
    const double takes = what.opcode == Opcode::compute ? options.clock[static_cast<size_t>(what.desc)] : measured;
    const double end = begin + takes;
    if (awaited) {
      if (now() > end) ++overruns;
      std::this_thread::sleep_until(zero +
                                    std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(end)));
    }
    times[i] = {begin, end};
    return end;
  }

  bool by_mirror() const { return options.gpu != nullptr && !options.direct; }

  // What it moves: in the arena, its mirror, or the GPU's memory.
  std::span<std::byte> data_of(uint32_t i) const {
    const Instr& transfer = instr(i);
    const Operand& operand = transfer.opcode == Opcode::send ? transfer.reads[0] : transfer.writes[0];
    if (options.direct) return options.gpu->operand(slot(i), operand);
    return {arena + address_of(device, slot(i), operand), static_cast<size_t>(bytes_of(device, operand).value())};
  }

  // To the mirror before a send, from it after a recv.
  Result<cuda::Event*> begin_copy(uint32_t i) {
    const Instr& transfer = instr(i);
    return transfer.opcode == Opcode::send ? options.gpu->copy_out(slot(i), transfer.reads[0])
                                           : options.gpu->copy_in(slot(i), transfer.writes[0]);
  }

  Status issue(uint32_t i) {
    const Instr& transfer = instr(i);
    const bool sends = transfer.opcode == Opcode::send;
    Fifo::InFlight under_way{i, {}, nullptr, Clock::now()};
    times[i].start = since_zero(under_way.posted);
    flight.posts(under_way.posted, i);
    if (sends && by_mirror()) {
      ASSIGN_OR_RETURN(under_way.copy, begin_copy(i));
    } else if (sends) {
      under_way.request = transport.isend(transfer.peer, transfer.tag, data_of(i));
    } else {
      under_way.request = transport.irecv(transfer.peer, transfer.tag, data_of(i));
    }
    fifos[fifo_index[i]].add(under_way);
    if (fifos[fifo_index[i]].in_flight.size() == 1) flight.first_of(fifo_index[i], i, under_way.posted);
    if (!sends && next_on_fifo[i] != no_instance)
      release(next_on_fifo[i], times[i].start);  // receives are posted ahead
    return ok_status();
  }

  // Whether the first transfer of a FIFO has ended. On a GPU a send's copy is followed by its message, a recv's message
  // by its copy.
  Result<bool> has_ended(Fifo::InFlight& first) {
    const bool sends = instr(first.instance).opcode == Opcode::send;
    if (first.copy != nullptr) {
      ASSIGN_OR_RETURN(const bool copied, options.gpu->copied(first.copy));
      if (!copied) return false;
      first.copy = nullptr;
      if (!sends) return true;
      const Instr& transfer = instr(first.instance);
      first.request = transport.isend(transfer.peer, transfer.tag, data_of(first.instance));
    }
    switch (transport.test(first.request)) {
      case Transport::State::pending:
        return false;
      case Transport::State::failed:
        return transport.error();
      case Transport::State::done:
        break;
    }
    if (sends || !by_mirror()) return true;
    ASSIGN_OR_RETURN(first.copy, begin_copy(first.instance));
    return false;
  }

  // One turn: what has ended, what can begin. Says whether anything happened.
  Result<bool> turn(size_t& seen) {
    bool progress = false;
    if (is_broken.load(std::memory_order_acquire)) {
      const std::lock_guard lock(mutex);
      return *broken;
    }
    for (const uint32_t done = computed.load(std::memory_order_acquire); seen < done; ++seen) {
      const uint32_t i = ran[seen];
      end(i);
      progress = progress || left == 0 || is_awaited(i);  // somebody waited for it
    }
    while (!ready.empty()) {
      const uint32_t i = ready.back();
      ready.pop_back();
      RETURN_IF_ERROR(issue(i));
      progress = true;
    }
    for (Fifo& fifo : fifos) {
      while (!fifo.in_flight.empty()) {  // messages of a FIFO end in order: only the first is asked
        const uint32_t i = fifo.in_flight.front().instance;
        ASSIGN_OR_RETURN(const bool ended, has_ended(fifo.in_flight.front()));
        if (!ended) break;
        const Clock::time_point at = Clock::now();
        times[i].finish = since_zero(at);
        fifo.remove_first();
        flight.completes(at, i);
        const bool more = !fifo.in_flight.empty();
        flight.first_of(fifo_index[i], fifo.first, more ? fifo.in_flight.front().posted : at);
        if (instr(i).opcode == Opcode::send && next_on_fifo[i] != no_instance)
          release(next_on_fifo[i], times[i].finish);
        end(i);
        progress = true;
      }
    }
    return progress;
  }

  // For the watchdog: who waits for what.
  std::string missing() {
    std::string text =
        fmt::format("device {}: nothing happened for {} s, and no device computes", device.name, options.watchdog_s);
    const uint32_t done = computed.load(std::memory_order_acquire);
    if (done < computes.size()) text += "\n  " + next_work(done);
    for (const Fifo& fifo : fifos) {
      if (fifo.in_flight.empty()) continue;
      const uint32_t i = fifo.in_flight.front().instance;
      const bool sends = instr(i).opcode == Opcode::send;
      text += fmt::format("\n  {} {}", sends ? "has not got rid of" : "has not received", describe(i));
    }
    return text;
  }

  // What the worker does not come to.
  std::string next_work(uint32_t done) const {
    if (!options.online) return fmt::format("waits to run   {}", describe(computes[done]));
    const std::lock_guard lock(mutex);
    const std::string ready_slots = turns->waiting();
    if (ready_slots.empty()) return fmt::format("online policy {}: no slot is ready", turns->policy());
    return fmt::format("online policy {} chooses nothing: it {}", turns->policy(), ready_slots);
  }

  // For others while this runs: the transfer with `peer` that is under way, else any, else the next computation.
  std::string waits_in(int peer) const {
    for (const bool any : {false, true}) {
      for (size_t f = 0; f < fifos.size(); ++f) {
        const uint32_t i = fifos[f].first.load(std::memory_order_relaxed);
        if (i != no_instance && (any || fifo_peers[f] == peer)) return describe(i);
      }
    }
    const uint32_t done = computed.load(std::memory_order_acquire);
    if (done >= computes.size()) return fmt::format("device {}: the end of a repeat", device.name);
    return options.online ? fmt::format("device {}: {}", device.name, next_work(done)) : describe(computes[done]);
  }

  // Nobody wakes us when they end.
  bool copies_under_way() const {
    return std::ranges::any_of(
        fifos, [](const Fifo& fifo) { return !fifo.in_flight.empty() && fifo.in_flight.front().copy != nullptr; });
  }

  Status drive() {
    size_t seen = 0;
    Liveness& liveness = transport.liveness();
    const Liveness::Wait waits(liveness);
    liveness.moved();
    for (int rounds = 0; left > 0;) {
      ASSIGN_OR_RETURN(const bool progress, turn(seen));
      if (progress) {
        liveness.moved();
        rounds = 0;
        continue;
      }
      if (options.cancelled != nullptr && options.cancelled()) return failed("interrupted");
      if (options.watch != nullptr && options.watch->overdue()) return transport.error();
      if (options.watchdog_s > 0 && liveness.idle_s() > options.watchdog_s && transport.idle_s() > options.watchdog_s) {
        return lost(missing());
      }
      if (copies_under_way())
        std::this_thread::sleep_for(copy_look);
      else
        transport.pause(rounds++);
    }
    return ok_status();
  }

  void join(bool stop_it) {
    if (!worker.joinable()) return;
    if (stop_it) {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    condition.notify_one();
    worker.join();
  }
};

DeviceRun::DeviceRun(const Program& program, const Dependencies& dependencies, int device, const KernelTable& kernels,
                     std::byte* arena, Transport& transport, const DeviceRunOptions& options)
    : state_(std::make_unique<State>(program, dependencies, device, kernels, arena, transport, options)) {}

DeviceRun::~DeviceRun() { state_->join(true); }

void DeviceRun::arm() {
  State& s = *state_;
  s.join(true);
  s.waits_for = s.waits_for_at_start;
  s.slot_waits = s.slot_waits_at_start;
  s.decided.clear();
  s.asked_again = false;
  s.times.assign(s.count, {});
  if (!s.options.clock.empty()) s.there.assign(s.count, 0);
  s.ready.clear();
  for (uint32_t i = 0; i < s.count; ++i) {
    if (s.transfers(i) && s.waits_for[i] == 0) s.ready.push_back(i);
  }
  s.left = s.count;
  s.overruns = 0;
  s.computed = 0;
  s.go = s.stop = s.armed = false;
  s.broken.reset();
  s.is_broken = false;
  if (s.options.online) {
    const OnlineDevice& online = *s.options.online;
    s.turns.emplace(s.device_number, *online.policy, online.table);
    for (size_t slot = 0; slot < s.slot_waits.size(); ++slot) {
      if (s.online_slots[slot].computes && s.slot_waits[slot] == 0) s.slot_is_ready(static_cast<int>(slot));
    }
  }
  s.worker = std::thread([&s] { s.compute(); });
  std::unique_lock lock(s.mutex);
  s.condition.wait(lock, [&s] { return s.armed; });
}

double DeviceRun::gauge_s() const { return state_->gauge_s; }

std::vector<pid_t> DeviceRun::threads() const {
  std::vector<pid_t> all = state_->workers.threads();
  if (const pid_t worker = state_->worker_thread.load(std::memory_order_relaxed); worker != 0) all.push_back(worker);
  return all;
}

std::string DeviceRun::computes() const {
  const uint32_t i = state_->current.load(std::memory_order_relaxed);
  return i == no_instance ? "device " + state_->device.name : state_->describe(i);
}

size_t DeviceRun::overruns() const { return state_->overruns; }

const std::vector<int>& DeviceRun::decided() const { return state_->decided; }

Result<std::vector<Interval>> DeviceRun::start(Clock::time_point zero) {
  State& s = *state_;
  CHECK(s.worker.joinable(), "arm() comes first");
  {
    const std::lock_guard lock(s.mutex);
    s.zero = zero;
    s.go = true;
  }
  s.condition.notify_one();
  s.transport.liveness().explain([&s](int peer) { return s.waits_in(peer); });
  s.flight.execution(true);
  const Status status = s.drive();
  s.transport.liveness().explain(nullptr);
  if (!status.ok()) {
    s.transport.abort(status.error());
    s.join(true);  // a kernel under way ends first; only then is the arena free
    for (Fifo& fifo : s.fifos) {
      fifo.in_flight.clear();
      fifo.first = no_instance;
    }
    return status.error();
  }
  s.join(false);
  s.flight.execution(false);
  return s.times;
}

}  // namespace nlsplit::inline exec
