// Baselines: the rules of other programs and papers for splitting a network, to compare the search with. All of them
// take the devices in the cluster's order and cut the model's layers in their topological order.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "partition/search.h"

namespace nlsplit::inline partition {

struct Baseline {
  std::string_view name;
  std::string_view rule;  // in a few words
  // Stages in order, without empty ones. None: the rule has no plan for this network and cluster.
  std::vector<Stage> (*stages)(const Graph& graph, const Cluster& cluster, const SearchCosts& costs);
  std::string_view why_none = {};  // what no stages mean
};

// even-layers          equally many layers on each device
// memory-proportional  layers in proportion to the devices' memory, as exo's ring and llama.cpp's layer split do
// balance-compute      the slowest stage as quick as it can be, by the times of the first device, transfers for free:
//                      torchgpipe's balance_by_time (Kim et al., 2020, section 3.2)
// pipedream            the same with replicated stages and transfers, all devices like the first, all links like the
//                      slowest between neighbours (Narayanan et al., SOSP 2019, section 3.1). Of a model of more than
//                      128 layers it looks at 128 cuts, of the least bytes in their neighbourhoods, and at 64 devices.
// metis                a graph partitioner (baseline_metis.h); no plan in a build without it
std::span<const Baseline> baselines();

}  // namespace nlsplit::inline partition
