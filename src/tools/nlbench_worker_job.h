// What rank 0 tells a worker to run (Remote::job): a Program or a session, whose parts then come from rank 0, or a
// survey, and the options on which all ranks must agree. No paths: a worker reads and writes no file for somebody else.
#pragma once

#include <cstdint>
#include <string>

#include "exec/run.h"
#include "exec/transport_kind.h"

namespace nlsplit::inline tools {

// run(), run_session(), run_survey(), follow_turns()
enum class WorkerTask : uint8_t { run, session, survey, turns };

struct WorkerJob {
  WorkerTask task = WorkerTask::run;
  bool agrees_on_failure = false;  // rank 0 asks all how it went even if it failed
  double patience_s = 0;           // while rank 0 plans, reads and writes; 0: for ever
  RunOptions options = {};
};

std::string to_string(const WorkerJob& job);
// What a transport's start is told of the workers.
Remote remote_of(Remote remote, const WorkerJob& job);
// Errors: no such job; numbers that cannot be.
Result<WorkerJob> parse_worker_job(const std::string& text);

}  // namespace nlsplit::inline tools
