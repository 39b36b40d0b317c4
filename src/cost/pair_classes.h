// Classes of pairs of hosts that a cluster describes alike: by figures, not by names. One pair of a class can be
// measured for all of them.
//
//   ASSIGN_OR_RETURN(const std::vector<PairClass> classes, pair_classes(cluster, scenario.costs, pairs));
//   const std::vector<std::vector<size_t>> measured = spread_over_hosts(classes, 2);
//
// Two pairs are alike if the routes between their hosts, there and back, lead over links of the same bandwidths,
// latencies, duplex and sharing in the same order, through as many switches and hosts, and if the same kinds of devices
// stand at their ends: as fast (kind, level, cores, slowdown, costs), and on one machine or not. A pair may be turned
// round for that. Memory is no matter.
#pragma once

#include <span>
#include <vector>

#include "cost/cluster.h"
#include "cost/cost_source.h"

namespace nlsplit::inline cost {

// a == b: two devices of one host.
struct HostPair {
  HostId a, b;
  friend auto operator<=>(const HostPair&, const HostPair&) = default;
};

struct PairClass {
  std::vector<HostPair> pairs;  // in the order they came in; each turned round if that makes it like the others
  bool symmetric = false;       // a pair and the same pair turned round are alike, too
};

// In the order of their first pairs. costs: one a device. Error: no links connect the hosts of a pair.
Result<std::vector<PairClass>> pair_classes(const Cluster& cluster, const std::vector<CostSourcePtr>& costs,
                                            std::span<const HostPair> pairs);

// [class]: which of its pairs to measure if at most so many shall be, ascending. Of all hosts those are taken that the
// fewest chosen pairs have, and places far from each other in the list.
std::vector<std::vector<size_t>> spread_over_hosts(std::span<const PairClass> classes, size_t most);

}  // namespace nlsplit::inline cost
