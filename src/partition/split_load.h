// The load of a stage that is split inside its layers: time, bytes and messages of its devices, computed from the
// layouts of its values without expanding the stage.
//
//   SplitLoads loads(graph, cluster, network, costs, multiples);
//   const std::optional<PlanLoads> of_plan = loads.of(plan.stages);
//   (*of_plan)[s][0].seconds                     // stage s, its first group: of one micro-batch that nothing holds up
//
// A lower bound if a part of a layer takes at least that part of the layer's time. Left out: copying pieces, adding
// partial sums, rows that are computed twice, and messages from other stages. Layouts are those of the whole network
// split in this way, which may differ from the stage's in its first layers.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "partition/network.h"
#include "partition/plan.h"
#include "partition/search.h"
#include "partition/split_layout.h"

namespace nlsplit::inline partition {

// Of one micro-batch and one group of shards.
struct SplitLoad {
  double seconds = 0;                 // through the stage and back; messages of one exchange share links
  std::vector<double> compute;        // [shard]: seconds
  std::vector<double> weight_bytes;   // [shard]: of the weights that the stage is the first to read
  std::vector<double> message_bytes;  // [from * shards + to]
  size_t messages = 0, parts = 0;     // between shards; of layers, computed by a shard
  // With StepCosts, of a step: updates of weights, gradients of those that several shards read whole.
  std::vector<double> update_seconds, sum_bytes;  // [shard]; [from * shards + to]
};

// [stage][group]; nothing for a stage that is not split inside its layers.
using PlanLoads = std::vector<std::vector<SplitLoad>>;

// How a network's values lie if all of it is split in one way.
struct SplitParts;
struct ShardSeconds;

// Caches each combination of axis and shares. Not thread-safe.
class SplitLoads {
 public:
  // Borrows all but the last. multiples: SplitOptions::multiples, as plans are expanded with.
  SplitLoads(const Graph& graph, const Cluster& cluster, const Network& network, const SearchCosts& costs,
             std::vector<int64_t> multiples);
  ~SplitLoads();
  SplitLoads(const SplitLoads&) = delete;
  SplitLoads& operator=(const SplitLoads&) = delete;

  // Of a plan's stages. None: nothing of a stage can be split as it says, or two devices of a group cannot talk to each
  // other.
  std::optional<PlanLoads> of(const std::vector<Stage>& stages);

 private:
  // A Split; SplitOptions::latency_bytes.
  using Way = std::tuple<SplitAxis, bool, std::vector<int64_t>, int64_t, ImageMultiples>;
  const SplitParts& parts(const Stage& stage, Bytes latency_bytes);
  const Path& path(DeviceId from, DeviceId to) const {
    return network_.path(cluster_.device(from).host, cluster_.device(to).host);
  }
  ShardSeconds seconds_of(DeviceId device) const;
  bool is_alike(const Stage& stage, size_t group, size_t other) const;

  const Graph& graph_;
  const Cluster& cluster_;
  const Network& network_;
  const SearchCosts& costs_;
  std::vector<int64_t> multiples_;
  std::vector<DeviceId> kinds_;  // device_kinds
  std::vector<bool> batched_;
  Pieces pieces_;
  std::map<Way, std::unique_ptr<const SplitParts>> parts_;
};

}  // namespace nlsplit::inline partition
