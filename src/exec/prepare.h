// Preparations before the first execution of a run, of a Program in repeats (exec/run.h) or of a session
// (exec/run_session.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exec/backend.h"
#include "exec/backends/workers.h"
#include "exec/collectives.h"
#include "exec/run.h"
#include "kernels/module/kernel_library.h"

namespace nlsplit::inline exec {

// What one rank's device computes on, with weights, states and inputs in host(). All ranks call it, with a Program that
// verify accepts. `pins`: of claim_cores(). Errors, the same on all ranks: of join_native_groups() and open_backend(),
// ranks with other kernels, contents or inputs that are missing or do not fit.
Result<std::unique_ptr<Backend>> prepare(const Program& program, const Job& job, Transport& transport,
                                         const RunOptions& options, std::vector<int> pins, Waiting& waiting);

// What prepare() placed, from host() to where the device computes. Errors, the same on all ranks: the device's.
Status upload_prepared(Backend& backend, Transport& transport, const Waiting& waiting);

// On rank 0; nothing on the others.
Result<RanOn> gather_ran_on(const Backend& own, Transport& transport, const Waiting& waiting);

// What ends a run whose computations or preparations are overdue. The transport must outlive it.
WorkWatch::Options watch_options(Transport& transport, const RunOptions& options);

// Error: the Program computes what there is no code for, or trains on a GPU.
Status check_runnable(const Program& program);

// Cores that no other run has, for as long as the answer lives. Rank 0 gives the run its number.
Result<ChosenCores> claim_cores(const Program& program, Transport& transport, const RunOptions& options,
                                const Waiting& waiting);

// Fills all but inputs, weights and states with NaN: for tests.
void poison(const DeviceProgram& device, std::byte* arena);

// An error that the other ranks do not expect: they would wait for ever, so the run ends.
Error give_up(Transport& transport, const std::string& message);

}  // namespace nlsplit::inline exec
