// How the values of a split stage lie on its shards: decided for every node from the pieces of its inputs, before
// anything is rewritten.
//
//   height(A+B) on [1,64,56,56]      {axis 2, bounds 0 28 56}: A owns rows 0 to 28
//   tensor(A+B), the second product  {axis -1, sums, inner 0 1536 3072}: both sum over half of the rows of its weight;
//                                    the sums are added, and every shard has the result
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "partition/pieces.h"
#include "partition/plan.h"
#include "partition/split_rules.h"

namespace nlsplit::inline partition {

// What choosing needs to know of the links.
struct SplitOptions {
  // How many bytes a link carries in the time a message takes to start. Sums larger than it pays for are added in
  // slices (reduce-scatter, then all-gather: two messages after another, fewer bytes) instead of whole by every shard.
  Bytes latency_bytes = bytes(0);
  // [node]: what pieces along height and width should begin at multiples of, to have the bits of the whole layer
  // (KernelInfo::exact_multiple); empty: 1. All layers as high (wide) as one that asks for it are cut so, since then
  // they lie alike. Done if it gives every shard a piece of every layer that asks; not where halos are recomputed,
  // whose rows begin anywhere.
  std::vector<int64_t> multiples = {};
};

struct Layout {
  int axis = -1;                // -1: whole, on every shard of its stage that needs it
  std::vector<int64_t> bounds;  // axis >= 0: shard k owns [bounds[k], bounds[k + 1])
  std::vector<int64_t> inner;   // not empty: shard k sums over [inner[k], inner[k + 1]), then the sums are added
  int stage = -1;               // that makes it; -1: an input or weight of the graph, or not made yet
  // >= 0: not stored; a shard makes the part that it needs, along this axis. Queries, keys and values from one product:
  // each shard's heads are three runs of its columns.
  int on_demand = -1;
  bool sums() const { return !inner.empty(); }
};

// `extent` elements for shards of these shares, boundaries at multiples of `grain`. Empty: a shard would have nothing.
std::vector<int64_t> rounded_bounds(int64_t extent, const std::vector<int64_t>& shares, int64_t grain);
// The last one too: empty as well if the extent is no multiple of `grain`.
std::vector<int64_t> share_bounds(int64_t extent, const std::vector<int64_t>& shares, int64_t grain = 1);

struct StageLayouts {
  int split_nodes = 0;          // with work of their own, that are split
  int sums = 0;                 // of these, those that make partial sums
  std::vector<PlanNote> notes;  // what was gathered
  std::string refused;          // why the first node that could have been is not split
};

// By height (width): the multiples that images of a stage are cut at, of all their layers. None if one of these would
// leave a shard nothing, or if the stage is split on another axis. node_multiples: SplitOptions::multiples.
using ImageMultiples = std::map<int64_t, int64_t>;
ImageMultiples image_multiples(const Graph& graph, const Stage& stage, const std::vector<int64_t>& node_multiples);

// Of the values that nodes [stage.begin, stage.end) make, into `layouts` [value], which has those of earlier stages.
// `alike`: the stages whose pieces lie as this one's would. `batched`: of graph/passes/passes.h; axis batch only.
struct LayoutQuery {
  const Graph& graph;
  const Stage& stage;
  int index = 0;
  const std::vector<bool>& alike;
  const std::vector<bool>& batched;
  Bytes latency_bytes;              // SplitOptions
  const ImageMultiples& multiples;  // of the stage
  Pieces& pieces;                   // of the graph, with `batched`
};
// enough: called after each node; true: the remaining nodes can be left out.
using LayoutsEnough = std::function<bool(const Node&, const StageLayouts&)>;
StageLayouts choose_layouts(const LayoutQuery& query, std::vector<Layout>& layouts, const LayoutsEnough& enough = {});

}  // namespace nlsplit::inline partition
