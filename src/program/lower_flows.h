// The inner values of lowering. A *flow* is a value (the root of its views) that is needed beyond the stage that makes
// it; each micro-batch of it becomes a message to every other device that needs it. Stages are numbered from 0; the
// source of inputs and the sink of outputs stand at both ends as pseudo-stages.
#pragma once

#include <cstdint>
#include <vector>

#include "base/index.h"
#include "program/lower.h"

namespace nlsplit {

inline constexpr int source_stage = -1;
inline constexpr int ahead_stage = -2;  // a slot that only receives a message that is needed later

struct Flow {
  ValueId root;
  int producer = source_stage;  // stage
  std::vector<int> consumers;   // stages, ascending; the number of stages stands for the sink
};

// Inputs first, then their parts, then by the producing node: the order in which a slot makes and sends them. In
// training nothing goes to the sink. Error: an output that is a constant.
Result<std::vector<Flow>> find_flows(const KernelGraph& graph, const Plan& plan);

// Where everything happens. Devices are those of the Program.
struct Placement {
  int micro_batches = 1;
  int stages = 0;
  int devices = 0;
  int source = 0, sink = 0;             // devices
  int in_flight = 0;                    // SlotTable::in_flight
  std::vector<std::vector<int>> needs;  // [stage]: as stage_needs(schedule)
  bool sink_copies = false;             // the sink must act for every micro-batch, not only for those it receives
  std::vector<std::vector<int>> stage_device;  // [stage][micro-batch]

  int device_of(int stage, int m) const {
    if (stage == source_stage) return source;
    if (stage == stages) return sink;
    return stage_device[static_cast<size_t>(stage)][static_cast<size_t>(m)];
  }
};

// Micro-batch m + in_flight may enter the first stage when m has left the last one. Where those are different devices a
// *credit* says so: a message without a value, numbered like a flow behind the last one.
struct Port {    // one end of a message
  int flow = 0;  // the number of flows: a credit
  int peer = 0;  // device
  friend bool operator==(const Port&, const Port&) = default;
};

struct OrderedSlot {
  int stage = 0;  // or source_stage, ahead_stage, or the number of stages for the sink
  int micro_batch = 0;
  std::vector<Port> recvs;  // before the work; per peer in the order the peer sends
  std::vector<Port> sends;  // in the order of the flows
};

// [device]: its slots, with the messages of each.
using Orders = std::vector<std::vector<OrderedSlot>>;

// seconds[stage][micro-batch]: only to interleave what else a device does between its slots.
// Error: the orders of the table wait for each other.
Result<Orders> make_orders(const std::vector<Flow>& flows, const Placement& placement, const SlotTable& table,
                           const std::vector<std::vector<double>>& seconds);

}  // namespace nlsplit
