// The graph that expand_splits() makes, as it grows: where every piece of every value of the unsplit graph is, and the
// Slices and Concats that bring a part of a value to a shard that needs it. All exchanges are one question: fetch().
//
//   halo           rows [27, 56) of a value whose rows from 28 on this shard has: a Slice of one row where the others
//                  are, and a Concat here
//   all-gather     all of a value that is split: a Concat of all shards' pieces, on every shard
//   resharding     channels [0, 32) of a value that is split by rows: Slices of every piece, a Concat of these
//   scatter        rows [0, 28) of a whole value: a Slice where it is
//   input          the same, for all shards of a device that need that part
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "partition/expand.h"

namespace nlsplit::inline partition {

// The shard of a stage (0 of one that is not split) at which a node runs. Its level is the number of exchanges between
// shards on the longest way to it from the stage's inputs.
struct Place {
  int stage = -1;  // -1: where the graph's inputs are
  int shard = 0;
  int level = 0;
};

struct ShardPiece {
  ValueId value;               // of the new graph
  int64_t begin = 0, end = 0;  // along the layout's axis: at least what the shard owns
};

class PieceGraph {
 public:
  PieceGraph(const Graph& graph, const Plan& plan, const std::vector<Layout>& layouts);

  // A value of the unsplit graph, or part of it, for a shard of a stage. Its pieces must have been set.
  ValueId fetch(ValueId value, Region region, int stage, int shard);
  // The whole of a split value, wherever it has been joined already; else at the first shard of its stage.
  ValueId fetch_output(ValueId value);
  // The same part for an exchange of partial sums, which are no values of the unsplit graph: sliced where it is.
  ValueId part_of(ValueId partial, const std::vector<Region>& regions, const std::string& name);

  // Appends a node whose inputs are there; its outputs are called `value_names`. origin, region: as in Expanded.
  std::vector<ValueId> emit(Node node, const std::vector<std::string>& value_names, int stage, int shard, int origin,
                            const Region& region = {});
  // How a shard of the stage that is being rewritten makes part of a value that is made on demand.
  void set_maker(std::function<ValueId(ValueId, const Region&, int)> maker) { make_ = std::move(maker); }
  void set_pieces(ValueId value, std::vector<ShardPiece> pieces) { pieces_[value.index()] = std::move(pieces); }
  ValueId add_input(ValueId value);

  // In order: by stage, level, shard, and within these as they were made; without unused nodes.
  Expanded finish(const std::vector<ValueId>& outputs);

 private:
  // Of states each place has its own.
  ValueId weight(ValueId value, Region region, int stage, int shard);
  ValueId fetch_whole_layout(ValueId value, Region region, int stage, int shard);
  ValueId join(ValueId value, Region region, int stage, int shard);
  size_t nearest_copy(const std::vector<ShardPiece>& copies, int stage, int shard) const;
  ValueId slice(ValueId from, const std::vector<Region>& regions, Place at, const std::string& name);
  DeviceId device_of(const Place& place) const;
  static std::string unused(const std::string& wanted, std::unordered_set<std::string>& taken);
  std::vector<DeviceId> devices_of(const Place& place) const;
  void cut_inputs();
  void cut_input(ValueId input, const std::vector<size_t>& nodes);
  std::vector<bool> needed() const;
  std::vector<size_t> order() const;

  const Graph& from_;
  const Plan& plan_;
  const std::vector<Layout>& layouts_;
  Graph graph_;
  std::vector<Place> places_;    // [node of graph_]
  std::vector<int> origin_;      // [node of graph_]
  std::vector<Region> regions_;  // [node of graph_]
  std::vector<WeightSlice> slices_;
  std::vector<WeightPart> parts_;
  std::set<ContentId> sliced_weights_;           // of slices_
  std::vector<std::vector<ShardPiece>> pieces_;  // [value of from_]
  std::vector<std::vector<ValueId>> joined_;     // [value of from_]: where all of it has been put together
  std::map<std::tuple<size_t, int, int64_t, int64_t, int, int>, ValueId> fetched_;
  std::map<std::tuple<size_t, std::vector<int64_t>, int, int>, ValueId> sliced_;
  std::map<std::tuple<size_t, int, int64_t, int64_t, int, int>, ValueId> weights_;
  std::unordered_set<std::string> node_names_, value_names_;
  std::function<ValueId(ValueId, const Region&, int)> make_;
};

}  // namespace nlsplit::inline partition
