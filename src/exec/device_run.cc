#include "exec/device_run.h"

#include "base/check.h"
#include "exec/device_state.h"

namespace nlsplit::inline exec {

DeviceRun::State::State(const Program& program, const Dependencies& deps, int d, Backend& backend, Transport& transport,
                        const DeviceRunOptions& options)
    : DeviceIndex(program, deps, d),
      backend(backend),
      transport(transport),
      options(options),
      fifos(fifo_peers.size()),
      ran(computes.size(), 0),
      flight(*this, options.recorder) {}

DeviceRun::DeviceRun(const Program& program, const Dependencies& dependencies, int device, Backend& backend,
                     Transport& transport, const DeviceRunOptions& options)
    : state_(std::make_unique<State>(program, dependencies, device, backend, transport, options)) {}

DeviceRun::~DeviceRun() {
  State& s = *state_;
  if (!s.worker.joinable()) return;
  s.settle(true);
  {
    const std::lock_guard lock(s.mutex);
    s.quit = true;
  }
  s.condition.notify_one();
  s.worker.join();
}

void DeviceRun::arm() {
  State& s = *state_;
  s.settle(true);
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
  s.left = s.ends;
  s.overruns = 0;
  s.computed = 0;
  s.stop = false;
  s.stopping = false;
  s.broken.reset();
  s.is_broken = false;
  if (s.options.online) {
    const OnlineDevice& online = *s.options.online;
    s.turns.emplace(s.device_number, *online.policy, online.table);
    for (size_t slot = 0; slot < s.slot_waits.size(); ++slot) {
      if (s.online_slots[slot].computes && s.slot_waits[slot] == 0) s.slot_is_ready(static_cast<int>(slot));
    }
  }
  if (!s.worker.joinable()) s.worker = std::thread([&s] { s.work(); });
  if (!s.options.calibrates) return;
  std::unique_lock lock(s.mutex);
  s.calibrating = true;
  s.condition.notify_one();
  s.condition.wait(lock, [&s] { return !s.calibrating; });
}

double DeviceRun::calibration_s() const { return state_->calibration_s; }

std::vector<pid_t> DeviceRun::threads() const {
  std::vector<pid_t> all = state_->backend.threads();
  if (const pid_t worker = state_->worker_thread.load(std::memory_order_relaxed); worker != 0) all.push_back(worker);
  return all;
}

std::string DeviceRun::computes() const {
  const uint32_t i = state_->current.load(std::memory_order_relaxed);
  return i == no_instance ? "device " + state_->device.name : state_->describe(i);
}

size_t DeviceRun::overruns() const { return state_->overruns; }

const std::vector<int>& DeviceRun::decided() const { return state_->decided; }

Result<std::vector<Interval>> DeviceRun::start(std::chrono::steady_clock::time_point zero) {
  State& s = *state_;
  CHECK(s.worker.joinable() && s.left == s.ends, "arm() comes first");
  s.zero = zero;
  s.transport.liveness().explain([&s](int peer) { return s.waits_in(peer); });
  s.flight.execution(true);
  const Status status = s.drive();
  s.transport.liveness().explain(nullptr);
  if (!status.ok()) {
    s.transport.abort(status.error());
    s.settle(true);  // a kernel under way ends first; only then is the arena free
    for (State::Fifo& fifo : s.fifos) {
      fifo.in_flight.clear();
      fifo.first = no_instance;
    }
    return status.error();
  }
  s.settle(false);
  s.flight.execution(false);
  return s.times;
}

}  // namespace nlsplit::inline exec
