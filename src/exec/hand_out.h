// Distributes a Program: rank 0 has the whole and verifies it, sends the list of devices to all ranks, and sends each
// other rank its part (program/part.h), which that rank verifies again as far as its own memory is concerned. The size
// of what a rank receives depends on its own work, plus a line for each other device.
//
//   ASSIGN_OR_RETURN(const Task task, hand_out(whole, job, transport, options, waiting));    // whole: on rank 0
//   task.program().devices[rank]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "exec/collectives.h"
#include "exec/run.h"
#include "program/dependencies.h"
#include "program/session.h"

namespace nlsplit::inline exec {

struct Task {
  const Program* whole = nullptr;    // on rank 0
  std::optional<Program> part = {};  // on the others
  uint64_t fingerprint = 0;          // of the whole
  Dependencies dependencies = {};    // of the whole, or of the part's device
  std::vector<double> clock = {};    // of this rank's device: DeviceRunOptions::clock
  double longest_computation_s = 0;  // that this device is expected to have; 0: not known

  const Program& program() const { return whole != nullptr ? *whole : *part; }
};

// All ranks call it; `whole` is null on all but rank 0. Errors, the same on all ranks: too many or too few ranks, a
// Program that verify rejects or that cannot be run, a job that does not fit, ranks with different options.
Result<Task> hand_out(const Program* whole, const Job& job, Transport& transport, const RunOptions& options,
                      const Waiting& waiting);

// The same of a session: every rank has its part, rank 0 too.
struct SessionTask {
  Session part;
  Program joined;                  // on rank 0 of the whole, else of the part: equal as far as the own device goes
  std::vector<double> clock = {};  // of this rank's device, by computation of the joined part
};
Result<SessionTask> hand_out(const Session* whole, const Job& job, Transport& transport, const Waiting& waiting);

}  // namespace nlsplit::inline exec
