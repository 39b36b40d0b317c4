// Search over (devices used, last stage's devices, cut): layer by layer of stages, keeping the most promising partial
// plans.
#pragma once

#include <vector>

#include "partition/device_groups.h"
#include "partition/score.h"

namespace nlsplit {

struct BeamInput {
  const Cluster* cluster = nullptr;
  const Network* network = nullptr;
  HostId source, sink;
  const SearchCosts* costs = nullptr;
  const Scorer* scorer = nullptr;
  DeviceGroups* groups = nullptr;
  std::vector<size_t> cuts;          // where a stage may end, ascending; the last is the end of the graph
  std::vector<double> weight_bytes;  // [node]: of the weights that nodes before it are the first to read; nodes + 1
  size_t max_stages = 1;
  size_t wanted = 0;  // how many plans to answer
  uint64_t seed = 1;
};

// Stages of the plans that look best; their order means nothing.
std::vector<std::vector<Stage>> search_beam(const BeamInput& input);

}  // namespace nlsplit
