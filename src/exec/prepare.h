// What every run needs before its first execution, whether it runs a Program again and again (exec/run.h) or a session
// (exec/run_session.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "exec/arena.h"
#include "exec/collectives.h"
#include "exec/kernels/kernel_library.h"
#include "exec/run.h"
#include "exec/workers.h"

namespace nlsplit::inline exec {

struct LoadedKernels {
  std::optional<KernelLibrary> library;  // none: the device computes nothing that needs one
  KernelTable table;
};

// Of one rank: the code its computations need, and its memory with weights, states and inputs in it.
struct Prepared {
  LoadedKernels kernels;
  Arena arena;
};

// All ranks call it, with a Program that verify accepts. Errors, the same on all ranks: no memory, no code for this
// CPU, ranks with other kernels, contents or inputs that are missing or do not fit.
Result<Prepared> prepare(const Program& program, const Job& job, Transport& transport, const RunOptions& options,
                         Waiting& waiting);

// What ends a run whose computations or preparations are overdue. The transport must outlive it.
WorkWatch::Options watch_options(Transport& transport, const RunOptions& options);

// Error: the Program computes what there is no code for.
Status check_runnable(const Program& program);

// Cores that no other run has, for as long as the answer lives. Rank 0 gives the run its number.
Result<ChosenCores> claim_cores(const Program& program, Transport& transport, const RunOptions& options,
                                const Waiting& waiting);

// The device's clock, of computations of the Program (by desc): rank 0 knows all clocks; empty: it has none.
Result<std::vector<double>> own_clock(const Program& program, const Clocks& clocks, Transport& transport,
                                      const Waiting& waiting);

// Fills all but inputs, weights and states with NaN: for tests.
void poison(const DeviceProgram& device, std::byte* arena);

// What no rank expects: the others would wait for ever, so the run ends.
Error give_up(Transport& transport, const std::string& message);

}  // namespace nlsplit::inline exec
