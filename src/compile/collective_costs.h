// How long a collective takes, and which algorithm is chosen for it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "compile/collective_rounds.h"
#include "cost/cluster.h"
#include "cost/cost_table.h"

namespace nlsplit::inline compiler {

// Two times that are closer no prediction tells apart: its median error is 1.5 % (docs/validations.md).
inline constexpr double told_apart = 1.015;

// Where members are, and what they need for a sum of so many operands of so many elements: seconds; infinity: unknown.
struct CollectiveCosts {
  std::span<const HostId> hosts;
  const Cluster& cluster;
  int64_t element_bytes = 4;                                                      // of messages
  int64_t grain = 1;                                                              // of shares (rounds_of)
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

// Of several rounds among the same members, whose routes are looked up once.
class RoundTimes {
 public:
  explicit RoundTimes(const CollectiveCosts& costs);  // which it borrows
  Result<RoundSeconds> of(const std::vector<Piece>& round);
  Result<double> of_all(const Rounds& rounds);  // one after the other
  const CollectiveCosts& costs() const { return costs_; }

 private:
  struct Way {
    MessageCost eager, rendezvous;
    std::vector<std::pair<size_t, BytesPerSecond>> lanes;  // that messages share
  };
  Result<const Way*> between(int from, int to);

  const CollectiveCosts& costs_;
  std::vector<std::optional<Way>> ways_;  // [from * members + to]
  std::vector<double> busy_;              // [lane]: seconds, of the round at hand
  std::vector<size_t> used_;              // lanes
};

// The fastest of those whose sums are known; of those that no prediction could tell apart, the one whose members need
// the least memory. in_order: only of those whose sums are (adds_in_order).
// Error: members that cannot reach each other.
Result<CollectiveAlgorithm> choose_algorithm(const Collective& collective, const CollectiveCosts& costs,
                                             bool in_order = false);
Result<CollectiveAlgorithm> choose_algorithm(const Collective& collective, RoundTimes& times, bool in_order = false);

// What a transport's own collective of a value of `bytes` is written out as: what Open MPI 4.1's nonblocking one does
// by default (component coll/libnbc, nbc_i….c). Other libraries may do something else.
CollectiveAlgorithm native_algorithm(CollectiveKind kind, size_t members, Bytes bytes);

}  // namespace nlsplit::inline compiler
