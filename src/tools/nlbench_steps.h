// `nlbench run --steps N`: a session of one Program, the training step, executed so many times. Each step begins with
// the weights and states that the one before left, without a barrier between them.
#pragma once

#include <optional>
#include <string>

#include "exec/run_session.h"
#include "program/saved.h"
#include "tools/nlbench_check.h"

namespace nlsplit::inline tools {

Session session_of_steps(const Program& step);
Job job_of_steps(Job job);  // the step's, with the names that its inputs have in the session

struct StepsReport {
  const SavedProgram* saved = nullptr;
  const SessionResult* result = nullptr;
  std::string transport;
  std::optional<Comparison> check;
};
std::string report_text(const StepsReport& report);
// {"format": "nlsplit-run", "version": 1, "program", "fingerprint", "steps", "elapsed_s", "throughput_per_s", "losses",
// …}
std::string report_json(const StepsReport& report);

}  // namespace nlsplit::inline tools
