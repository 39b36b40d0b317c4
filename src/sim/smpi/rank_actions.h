// Internal to the module: what each rank does, in its order.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/timed_graph.h"

namespace nlsplit::inline sim {

struct RankAction {
  enum class Kind : uint8_t { compute, isend, irecv, wait_send, wait_recv };
  Kind kind{};
  uint32_t activity = 0;
};

// [device]. Messages of a device to itself are left out: its own order has them. `timing`: when the graph's activities
// happen, for the places of messages among the computations. What is sent or posted at the moment at which a block
// begins comes before it. Who follows these lists one by one never waits in a circle: the times of `timing` keep all
// their orders.
std::vector<std::vector<RankAction>> rank_actions(const TimedGraph& graph, const Timing& timing);

}  // namespace nlsplit::inline sim
