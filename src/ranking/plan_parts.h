// PlanParts: the costs that each activity of a plan consists of, so that the plan can be timed again with other costs
// (ranking/worlds.h).
#pragma once

#include <cstdint>
#include <vector>

#include "cost/cost_table.h"

namespace nlsplit::inline ranking {

struct LoweredPlan;

struct PlanParts {
  struct DeviceCost {
    DeviceId device;
    uint64_t name = 0;  // of the computation: its signature's hash
    CostOrigin origin = CostOrigin::formula;
    double spread = 0;  // Cost::spread
  };
  struct Part {
    uint32_t cost = 0;  // index into `costs`
    double seconds = 0;
  };
  std::vector<DeviceCost> costs;         // distinct ones
  std::vector<std::vector<Part>> kinds;  // of blocks: those of one kind have the same parts
  std::vector<int> kind_of;              // [activity]: of a block its kind; -1: a transfer
  std::vector<uint64_t> route_names;     // [route of the TimedGraph]: hash of its hosts' names
  std::vector<int> micro_batches;        // [activity]: micro_batches_of
  int micro_batch_count = 1;
};

// Its costs are known: it was timed by them.
PlanParts parts_of(const LoweredPlan& lowered, const Cluster& cluster, const CostTable& costs);

}  // namespace nlsplit::inline ranking
