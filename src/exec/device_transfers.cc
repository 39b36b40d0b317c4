// The thread of a DeviceRun that owns the transport.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "exec/device_state.h"

namespace nlsplit::inline exec {
namespace {

// How often a copy to or from a GPU is polled: PCIe 4 moves about 0.5 MB in this time.
constexpr std::chrono::microseconds copy_look(20);

}  // namespace

void DeviceRun::State::Fifo::add(const InFlight& transfer) {
  const uint32_t instance = transfer.instance;
  in_flight.push_back(transfer);
  if (in_flight.size() == 1) first.store(instance, std::memory_order_relaxed);
}

void DeviceRun::State::Fifo::remove_first() {
  in_flight.pop_front();
  first.store(in_flight.empty() ? no_instance : in_flight.front().instance, std::memory_order_relaxed);
}

const Operand& DeviceRun::State::moved_by(uint32_t transfer) const {
  const Instr& what = instr(transfer);
  return what.opcode == Opcode::send ? what.reads[0] : what.writes[0];
}

std::span<std::byte> DeviceRun::State::message_of(uint32_t transfer) const {
  return backend.message(slot(transfer), moved_by(transfer), instr(transfer).peer);
}

// `at`: when what it waited for ended.
void DeviceRun::State::release(uint32_t to, double at) {
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

void DeviceRun::State::end(uint32_t i) {
  --left;
  for (uint32_t s = successor_begin[i]; s < successor_begin[i + 1]; ++s) release(successors[s], times[i].finish);
}

void DeviceRun::State::begin_native(uint32_t i, Fifo::InFlight& under_way) {
  const Collective& collective = native(i);
  const NativeBytes& bytes = *collective.native;
  constexpr int all = -1;
  under_way.request = transport.collectives()->begin(collective, type_of(device, bytes.value).dtype,
                                                     backend.message(slot(i), bytes.value, all),
                                                     backend.message(slot(i), bytes.result, all));
}

// The times of the instructions that a native collective stands for: of its messages its own, of its sums none.
void DeviceRun::State::end_covered(uint32_t i) {
  for (uint32_t part = i + 1; part < count && slot_of(part) == slot_of(i); ++part) {
    if (!is_native(part) || deps.native[begin + part] != begin + i) continue;
    times[part] = {is_transfer(instr(part).opcode) ? times[i].start : times[i].finish, times[i].finish};
  }
}

Status DeviceRun::State::issue(uint32_t i) {
  const Instr& transfer = instr(i);
  const bool native = is_native(i), sends = !native && transfer.opcode == Opcode::send;
  Fifo::InFlight under_way{i, {}, Copy::none, Clock::now()};
  times[i].start = since_zero(under_way.posted);
  flight.posts(under_way.posted, i);
  if (sends) {
    ASSIGN_OR_RETURN(under_way.copy, backend.begin_copy(slot(i), moved_by(i), transfer.peer, Direction::out));
  }
  if (native)
    begin_native(i, under_way);
  else if (!sends)
    under_way.request = transport.irecv(transfer.peer, transfer.tag, message_of(i));
  else if (under_way.copy == Copy::none)
    under_way.request = transport.isend(transfer.peer, transfer.tag, message_of(i));
  fifos[fifo_index[i]].add(under_way);
  if (fifos[fifo_index[i]].in_flight.size() == 1) flight.first_of(fifo_index[i], i, under_way.posted);
  if (!sends && next_on_fifo[i] != no_instance) release(next_on_fifo[i], times[i].start);  // receives are posted ahead
  return ok_status();
}

// Whether the first transfer of a FIFO has ended. Where messages are copied, a send's copy is followed by its message,
// a recv's message by its copy.
Result<bool> DeviceRun::State::has_ended(Fifo::InFlight& first) {
  const Instr& transfer = instr(first.instance);
  const bool native = is_native(first.instance), sends = !native && transfer.opcode == Opcode::send;
  if (first.copy != Copy::none) {
    ASSIGN_OR_RETURN(const bool copied, backend.has_ended(first.copy));
    if (!copied) return false;
    first.copy = Copy::none;
    if (!sends) return true;
    first.request = transport.isend(transfer.peer, transfer.tag, message_of(first.instance));
  }
  switch (transport.test(first.request)) {
    case Transport::State::pending:
      return false;
    case Transport::State::failed:
      return transport.error();
    case Transport::State::done:
      break;
  }
  if (sends || native) return true;
  ASSIGN_OR_RETURN(first.copy,
                   backend.begin_copy(slot(first.instance), moved_by(first.instance), transfer.peer, Direction::in));
  return first.copy == Copy::none;
}

// One turn: what has ended, what can begin. Says whether anything happened.
Result<bool> DeviceRun::State::turn(size_t& seen) {
  bool progress = false;
  if (is_broken.load(std::memory_order_acquire)) {
    const std::lock_guard lock(mutex);
    return *broken;
  }
  for (const uint32_t done = computed.load(std::memory_order_acquire); seen < done; ++seen) {
    const uint32_t i = ran[seen];
    end(i);
    progress = progress || left == 0 || is_awaited(i);  // an instance waited for it
  }
  while (!ready.empty()) {
    const uint32_t i = ready.back();
    ready.pop_back();
    RETURN_IF_ERROR(issue(i));
    progress = true;
  }
  for (Fifo& fifo : fifos) {
    while (!fifo.in_flight.empty()) {  // messages of a FIFO end in order: only the first is polled
      const uint32_t i = fifo.in_flight.front().instance;
      ASSIGN_OR_RETURN(const bool ended, has_ended(fifo.in_flight.front()));
      if (!ended) break;
      const Clock::time_point at = Clock::now();
      times[i].finish = since_zero(at);
      fifo.remove_first();
      flight.completes(at, i);
      if (options.ended) options.ended(i);
      const bool more = !fifo.in_flight.empty();
      flight.first_of(fifo_index[i], fifo.first, more ? fifo.in_flight.front().posted : at);
      if (is_native(i)) end_covered(i);
      if (!is_native(i) && instr(i).opcode == Opcode::send && next_on_fifo[i] != no_instance)
        release(next_on_fifo[i], times[i].finish);
      end(i);
      progress = true;
    }
  }
  return progress;
}

// For the watchdog: who waits for what.
std::string DeviceRun::State::missing() {
  std::string text =
      fmt::format("device {}: nothing happened for {} s, and no device computes", device.name, options.watchdog_s);
  const uint32_t done = computed.load(std::memory_order_acquire);
  if (done < computes.size()) text += "\n  " + next_work(done);
  for (const Fifo& fifo : fifos) {
    if (fifo.in_flight.empty()) continue;
    const uint32_t i = fifo.in_flight.front().instance;
    const std::string_view not_done = is_native(i)                      ? "has not ended   "
                                      : instr(i).opcode == Opcode::send ? "has not finished sending"
                                                                        : "has not received";
    text += fmt::format("\n  {} {}", not_done, describe(i));
  }
  if (const std::string under_way = transport.under_way(); !under_way.empty()) text += "\n  " + under_way;
  return text;
}

// What the worker does not come to.
std::string DeviceRun::State::next_work(uint32_t done) const {
  if (!options.online) return fmt::format("waits to run   {}", describe(computes[done]));
  const std::lock_guard lock(mutex);
  const std::string ready_slots = turns->waiting();
  if (ready_slots.empty()) return fmt::format("online policy {}: no slot is ready", turns->policy());
  return fmt::format("online policy {} chooses nothing: it {}", turns->policy(), ready_slots);
}

// For others while this runs: the transfer with `peer` that is under way, else any, else the next computation.
std::string DeviceRun::State::waits_in(int peer) const {
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
bool DeviceRun::State::copies_under_way() const {
  return std::ranges::any_of(
      fifos, [](const Fifo& fifo) { return !fifo.in_flight.empty() && fifo.in_flight.front().copy != Copy::none; });
}

Status DeviceRun::State::drive() {
  size_t seen = 0;
  Liveness& liveness = transport.liveness();
  const Liveness::Wait waits(liveness);
  liveness.moved();
  // First what can be sent and received at once: a thread that computes on the same core leaves it for nobody who is
  // awake, until the kernel's next tick.
  RETURN_IF_ERROR(turn(seen));
  {
    const std::lock_guard lock(mutex);
    go = true;
  }
  condition.notify_one();
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

// Until the worker rests.
void DeviceRun::State::settle(bool stop_it) {
  std::unique_lock lock(mutex);
  if (stop_it && go) {
    stop = true;
    stopping = true;
    condition.notify_one();
  }
  condition.wait(lock, [this] { return !go && !calibrating; });
}

}  // namespace nlsplit::inline exec
