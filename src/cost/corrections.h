// Corrections of a scenario's costs, learned from runs: how much longer than predicted computing and messages take. The
// file that `nlbench validate --recalibrate` writes and the scenario's key `corrections` names.
//
//   {"format": "nlsplit-corrections", "version": 2, "computing": {"A": 1.08, "B": 1.05}, "messages": 1.04,
//    "spreads": {"computing": {"A": 0.03, "B": 0.02}, "messages": 0.05, "plans": 0.02}}
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost/cluster.h"
#include "cost/cost_table.h"

namespace nlsplit::inline cost {

// How far the runs were off from predictions with these factors: half the distance between the quartiles, relative to
// the median. None, or no such device: too few runs to tell.
struct CorrectionSpreads {
  std::map<std::string, double> computing;  // by device
  std::optional<double> messages;
  std::optional<double> plans;  // of the whole plan, over plans that the factors were not learned from
  friend bool operator==(const CorrectionSpreads&, const CorrectionSpreads&) = default;
};

struct Corrections {
  std::map<std::string, double> computing;  // by device: its computations take so many times as long
  double messages = 1;                      // and all measured messages
  CorrectionSpreads spreads = {};
  friend bool operator==(const Corrections&, const Corrections&) = default;
};

std::string to_json(const Corrections& corrections);
// Version 1 has no spreads. Errors: not such a file; a factor that is not above 0 and finite; a spread that is negative
// or not finite. They name `file`.
Result<Corrections> parse_corrections(const std::string& text, const std::string& file);

// costs: one a device of the cluster. Links that were not measured stay as the scenario gives them. Error: no such
// device.
Status apply(const Corrections& corrections, Cluster& cluster, std::vector<CostSourcePtr>& costs);

}  // namespace nlsplit::inline cost
