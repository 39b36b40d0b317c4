// Shares of the devices of a stage that is split inside its layers.
#pragma once

#include <cstdint>
#include <vector>

#include "partition/search.h"

namespace nlsplit::inline partition {

// Small whole numbers (8 for each device at most) in proportion to the speed of devices that take so long for the same
// work: within 3 % of the best if such are there. {1, 2} → {2, 1}.
std::vector<int64_t> small_shares(const std::vector<double>& seconds);

// Of the devices of a stage, by the seconds they take for its layers.
std::vector<int64_t> shares_by_speed(const SearchCosts& costs, const Stage& stage);

// {4, 2} → {2, 1}
void reduce(std::vector<int64_t>& shares);

// Memory of the shards of a stage: a lower bound, without messages, and without what further micro-batches
// keep.
struct ShardBytes {
  double each = 0;             // every shard holds
  double shared = 0;           // the shards hold among them
  std::vector<double> memory;  // [shard]: of its device
};

// If shares by speed may exceed a device's memory: the closest shares that the memories allow, and shares that leave
// the same part of each memory free. `by_speed`: of the same devices. Empty: shares by speed certainly fit, or a device
// has no memory for any share.
std::vector<std::vector<int64_t>> shares_by_memory(const std::vector<int64_t>& by_speed, const ShardBytes& bytes);

}  // namespace nlsplit::inline partition
