// Trace: when each instruction ran. Both executors answer with one; only the times differ.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/units.h"
#include "program/program.h"

namespace nlsplit::inline program {

// Seconds since the start of the execution. compute: it ran. send: ready until the buffer was free again. recv: posted
// until delivered.
struct Span {
  int device = 0;
  int slot = 0;
  int instr = 0;
  double start = 0;
  double finish = 0;
};

struct Trace {
  uint64_t fingerprint = 0;       // of the Program
  std::vector<Span> spans;        // by device, slot, instruction
  std::vector<Bytes> peak_bytes;  // of each device's arena; of a real run what it allocated (rank 0 knows all)
  double makespan = 0;            // seconds
};

// Seconds by phase.
using PhaseTimes = std::array<double, static_cast<size_t>(Phase::step) + 1>;
bool is_training(const Program& program);  // it has gradients

// Sums over a trace, by device.
struct DeviceTimes {
  double compute = 0;      // seconds the compute stream was busy
  double communicate = 0;  // seconds with at least one transfer under way
  double wait = 0;         // makespan - compute
};
std::vector<DeviceTimes> device_times(const Program& program, const Trace& trace);

// Sum over all messages: from when both ends were ready and the previous message between the two had been delivered,
// until the message was delivered.
double message_seconds(const Program& program, const Trace& trace);

// Mean and longest time from a micro-batch's first instruction to its last.
struct Latency {
  double mean = 0;
  double max = 0;
};
Latency latency_of(const Program& program, const Trace& trace);

}  // namespace nlsplit::inline program
