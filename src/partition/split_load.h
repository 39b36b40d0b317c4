// What a stage that is split inside its layers asks of its devices and the links between them, found from the layouts
// of its values without expanding it.
//
//   SplitLoads loads(graph, cluster, network, costs);
//   const std::optional<SplitLoad> load = loads.of(stage, 0);      // of its first group
//   load->seconds                                                  // of one micro-batch that nothing holds up
//
// A lower bound where a part of a layer takes no less than that part of the layer's time. Left out: the copying of
// pieces, the adding of partial sums, rows that are computed twice, and what comes from other stages.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "partition/network.h"
#include "partition/plan.h"
#include "partition/search.h"

namespace nlsplit::inline partition {

// Of one micro-batch and one group of shards.
struct SplitLoad {
  double seconds = 0;                 // through the stage; messages of one exchange share links
  std::vector<double> compute;        // [shard]: seconds
  std::vector<double> weight_bytes;   // [shard]: of the weights that the stage is the first to read
  std::vector<double> message_bytes;  // [from * shards + to]
  size_t messages = 0, parts = 0;     // between shards; of layers, computed by a shard
};

// How a network's values lie if all of it is split in one way.
struct SplitParts;

// Remembers every way of splitting it was asked for. Not for several threads at once.
class SplitLoads {
 public:
  // Borrows everything.
  SplitLoads(const Graph& graph, const Cluster& cluster, const Network& network, const SearchCosts& costs);
  ~SplitLoads();
  SplitLoads(const SplitLoads&) = delete;
  SplitLoads& operator=(const SplitLoads&) = delete;

  // Of the group that begins with device `first` of a split stage. None: nothing of the stage can be split so, or two
  // of its devices cannot talk to each other.
  std::optional<SplitLoad> of(const Stage& stage, size_t first);

 private:
  using Way = std::tuple<SplitAxis, bool, std::vector<int64_t>, int64_t>;  // a Split; SplitOptions::latency_bytes
  const SplitParts& parts(const Split& split, Bytes latency_bytes);

  const Graph& graph_;
  const Cluster& cluster_;
  const Network& network_;
  const SearchCosts& costs_;
  std::vector<bool> batched_;
  std::map<Way, std::unique_ptr<const SplitParts>> parts_;
};

}  // namespace nlsplit::inline partition
