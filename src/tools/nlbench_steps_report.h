// What `nlbench run --steps N` prints and writes.
#pragma once

#include <optional>
#include <string>

#include "exec/run_session.h"
#include "program/saved.h"
#include "tools/nlbench_check.h"

namespace nlsplit::inline tools {

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
