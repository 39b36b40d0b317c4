// What `nlbench run` found, for people and as JSON.
#pragma once

#include <optional>
#include <string>

#include "exec/run.h"
#include "program/saved.h"
#include "tools/nlbench_check.h"

namespace nlsplit {

struct RunReport {
  const SavedProgram* saved = nullptr;
  const RunResult* result = nullptr;
  std::string transport;
  std::optional<Comparison> check;
};

std::string report_text(const RunReport& report);
// {"format": "nlsplit-run", "version": 1, "program", "fingerprint", "throughput_per_s", "makespans_s", "devices", …}
// …}
std::string report_json(const RunReport& report);

}  // namespace nlsplit
