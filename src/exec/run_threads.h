// run() and run_session() with all devices in this process, a pair of threads each: no mpirun. For tests, laptops,
// single devices and calibration.
#pragma once

#include "exec/run_session.h"
#include "exec/transport_threads.h"
#include "graph/weights.h"

namespace nlsplit::inline exec {

Result<RunResult> run_threads(const Program& program, const Job& job, const RunOptions& options,
                              MakeWorld make_world = make_thread_world);
Result<SessionResult> run_session_threads(const Session& session, const Job& job, const ChooseNext& choose,
                                          const RunOptions& options, MakeWorld make_world = make_thread_world);

// Contents out of a store; each is made when it is first asked for and kept. The store must outlive the answer.
ContentLookup contents_of(const WeightStore& store);

}  // namespace nlsplit::inline exec
