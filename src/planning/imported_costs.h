// Times that another runtime's profiler took, as the costs of a device: `nlsim profile import`.
//
// A cost is kept by a computation's signature, as in every profile. What a computation costs is what the operators of
// the trace took that do its part of the network: the nodes between its operands and its result. So it does not matter
// which of them either side has fused.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/profile.h"
#include "planning/load.h"
#include "traces/match.h"

namespace nlsplit::inline planning {

struct ProfileImport {
  MatchOptions match;
  std::string device;            // whose level and cores count; "": the first one
  std::string machine;           // Profile::machine; "": the runtime
  bool scale = false;            // micro-batches outside the profiled batches: time in proportion to samples
  double most_unmatched = 0.05;  // of the time, and of the network's operations
};

struct UntimedNode {
  std::string label;  // "conv1, relu1"
  double share = 0;   // of the network's operations
};

// How the times at one size of micro-batches came about.
struct ImportedSize {
  int64_t samples = 1;
  std::vector<int64_t> from;  // batches of the trace: itself; two, with a line between them; one, in proportion
};

// The unsplit network at a batch that was profiled.
struct ImportCheck {
  int64_t batch = 1;
  int executions = 0, left_out = 0;
  double predicted_s = 0, measured_s = 0;  // with these costs; the median execution of the trace
};

struct ImportedCosts {
  Profile profile;
  Matched matched;
  std::string device;
  double without_computation = 0;    // share of the time: matched, but nlsplit's network has no such computation
  std::vector<UntimedNode> untimed;  // computations without an event: they cost nothing; the most operations first
  size_t nodes = 0;                  // computations of the network, with those
  size_t moves = 0;                  // signatures of changes of layout that only nlsplit has: they cost nothing
  std::vector<ImportedSize> sizes;
  std::vector<ImportCheck> checks;
};

// Errors: a scenario that trains or generates; no such device, or several unlike ones and none named; what match says;
// a size of micro-batches that was not profiled; too much that is not matched.
Result<ImportedCosts> import_costs(const Loaded& loaded, const std::vector<OperatorTrace>& traces,
                                   const ProfileImport& options);

}  // namespace nlsplit::inline planning
