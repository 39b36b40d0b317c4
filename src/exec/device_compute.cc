// The thread of a DeviceRun that computes.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/calibration.h"
#include "exec/backends/workers.h"
#include "exec/device_state.h"

namespace nlsplit::inline exec {

DeviceRun::State::Clock::time_point DeviceRun::State::note(FlightEvent event, uint32_t i) {
  const Clock::time_point at = Clock::now();
  flight.computes(at, event, i);
  return at;
}

// One execution after the other.
void DeviceRun::State::work() {
  backend.attach();
  worker_thread.store(::gettid(), std::memory_order_relaxed);
  ::prctl(PR_SET_NAME, "nls-compute");  // for top -H
  ::prctl(PR_SET_TIMERSLACK, 1UL);      // of this thread: sleeps of emulated compute end in time
  let_messages_go_first();
  std::unique_lock lock(mutex);
  while (true) {
    condition.wait(lock, [this] { return calibrating || go || quit; });
    if (quit) return;
    const bool asked_to_compute = go;
    lock.unlock();
    if (asked_to_compute)
      compute();
    else
      calibrate();
    lock.lock();
    (asked_to_compute ? go : calibrating) = false;
    condition.notify_one();
  }
}

// All computes, slot by slot.
void DeviceRun::State::compute() {
  double nominal = 0;                    // when the computation before ended, as emulated
  transport.liveness().computing(true);  // a device may hang in any call
  if (const Status status = backend.begin(); !status.ok()) return give_up(status.error());
  transport.liveness().computing(false);
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
std::optional<int> DeviceRun::State::next_slot(int turn, double& nominal) {
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

void DeviceRun::State::end_slot(size_t s) {
  const std::lock_guard lock(mutex);
  for (const int later : slots_after[s]) {
    if (--slot_waits[static_cast<size_t>(later)] == 0) slot_is_ready(later);
  }
}

void DeviceRun::State::slot_is_ready(int s) {
  const FreeSlot& slot = online_slots[static_cast<size_t>(s)];
  turns->ready(s, slot.chosen, {slot.slot, go ? now() : 0, options.online->remaining_s[static_cast<size_t>(s)]});
  asked_again = true;
}

// How far a backend that runs ahead is given computations at once, from the c-th on: none but the first waits for a
// transfer, none but the last is awaited by one. Emulated, each is looked at by itself.
uint32_t DeviceRun::State::run_end(uint32_t c, uint32_t slot_end) const {
  if (!backend.runs_ahead() || !options.clock.empty()) return c + 1;
  while (c + 1 < slot_end && !is_awaited(computes[c]) && waits_for_at_start[computes[c + 1]] == 0) ++c;
  return c + 1;
}

// Computations, the first of them the k-th to run, once what it needs is there. false: stop.
bool DeviceRun::State::run_some(std::span<const uint32_t> some, size_t k, bool ends_slot, double& nominal) {
  const uint32_t i = some.front();
  if (waits_for_at_start[i] == 0 && !holds_slot(i)) {  // and so for no transfer: the common case, without a lock
    if (stopping.load(std::memory_order_relaxed)) return false;
  } else {
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
  const bool settle = !backend.runs_ahead() || awaited || ends_slot || !options.clock.empty();
  current.store(i, std::memory_order_relaxed);
  transport.liveness().computing(true);
  if (const Status status = give_to_backend(some, settle); !status.ok()) {
    give_up(status.error());
    return false;
  }
  // The policy gets the time of the device's clock.
  if (!options.clock.empty()) nominal = keep_time(i, nominal, awaited || ends_slot);
  transport.liveness().computing(false);  // a GPU may; but the next one may wait for a message, and that can hang
  std::ranges::copy(some, ran.begin() + static_cast<std::ptrdiff_t>(k));
  if (!settle) return true;
  computed.store(static_cast<uint32_t>(done), std::memory_order_release);
  if (awaited) transport.wake();
  return true;
}

// `settle`: and waits for their end, and so for all that it was given before.
Status DeviceRun::State::give_to_backend(std::span<const uint32_t> some, bool settle) {
  steps.clear();
  for (const uint32_t i : some) steps.push_back({i, deps.instances[begin + i].instr});
  Status begun = backend.execute(slot(some.front()), steps, note(FlightEvent::begins, some.front()));
  if (!begun.ok()) {
    if (backend.runs_ahead()) return begun;
    Error why = begun.error();  // it was given this one alone
    why.message = fmt::format("{}: {}", describe(some.front()), why.message);
    return why;
  }
  if (!settle) return ok_status();
  ASSIGN_OR_RETURN(const std::span<const Ran> all, backend.finish());
  for (const Ran& one : all) {
    times[one.tag] = {since_zero(one.start), since_zero(one.finish)};
    if (options.ended && !backend.runs_ahead()) options.ended(one.tag);
  }
  flight.computes(all.back().finish, FlightEvent::ends, some.back());
  return ok_status();
}

void DeviceRun::State::give_up(const Error& why) {
  transport.liveness().computing(false);
  {
    const std::lock_guard lock(mutex);
    broken = why;
  }
  is_broken.store(true, std::memory_order_release);
  transport.wake();
}

// Not before each of many short repeats.
void DeviceRun::State::calibrate() {
  constexpr std::chrono::milliseconds fresh(20);
  if (calibration_s > 0 && Clock::now() - calibrated_at < fresh) return;
  calibration_s = time_calibration_loop();
  calibrated_at = Clock::now();
}

// Emulated compute: when computation i ends. Only what others wait for is held back until then.
double DeviceRun::State::keep_time(uint32_t i, double begin, bool awaited) {
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

}  // namespace nlsplit::inline exec
