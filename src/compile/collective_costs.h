// How long a collective takes, and which algorithm is chosen for it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "compile/collective_rounds.h"
#include "cost/cluster.h"
#include "cost/cost_table.h"

namespace nlsplit::inline compiler {

// Two times that are closer no prediction tells apart: its median error is 1.5 % (docs/accuracy.md).
inline constexpr double told_apart = 1.015;

// Where members are, and what they need for a sum of so many operands of so many elements: seconds; infinity: unknown.
struct CollectiveCosts {
  std::span<const HostId> hosts;
  const Cluster& cluster;
  int64_t element_bytes = 4;
  std::function<double(int member, size_t operands, int64_t elements)> sum = {};  // none: no time
};

// CollectiveCosts::sum by a table, of f32. devices: of each member; they must outlive the answer. costs: nullptr: no
// time.
std::function<double(int member, size_t operands, int64_t elements)> sums_by(const CostTable* costs,
                                                                             std::span<const DeviceId> devices);

// One round after the other. A round takes as long as its slowest message, or as long as the busiest link needs for all
// the bytes of the round, and then as long as the slowest member's sums. Error: members that cannot reach each other.
Result<double> seconds_of(const Rounds& rounds, const CollectiveCosts& costs);
struct RoundSeconds {
  double messages = 0, latency = 0;  // until the last message is there; of it what takes no bandwidth
  double sums = 0;
};
Result<std::vector<RoundSeconds>> seconds_of_rounds(const Rounds& rounds, const CollectiveCosts& costs);

// The fastest of those whose sums are known; of those that no prediction could tell apart, the one whose members need
// the least memory. in_order: only of those whose sums are (adds_in_order).
// Error: members that cannot reach each other.
Result<CollectiveAlgorithm> choose_algorithm(const Collective& collective, const CollectiveCosts& costs,
                                             bool in_order = false);

// What a transport's own collective of a value of `bytes` is written out as: what Open MPI 4.1's nonblocking one does
// by default (component coll/libnbc, nbc_i….c). Other libraries may do something else.
CollectiveAlgorithm native_algorithm(CollectiveKind kind, size_t members, Bytes bytes);

}  // namespace nlsplit::inline compiler
