#include "exec/device_run.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "base/check.h"
#include "base/gauge.h"
#include "exec/workers.h"

namespace nlsplit {
namespace {

using Clock = std::chrono::steady_clock;

// One direction of traffic with one peer, in order; online that of one tag.
struct Fifo {
  struct InFlight {
    uint32_t instance;
    Transport::Request request;
  };
  int peer = -1;
  bool sends = false;
  std::deque<InFlight> in_flight;
  std::atomic<uint32_t> first{no_instance};  // of in_flight, for other threads

  void add(uint32_t instance, Transport::Request request) {
    in_flight.push_back({instance, request});
    if (in_flight.size() == 1) first.store(instance, std::memory_order_relaxed);
  }
  void remove_first() {
    in_flight.pop_front();
    first.store(in_flight.empty() ? no_instance : in_flight.front().instance, std::memory_order_relaxed);
  }
};

}  // namespace

struct DeviceRun::State {
  // Instances are counted from the device's first one here.
  const Program& program;
  const Dependencies& deps;
  const DeviceProgram& device;
  const KernelTable& kernels;
  std::byte* arena;
  Transport& transport;
  DeviceRunOptions options;

  int device_number;
  uint32_t begin, count;
  std::vector<uint32_t> computes;         // in order
  std::vector<uint32_t> computes_of;      // computes[computes_of[s] … computes_of[s + 1]): of slot s
  std::vector<uint32_t> successor_begin;  // successors[successor_begin[i] …]: who waits for the end of i
  std::vector<uint32_t> successors;
  std::vector<uint32_t> next_on_fifo;  // of a transfer; no_instance: it is the last
  std::vector<int>
      waits_for_at_start;            // how many ends (for a recv also: posts of the one before) an instance waits for
  std::vector<uint32_t> fifo_index;  // of a transfer
  std::vector<Fifo> fifos;

  // Online: how many ends a slot waits for. All that comes from outside, but if it keeps its place only slots.
  std::vector<int> slot_waits_at_start;
  std::vector<std::vector<int>> slots_after;  // who waits for the end of a slot

  std::vector<int> waits_for;        // computes': under `mutex`; transfers': the caller's thread alone
  std::vector<int> slot_waits;       // under `mutex`
  std::optional<DeviceTurns> turns;  // under `mutex`
  bool asked_again = false;          // under `mutex`: a slot has become ready since the policy was asked
  std::vector<uint32_t> ran;         // computes, in the order in which they ran: `computed` of them can be read
  std::vector<int> decided;          // slots, in the same; the worker alone
  std::vector<Interval> times;
  std::vector<uint32_t> ready;        // transfers to issue
  uint32_t left = 0;                  // instances that have not ended
  std::atomic<uint32_t> computed{0};  // how many of `ran` have ended

  mutable std::mutex mutex;
  std::condition_variable condition;  // a compute's inputs have come, or go, or stop
  bool go = false, stop = false, armed = false;
  double gauge_s = 0;
  Clock::time_point gauged = {};
  Clock::time_point zero;
  size_t overruns = 0;
  std::thread worker;
  Workers workers;  // who share its computations

  State(const Program& program, const Dependencies& deps, int d, const KernelTable& kernels, std::byte* arena,
        Transport& transport, const DeviceRunOptions& options)
      : program(program),
        deps(deps),
        device(program.devices[static_cast<size_t>(d)]),
        kernels(kernels),
        arena(arena),
        transport(transport),
        options(options),
        device_number(d),
        begin(deps.device_begin[static_cast<size_t>(d)]),
        count(deps.device_begin[static_cast<size_t>(d) + 1] - begin),
        workers(device.cores, choose_cores(program, d, transport.same_machine())) {
    index();
  }

  const Instr& instr(uint32_t i) const { return instr_of(program, deps.instances[begin + i]); }
  const Slot& slot(uint32_t i) const { return device.order[static_cast<size_t>(deps.instances[begin + i].slot)]; }
  std::string describe(uint32_t i) const { return describe_instance(program, deps.instances[begin + i]); }
  bool transfers(uint32_t i) const { return is_transfer(instr(i).opcode); }
  int slot_of(uint32_t i) const { return deps.instances[begin + i].slot; }
  double now() const { return std::chrono::duration<double>(Clock::now() - zero).count(); }

  // An edge counts only if the streams do not already see to it. Calls visit(from, to) for those that count.
  template <class Visit>
  void visit_edges(const Visit& visit) const {
    for (uint32_t to = 0; to < count; ++to) {
      const bool to_transfer = transfers(to);
      for (const Edge& edge : deps.into(begin + to)) {
        const uint32_t from = edge.from - begin;
        if (edge.kind != EdgeKind::stream && (to_transfer || transfers(from))) visit(from, to);
      }
    }
  }

