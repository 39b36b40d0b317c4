// How a network's values lie, and what shards take of each other, if all of it is split in one way.
#pragma once

#include <vector>

#include "partition/split_layout.h"

namespace nlsplit::inline partition {

// Pieces of a value that shards take of each other.
struct PieceExchange {
  ValueId value;
  std::vector<Region> wanted;  // [shard]: along the axis the value is split on
  std::vector<double> bytes;   // [shard]: of one element along that axis
};

struct SplitParts {
  struct OfNode {
    bool is_split = false;             // and has work of its own
    std::vector<double> work;          // [shard]: part of the node's work; empty: each does all of it
    std::vector<double> weight_bytes;  // [shard]: of the weights that it is the first to read
    double whole_bytes = 0;            // of these weights, unsplit
    double shared_bytes = 0;           // of those of them that are trained and that several shards read whole
    std::vector<size_t> exchanges;     // before it
  };
  std::vector<Layout> layouts;  // [value]
  std::vector<OfNode> nodes;
  std::vector<PieceExchange> exchanges;
};

}  // namespace nlsplit::inline partition
