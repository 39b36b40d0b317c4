// The baseline of a graph partitioner: METIS (Karypis, Kumar, "A fast and high quality multilevel scheme for
// partitioning irregular graphs", SIAM J. Sci. Comput. 20, 1998), as it is used for placing networks.
//
// The layers are its vertices, weighted by their seconds on the first device, the values between them its edges,
// weighted by their bytes. There is one part for each device, with work in proportion to its speed. METIS ignores
// directions, so its parts are not a pipeline: they are ordered by their layers' mean place, and as few seconds of
// layers as possible are moved to make each part contiguous.
#pragma once

#include <span>
#include <vector>

#include "partition/search.h"

namespace nlsplit::inline partition {

bool has_metis();  // in this build; without it there are no stages

// Baseline::stages of partition/baselines.h.
std::vector<Stage> metis_stages(const Graph& graph, const Cluster& cluster, const SearchCosts& costs);

// Makes parts runs: part_of[layer] is a number below `parts`; order: which part comes first, second, …. The part of
// each layer so that these do not decrease in that order, and the layers that changed have the least weight in all.
std::vector<size_t> contiguous_parts(const std::vector<size_t>& part_of, const std::vector<size_t>& order,
                                     const std::vector<double>& weight);
// Parts by the mean place of their layers; empty ones last.
std::vector<size_t> parts_in_order(const std::vector<size_t>& part_of, size_t parts);

}  // namespace nlsplit::inline partition
