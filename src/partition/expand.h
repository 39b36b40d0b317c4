// expand_splits(): splits inside layers become an ordinary graph with an ordinary layer plan. Every node of a split
// stage is replaced by one for each shard that does its part (rows of an image, columns of a weight, ...), Slice,
// Concat and Sum stand where shards exchange pieces, and the work of each shard between two exchanges is a stage of one
// device. Everything behind that, from the choice of kernels to both executors, need not know of splits: what crosses
// devices are the flows between stages. Of an input of the graph a shard is sent the part that it reads: these Slices
// come first, in no stage, and are made where the input is.
//
//   plan: ..conv2@height(A+B), rest@C            A: conv1#0, the row that B needs | B: conv1#1, the row that A needs
//                                                A: the row taken in, conv2#0     | B: the row taken in, conv2#1
//                                                C: the rows joined, the rest
//
// Height, width, batch, channels and sequence change no bits if kernels are exact along the axis; tensor splits add
// partial sums in the order of the shards, so the last bits differ from the unsplit sum.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "graph/weights.h"
#include "partition/split_layout.h"

namespace nlsplit::inline partition {

// A slice of a weight, which add_slices() adds to the WeightStore before the slice is materialised.
struct WeightSlice {
  ContentId id, from;  // id = WeightStore::slice_id(...) of the others
  TensorType whole;    // what `from` is a tensor of here
  int axis = 0;
  int64_t begin = 0, end = 0;
};
void add_slices(const std::vector<WeightSlice>& slices, WeightStore& weights);

// A weight of the expanded graph, and what it is of one of the unsplit graph.
struct WeightPart {
  std::string name;
  std::string whole;
  TensorType whole_type;
  Region region;  // an axis of -1: all of it
};

struct Expanded {
  Graph graph;  // nodes of shard k are called "conv1#k"; exchanges "conv1#k.part", "conv1.halo#k", "conv1.join#k", …
  size_t input_parts = 0;  // nodes [0, input_parts): parts of inputs, KernelGraph::input_parts
  Plan plan;  // no splits left; same name, micro-batches, schedule; its stages begin behind the input parts
  std::vector<WeightSlice> slices;  // each once
  std::vector<WeightPart> weights;  // but for states of the graph
  std::vector<int> origin;          // [node of graph]: the node of the unsplit graph it is (a part of); -1: an exchange
  std::vector<Region> regions;  // [node of graph]: the part of that node's result it makes; an axis of -1: all of it,
                                // a partial sum, or an exchange
  std::vector<PlanNote> notes;  // what could not be split and was gathered, a sentence each
};

// The plan's stages must cover the graph (check_plan). A graph output keeps its name and place. Errors: a stage of
// which nothing can be split on its axis (they name the layer and why); batch: an operator that mixes samples.
Result<Expanded> expand_splits(const Graph& at_micro_batch, const Plan& plan, const SplitOptions& options = {});

inline constexpr std::array<SplitAxis, split_axis_count> all_split_axes = {
    SplitAxis::batch, SplitAxis::height, SplitAxis::width, SplitAxis::channels, SplitAxis::tensor, SplitAxis::sequence};
// Those of `axes` along which some of the layers [begin, end) can be split in two: height and width of windows,
// channels of products, tensor where one product follows another, sequence of products of tokens, batch of more than
// one sample. No expansion.
std::vector<SplitAxis> applicable_axes(const Graph& graph, size_t begin, size_t end,
                                       std::span<const SplitAxis> axes = all_split_axes);

}  // namespace nlsplit::inline partition
