// What runs taught about a scenario's costs: by how much computing and messages really take longer than predicted. The
// file `nlbench validate --recalibrate` writes and the scenario's key `corrections` names.
//
//   {"format": "nlsplit-corrections", "version": 1, "computing": {"A": 1.08, "B": 1.05}, "messages": 1.04}
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost/cluster.h"
#include "cost/cost_table.h"

namespace nlsplit::inline cost {

struct Corrections {
  std::map<std::string, double> computing;  // by device: its computations take so many times as long
  double messages = 1;                      // and all measured messages
  friend bool operator==(const Corrections&, const Corrections&) = default;
};

std::string to_json(const Corrections& corrections);
// Errors: not such a file; a factor that is not above 0 and finite. They name `file`.
Result<Corrections> parse_corrections(const std::string& text, const std::string& file);

// costs: one a device of the cluster. Links that were not measured stay as the scenario gives them. Error: no such
// device.
Status apply(const Corrections& corrections, Cluster& cluster, std::vector<CostSourcePtr>& costs);

}  // namespace nlsplit::inline cost