  // An end that a slot as a whole waits for, not the computation alone.
  bool holds_slot(uint32_t to) const {
    return options.online && !transfers(to) && !options.online->slots[static_cast<size_t>(slot_of(to))].fixed;
  }

  void index_fifos() {
    std::map<std::tuple<int, bool, int>, uint32_t> known;
    fifo_index.assign(count, no_instance);
    for (uint32_t i = 0; i < count; ++i) {
      if (!transfers(i)) continue;
      const Instr& what = instr(i);
      const auto number = static_cast<uint32_t>(known.size());
      fifo_index[i] = known.try_emplace({what.peer, what.opcode == Opcode::send, options.online ? what.tag : 0}, number)
                          .first->second;
    }
    fifos = std::vector<Fifo>(known.size());
    for (const auto& [key, number] : known) {
      fifos[number].peer = std::get<0>(key);
      fifos[number].sends = std::get<1>(key);
    }
  }

  void index_slots() {
    const size_t slots = device.order.size();
    computes_of.assign(slots + 1, 0);
    for (const uint32_t i : computes) ++computes_of[static_cast<size_t>(slot_of(i)) + 1];
    for (size_t s = 0; s < slots; ++s) computes_of[s + 1] += computes_of[s];
    ran.assign(computes.size(), 0);
    if (!options.online) return;
    slots_after.resize(slots);
    for (size_t s = 0; s < slots; ++s) {
      for (const int before : options.online->slots[s].after) {
        slots_after[static_cast<size_t>(before)].push_back(static_cast<int>(s));
        ++slot_waits_at_start[s];
      }
    }
  }

  void index() {
    waits_for_at_start.assign(count, 0);
    slot_waits_at_start.assign(device.order.size(), 0);
    next_on_fifo.assign(count, no_instance);
    successor_begin.assign(count + 1, 0);
    visit_edges([&](uint32_t from, uint32_t to) {
      ++successor_begin[from + 1];
      ++(holds_slot(to) ? slot_waits_at_start[static_cast<size_t>(slot_of(to))] : waits_for_at_start[to]);
    });
    for (uint32_t i = 0; i < count; ++i) successor_begin[i + 1] += successor_begin[i];
    successors.resize(successor_begin[count]);
    std::vector<uint32_t> at(successor_begin.begin(), successor_begin.end() - 1);
    visit_edges([&](uint32_t from, uint32_t to) { successors[at[from]++] = to; });
    for (uint32_t i = 0; i < count; ++i) {
      if (!transfers(i)) {
        computes.push_back(i);
        continue;
      }
      for (const Edge& edge : deps.into(begin + i)) {
        if (edge.kind != EdgeKind::stream) continue;
        next_on_fifo[edge.from - begin] = i;
        ++waits_for_at_start[i];
      }
    }
    index_fifos();
    index_slots();
  }

