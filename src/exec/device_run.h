// DeviceRun: one device's share of one execution of a Program.
//
// Two threads. The caller's owns the transport: it posts each recv as soon as its instance is free, starts each send
// when its data is written and the one before it on its FIFO is gone, and rests in between. A second one computes, slot
// by slot, in the order of the Program or in the one an online policy chooses, each instruction as soon as what it
// reads has arrived and what it overwrites has left. A Backend that runs ahead is given all at once between two waits
// for transfers, and waited for only where a transfer waits; where it has memory of its own, messages are copied beside
// the computing. So transfers and computing overlap wherever the Program lets them. What waits for what comes from
// dependencies() and from nowhere else.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "exec/backend.h"
#include "exec/flight_recorder.h"
#include "exec/transport.h"
#include "exec/work_watch.h"
#include "program/dependencies.h"
#include "program/turns.h"

namespace nlsplit::inline exec {

struct Interval {
  double start = 0, finish = 0;  // seconds since the start of this execution, which is the same moment on all devices
};

// The policy of a device in an online run, and its knowledge of the critical path.
struct OnlineDevice {
  const OnlinePolicy* policy = nullptr;
  std::vector<double> remaining_s = {};   // [slot]
  std::vector<ScheduledSlot> table = {};  // replay only
};

struct DeviceRunOptions {
  // Seconds in which no device of the run computes, sends or receives, after which the run is aborted with a message
  // about what is missing; 0: never.
  double watchdog_s = 10;
  bool (*cancelled)() = nullptr;  // becomes true when the user cancels; called often
  // Emulated compute: seconds of each computation of the Program (by desc); empty: none. Computations then end when
  // they would on that device: each begins, nominally, when the one before it nominally ended and its data are there,
  // and what waits for it goes on at its nominal end. Nominal ends, not measured ones, are added up, so errors do not
  // pile up.
  std::vector<double> clock = {};
  std::optional<OnlineDevice> online = {};  // none: slot by slot, in the order of the Program
  bool calibrates = false;                  // times the core that computes before executions; takes a millisecond
  FlightRecorder* recorder = nullptr;       // none: nothing is kept
  const WorkWatch* watch = nullptr;         // once it has found something overdue, the run has ended
  // Called for each computation and transfer (by the device's number of it) when it has ended and before anything that
  // waits for it begins, on the thread that ran it. Not called for computations of an asynchronous backend.
  std::function<void(uint32_t instance)> ended = nullptr;
};

class DeviceRun {
 public:
  // Everything is borrowed and must outlive this. Online the dependencies leave the order free.
  DeviceRun(const Program& program, const Dependencies& dependencies, int device, Backend& backend,
            Transport& transport, const DeviceRunOptions& options);
  ~DeviceRun();

  // Gets ready for an execution; then start() when all devices are ready. `zero`: the start of the execution. The
  // answer: when each of the device's instances ran, in their order. Error: the transport's, or the watchdog's; the run
  // is then aborted on all devices.
  void arm();
  Result<std::vector<Interval>> start(std::chrono::steady_clock::time_point zero);
  // Of the core that computes, when it was last armed (base/calibration.h); 0: options.calibrates is false.
  double calibration_s() const;

  // Any thread, while this lives: who computes, and what.
  std::vector<pid_t> threads() const;
  std::string computes() const;

  // Emulated: computations of the last execution after which this machine was later than it should.
  size_t overruns() const;

  // The slots that computed in the last execution, in the order in which they did.
  const std::vector<int>& decided() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace nlsplit::inline exec
