// What `nlbench run` found, for people and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "exec/run.h"
#include "program/saved.h"
#include "tools/nlbench_check.h"

namespace nlsplit::inline tools {

struct RunReport {
  const SavedProgram* saved = nullptr;
  const RunResult* result = nullptr;
  std::string transport;
  std::optional<Comparison> check;
};

// Of a run that did not end well: the repeats that did, and why there are no more. JSON: as below, without what needs
// the devices' times, and with "incomplete": why.
struct IncompleteRun {
  const Program* program = nullptr;
  std::vector<double> makespans_s;  // at least one
  std::string transport, why;
};
std::string report_text(const IncompleteRun& run);
std::string report_json(const IncompleteRun& run);

// "resnet50 [all@A] · batch 8 in 4 micro-batches · 1 device (threads)"
std::string headline(const Program& program, const std::string& transport);
nlohmann::json check_json(const Comparison& check);

std::string report_text(const RunReport& report);
// {"format": "nlsplit-run", "version": 1, "program", "fingerprint", "throughput_per_s", "makespans_s", "devices", …}
std::string report_json(const RunReport& report);

}  // namespace nlsplit::inline tools