  void release(uint32_t to) {
    if (transfers(to)) {
      if (--waits_for[to] == 0) ready.push_back(to);
      return;
    }
    bool met;
    {
      const std::lock_guard lock(mutex);
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
    for (uint32_t s = successor_begin[i]; s < successor_begin[i + 1]; ++s) release(successors[s]);
  }

  // Under `mutex`.
  void slot_is_ready(int s) {
    const RelaxedSlot& slot = options.online->slots[static_cast<size_t>(s)];
    turns->ready(s, slot.chosen, {slot.slot, go ? now() : 0, options.online->remaining_s[static_cast<size_t>(s)]});
    asked_again = true;
  }

  // The worker: all computes, slot by slot.
  void compute() {
    workers.pin_caller();
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
    size_t k = 0;
    for (size_t turn = 0; turn < device.order.size() && k < computes.size(); ++turn) {
      const std::optional<int> next = next_slot(static_cast<int>(turn), nominal);
      if (!next) return;
      const auto s = static_cast<size_t>(*next);
      for (uint32_t c = computes_of[s]; c < computes_of[s + 1]; ++c, ++k) {
        const bool ends_slot = options.online && c + 1 == computes_of[s + 1];
        if (!run_one(computes[c], k, ends_slot, nominal)) return;
      }
      if (options.online) end_slot(s);
    }
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

  // The k-th computation to run, once what it needs is there. false: stop.
  bool run_one(uint32_t i, size_t k, bool ends_slot, double& nominal) {
    {
      std::unique_lock lock(mutex);
      if (waits_for[i] != 0) {
        condition.wait(lock, [&] { return stop || waits_for[i] == 0; });
        nominal = std::max(nominal, now());
      }
      if (stop) return false;
    }
    const bool awaited = successor_begin[i] != successor_begin[i + 1] || k + 1 == computes.size();
    transport.liveness().computing(true);
    times[i].start = now();
    execute(program, device, kernels, slot(i), instr(i), arena, workers.crew());
    times[i].finish = now();
    // Whoever is asked what comes next is asked by the device's clock.
    if (!options.clock.empty()) nominal = keep_time(i, nominal, awaited || ends_slot);
    transport.liveness().computing(false);
    ran[k] = i;
    computed.store(static_cast<uint32_t>(k + 1), std::memory_order_release);
    if (awaited) transport.wake();
    return true;
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

  void issue(uint32_t i) {
    const Instr& transfer = instr(i);
    const bool sends = transfer.opcode == Opcode::send;
    const Operand& operand = sends ? transfer.reads[0] : transfer.writes[0];
    const std::span<std::byte> data(arena + address_of(device, slot(i), operand),
                                    static_cast<size_t>(bytes_of(device, operand).value()));
    times[i].start = now();
    const Transport::Request request =
        sends ? transport.isend(transfer.peer, transfer.tag, data) : transport.irecv(transfer.peer, transfer.tag, data);
    fifos[fifo_index[i]].add(i, request);
    if (!sends && next_on_fifo[i] != no_instance) release(next_on_fifo[i]);  // receives are posted ahead
  }

  // One turn: what has ended, what can begin. Says whether anything happened.
  Result<bool> turn(size_t& seen) {
    bool progress = false;
    for (const uint32_t done = computed.load(std::memory_order_acquire); seen < done; ++seen) {
      const uint32_t i = ran[seen];
      end(i);
      progress = progress || left == 0 || successor_begin[i] != successor_begin[i + 1];  // somebody waited for it
    }
    while (!ready.empty()) {
      const uint32_t i = ready.back();
      ready.pop_back();
      issue(i);
      progress = true;
    }
    for (Fifo& fifo : fifos) {
      while (!fifo.in_flight.empty()) {  // messages of a FIFO end in order: only the first is asked
        const auto [i, request] = fifo.in_flight.front();
        const Transport::State state = transport.test(request);
        if (state == Transport::State::pending) break;
        if (state == Transport::State::failed) return transport.error();
        times[i].finish = now();
        fifo.remove_first();
        if (instr(i).opcode == Opcode::send && next_on_fifo[i] != no_instance) release(next_on_fifo[i]);
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
        if (i != no_instance && (any || fifos[f].peer == peer)) return describe(i);
      }
    }
    const uint32_t done = computed.load(std::memory_order_acquire);
    if (done >= computes.size()) return fmt::format("device {}: the end of a repeat", device.name);
    return options.online ? fmt::format("device {}: {}", device.name, next_work(done)) : describe(computes[done]);
  }

  Status drive() {
    size_t seen = 0;
    Liveness& liveness = transport.liveness();
    liveness.moved();
    for (int rounds = 0; left > 0;) {
      ASSIGN_OR_RETURN(const bool progress, turn(seen));
      if (progress) {
        liveness.moved();
        rounds = 0;
        continue;
      }
      if (options.cancelled != nullptr && options.cancelled()) return failed("interrupted");
      if (options.watchdog_s > 0 && liveness.idle_s() > options.watchdog_s && transport.idle_s() > options.watchdog_s) {
        return lost(missing());
      }
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
  s.ready.clear();
  for (uint32_t i = 0; i < s.count; ++i) {
    if (s.transfers(i) && s.waits_for[i] == 0) s.ready.push_back(i);
  }
  s.left = s.count;
  s.overruns = 0;
  s.computed = 0;
  s.go = s.stop = s.armed = false;
  if (s.options.online) {
    const OnlineDevice& online = *s.options.online;
    s.turns.emplace(s.device_number, *online.policy, online.table);
    for (size_t slot = 0; slot < s.slot_waits.size(); ++slot) {
      if (online.slots[slot].computes && s.slot_waits[slot] == 0) s.slot_is_ready(static_cast<int>(slot));
    }
  }
  s.worker = std::thread([&s] { s.compute(); });
  std::unique_lock lock(s.mutex);
  s.condition.wait(lock, [&s] { return s.armed; });
}

double DeviceRun::gauge_s() const { return state_->gauge_s; }

size_t DeviceRun::overruns() const { return state_->overruns; }

const std::vector<int>& DeviceRun::decided() const { return state_->decided; }

Result<std::vector<Interval>> DeviceRun::start() {
  State& s = *state_;
  CHECK(s.worker.joinable(), "arm() comes first");
  {
    const std::lock_guard lock(s.mutex);
    s.zero = Clock::now();
    s.go = true;
  }
  s.condition.notify_one();
  s.transport.liveness().explain([&s](int peer) { return s.waits_in(peer); });
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
  return s.times;
}

}  // namespace nlsplit
