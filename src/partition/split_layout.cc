#include "partition/split_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "graph/operators/operator.h"
#include "graph/passes/rewrite.h"

namespace nlsplit::inline partition {
namespace {

bool reads_cache(Op op) { return op == Op::CachedAttention || op == Op::PagedAttention; }

// A boundary scaled to an axis that is a whole number of times as long, or as short. Empty: it falls between elements.
std::vector<int64_t> scaled(const std::vector<int64_t>& bounds, int64_t from, int64_t to) {
  std::vector<int64_t> out;
  for (const int64_t bound : bounds) {
    if (from == 0 || bound * to % from != 0) return {};
    out.push_back(bound * to / from);
  }
  return out;
}

// Elements of [begin, end) that are not in [low, high).
int64_t outside(int64_t begin, int64_t end, int64_t low, int64_t high) {
  return (end - begin) - std::max<int64_t>(0, std::min(end, high) - std::max(begin, low));
}

class Chooser {
 public:
  Chooser(const LayoutQuery& query, std::vector<Layout>& layouts)
      : q_(query),
        graph_(query.graph),
        split_(*query.stage.split),
        layouts_(layouts),
        readers_(graph_.values.size()),
        uses_(use_counts(query.graph)) {
    for (size_t n = q_.stage.begin; n < q_.stage.end; ++n) {
      for (const ValueId input : graph_.nodes[n].inputs) {
        if (input.valid()) readers_[input.index()].push_back(n);
      }
    }
  }

  StageLayouts run(const LayoutsEnough& enough) {
    for (size_t n = q_.stage.begin; n < q_.stage.end; ++n) {
      place(graph_.nodes[n]);
      if (enough && enough(graph_.nodes[n], result_)) break;
    }
    return std::move(result_);
  }

 private:
  size_t shards() const { return split_.shares.size(); }
  const Shape& shape_of(ValueId value) const { return graph_.value(value).type.shape; }
  bool is_constant(ValueId value) const { return graph_.value(value).kind == ValueKind::weight; }
  const Layout& layout_of(ValueId value) const { return layouts_[value.index()]; }
  // Split, and by the shards of this stage or by shards like them.
  bool is_split(ValueId value) const {
    if (!value.valid() || layout_of(value).axis < 0) return false;
    const int stage = layout_of(value).stage;
    return stage == q_.index || q_.alike[static_cast<size_t>(stage)];
  }

  const std::optional<NodePiece>& piece(const Node& node, int axis, int64_t begin, int64_t end) const {
    return q_.pieces.of(node, split_.axis, axis, begin, end);
  }
  bool all_pieces(const Node& node, int axis, const std::vector<int64_t>& bounds) const {
    if (bounds.empty()) return false;
    for (size_t k = 0; k < shards(); ++k) {
      if (!piece(node, axis, bounds[k], bounds[k + 1])) return false;
    }
    return true;
  }

  void place(const Node& node) {
    std::optional<Layout> chosen = choose(node);
    const bool counts = !is_view(node.op);
    if (!chosen) {
      if (counts && std::ranges::any_of(node.inputs, [&](ValueId input) { return is_split(input); })) {
        result_.notes.push_back(
            {fmt::format("{} '{}' is not split by {}: its inputs are gathered and it is computed "
                         "whole",
                         name_of(node.op), node.name, name_of(split_.axis))});
      }
      chosen = Layout{};
    } else if (counts && chosen->on_demand < 0) {
      ++result_.split_nodes;
      if (chosen->sums()) ++result_.sums;
    }
    chosen->stage = q_.index;
    for (const ValueId output : node.outputs) layouts_[output.index()] = *chosen;
  }

  std::optional<Layout> choose(const Node& node) {
    switch (split_.axis) {
      case SplitAxis::batch:
        return q_.batched[node.outputs[0].index()] ? along(node, 0) : std::nullopt;
      case SplitAxis::height:
        return along_image(node, 2);
      case SplitAxis::width:
        return along_image(node, 3);
      case SplitAxis::channels:
        if (auto carried = carry(node)) return carried;
        if (auto later = leave_to_readers(node)) return later;
        return columns(node);
      case SplitAxis::tensor:
        if (auto partial = sum(node)) return partial;
        if (auto partial = sum_of_experts(node)) return partial;
        if (chooses_experts(node)) return std::nullopt;
        if (auto later = leave_to_readers(node)) return later;
        if (auto made = columns(node)) return made;
        return carry(node);
      case SplitAxis::sequence:
        if (auto carried = carry(node)) return carried;
        return along_tokens(node);
    }
    return std::nullopt;
  }

  std::optional<Layout> along_image(const Node& node, int axis) {
    return shape_of(node.outputs[0]).size() == 4 ? along(node, axis) : std::nullopt;
  }

  // Work begins a split, not what only moves elements: tokens may be on another axis before it. Windows over one axis
  // slide over tokens: [N, C, L].
  std::optional<Layout> along_tokens(const Node& node) {
    const bool moves = is_view(node.op) || node.op == Op::Transpose;
    if (moves || shape_of(node.outputs[0]).size() != 3) return std::nullopt;
    return along(node, find_attr(node.attrs, "kernel_shape") != nullptr ? 2 : 1);
  }

  std::vector<int64_t> bounds_of(int64_t extent) const {
    const auto multiple = q_.multiples.find(extent);
    return rounded_bounds(extent, split_.shares, multiple == q_.multiples.end() ? 1 : multiple->second);
  }

  // Cut by the shares; or where its inputs are cut, if only these are boundaries it can be cut at.
  std::optional<Layout> along(const Node& node, int axis) {
    const int64_t extent = shape_of(node.outputs[0])[static_cast<size_t>(axis)];
    std::vector<int64_t> bounds = bounds_of(extent);
    if (all_pieces(node, axis, bounds)) return Layout{axis, std::move(bounds), {}, q_.index, -1};
    for (const ValueId input : node.inputs) {
      if (!is_split(input)) continue;
      const Layout& from = layout_of(input);
      bounds = scaled(from.bounds, shape_of(input)[static_cast<size_t>(from.axis)], extent);
      if (all_pieces(node, axis, bounds)) return Layout{axis, std::move(bounds), {}, q_.index, -1};
    }
    refuse(node, axis, extent);
    return std::nullopt;
  }

  void refuse(const Node& node, int axis, int64_t extent) {
    if (!result_.refused.empty() || is_view(node.op)) return;
    result_.refused = fmt::format("'{}' ({}) has {} elements along axis {}", node.name, name_of(node.op), extent, axis);
    if (extent < static_cast<int64_t>(shards()))
      result_.refused += fmt::format(", fewer than the {} shards", shards());
    else
      result_.refused += ", and no rule to compute part of them from part of its inputs";
  }

  // Some columns or filters of a weight, from whole inputs.
  std::optional<Layout> columns(const Node& node) {
    const int axis = column_axis(graph_, node);
    if (axis < 0) return std::nullopt;
    const int64_t extent = shape_of(node.outputs[0])[static_cast<size_t>(axis)];
    const int64_t groups = column_grain(graph_, node);
    const int64_t grain = std::lcm(groups, grain_of(node.outputs[0], axis, 0));
    // Values of a cache are split between heads or not at all: otherwise a shard's attention would read other caches.
    const bool is_kept = leads_to_state(node.outputs[0], 0);
    for (const int64_t step : {grain, groups, int64_t{1}}) {
      if (is_kept && (step != grain || grain == 1)) break;  // 1: there is one head
      std::vector<int64_t> bounds = share_bounds(extent, split_.shares, step);
      if (all_pieces(node, axis, bounds)) return Layout{axis, std::move(bounds), {}, q_.index, -1};
    }
    refuse(node, axis, extent);
    return std::nullopt;
  }

  // Columns of which every reader takes some, perhaps behind a view. The readers are split by the shares then.
  std::optional<Layout> leave_to_readers(const Node& node) {
    if (node.op == Op::Slice) return columns_of_slice(node);
    int axis = column_axis(graph_, node);
    if (is_view(node.op)) {
      const Layout& from = layout_of(node.inputs[0]);
      axis = from.stage == q_.index && from.on_demand >= 0 ? same_axis_behind(node, from.on_demand) : -1;
    }
    if (axis < 0 || !taken_apart(node.outputs[0], axis, 0)) return std::nullopt;
    return Layout{-1, {}, {}, q_.index, axis};
  }

  // The axis of a view's result whose elements are those of that axis of its input, one by one; -1: there is none.
  int same_axis_behind(const Node& node, int axis) const {
    const Shape& out = shape_of(node.outputs[0]);
    const int64_t extent = shape_of(node.inputs[0])[static_cast<size_t>(axis)];
    for (size_t o = 0; o < out.size(); ++o) {
      if (out[o] != extent || extent < 2) continue;
      const auto& part = q_.pieces.of(node, static_cast<int>(o), 0, 1);
      if (part && part->inputs[0] == Region{axis, 0, 1}) return static_cast<int>(o);
    }
    return -1;
  }

  bool taken_apart(ValueId value, int axis, int depth) const {
    constexpr int most = 4;  // views behind one another
    const std::vector<size_t>& readers = readers_[value.index()];
    if (readers.empty() || static_cast<int>(readers.size()) != uses_[value.index()] || depth == most) return false;
    return std::ranges::all_of(readers, [&](size_t n) {
      const Node& node = graph_.nodes[n];
      const int64_t extent = shape_of(value)[static_cast<size_t>(axis)];
      if (node.op == Op::Slice) {
        const auto& part = q_.pieces.of(node, axis, 0, 1);
        return part && shape_of(node.outputs[0])[static_cast<size_t>(axis)] < extent;
      }
      const int behind = is_view(node.op) ? same_axis_behind(node, axis) : -1;
      return behind >= 0 && taken_apart(node.outputs[0], behind, depth + 1);
    });
  }

  std::optional<Layout> columns_of_slice(const Node& node) {
    const Layout& from = layout_of(node.inputs[0]);
    if (from.stage != q_.index || from.on_demand < 0) return std::nullopt;
    const int axis = from.on_demand;
    const int64_t extent = shape_of(node.outputs[0])[static_cast<size_t>(axis)];
    for (const int64_t grain : {grain_of(node.outputs[0], axis, 0), int64_t{1}}) {
      std::vector<int64_t> bounds = share_bounds(extent, split_.shares, grain);
      bool made = all_pieces(node, axis, bounds);
      for (size_t k = 0; made && k < shards(); ++k) {
        const auto& part = piece(node, axis, bounds[k], bounds[k + 1]);
        made = can_make(node.inputs[0], part->inputs[0]);
      }
      if (made) return Layout{axis, std::move(bounds), {}, q_.index, -1};
    }
    return std::nullopt;
  }

  // Whether what is made on demand can be made in that part, back to the product.
  bool can_make(ValueId value, const Region& region) const {
    const Layout& layout = layout_of(value);
    if (layout.stage != q_.index || layout.on_demand < 0) return true;
    if (region.axis < 0) return true;
    const Node& node = graph_.node(graph_.value(value).producer);
    const auto& part = piece(node, region.axis, region.begin, region.end);
    return part && can_make(node.inputs[0], part->inputs[0]);
  }

  bool leads_to_state(ValueId value, int depth) const {
    constexpr int most = 12;  // a bias, a norm head by head, rotary positions: between a product and its cache
    if (depth == most) return false;
    return std::ranges::any_of(readers_[value.index()], [&](size_t n) {
      const Node& node = graph_.nodes[n];
      if (has(node.op, traits::changes_first)) return graph_.value(node.inputs[0]).state;
      const bool is_sum = node.op == Op::Add && !is_constant(node.inputs[0]) && !is_constant(node.inputs[1]);
      const bool ends = is_sum || column_axis(graph_, node) >= 0 || node.outputs.size() != 1 || reads_cache(node.op);
      return !ends && leads_to_state(node.outputs[0], depth + 1);
    });
  }

  // Where readers take an axis apart (heads from columns), boundaries should be between its parts.
  int64_t grain_of(ValueId value, int axis, int depth) {
    constexpr int most = 8;  // a bias, an activation, a slice: what stands between a product and its Reshape
    const int64_t extent = shape_of(value)[static_cast<size_t>(axis)];
    int64_t grain = 1;
    for (const size_t n : readers_[value.index()]) {
      const Node& node = graph_.nodes[n];
      if (depth == most || node.outputs.size() != 1) continue;
      const auto at = std::ranges::find(node.inputs, value) - node.inputs.begin();
      const Shape& out = shape_of(node.outputs[0]);
      if (at == 0 && summed_axis(graph_, node) == axis) grain = std::lcm(grain, summed_grain(graph_, node));
      const bool attends = node.op == Op::Attention || reads_cache(node.op);
      if (attends && at == 0 && axis == 1) {
        // Queries of whole groups, if every shard can have one: their keys and values are that shard's too.
        const int64_t groups = shape_of(node.inputs[1])[1];
        if (groups >= static_cast<int64_t>(shards())) grain = std::lcm(grain, extent / groups);
      }
      for (size_t o = 0; o < out.size(); ++o) {
        if (out[o] < 1) continue;
        const auto& part = q_.pieces.of(node, static_cast<int>(o), 0, 1);
        if (!part || part->inputs[static_cast<size_t>(at)].axis != axis) continue;
        const Region& region = part->inputs[static_cast<size_t>(at)];
        const int64_t each = region.end - region.begin;
        if (each * out[o] == extent && each > 1)
          grain = std::lcm(grain, each * grain_of(node.outputs[0], static_cast<int>(o), depth + 1));
        else if (out[o] == extent && each == 1)
          grain = std::lcm(grain, grain_of(node.outputs[0], static_cast<int>(o), depth + 1));
      }
    }
    return extent % grain == 0 ? grain : 1;
  }

  // The parts of the first input are those along the axis that is summed over.
  std::optional<Layout> sum(const Node& node) {
    const int axis = summed_axis(graph_, node);
    if (axis < 0 || !is_split(node.inputs[0]) || layout_of(node.inputs[0]).axis != axis) return std::nullopt;
    const std::vector<int64_t>& inner = layout_of(node.inputs[0]).bounds;
    for (size_t k = 0; k < shards(); ++k) {
      if (!q_.pieces.sum_of(node, inner[k], inner[k + 1], k == 0)) return std::nullopt;
    }
    Layout layout{-1, {}, inner, q_.index, -1};
    scatter(node, layout);
    return layout;
  }

  // Each shard has some of the experts, and what its own make of all rows.
  std::optional<Layout> sum_of_experts(const Node& node) {
    const int64_t experts = summed_experts(graph_, node);
    if (experts == 0) return std::nullopt;
    Layout layout{-1, {}, share_bounds(experts, split_.shares), q_.index, -1};
    if (layout.inner.empty()) return std::nullopt;
    scatter(node, layout);
    return layout;
  }

  // A product that experts are chosen by: of few columns, and every shard needs the choice.
  bool chooses_experts(const Node& node) const {
    return column_axis(graph_, node) >= 0 && leads_to_experts(node.outputs[0], 0);
  }
  bool leads_to_experts(ValueId value, int depth) const {
    constexpr int most = 3;  // a softmax, and the largest
    return std::ranges::any_of(readers_[value.index()], [&](size_t n) {
      const Node& node = graph_.nodes[n];
      if (node.op == Op::Experts) return node.inputs[1] == value;
      const bool goes_on = node.op == Op::Softmax || node.op == Op::TopK;
      return goes_on && depth < most &&
             std::ranges::any_of(node.outputs, [&](ValueId output) { return leads_to_experts(output, depth + 1); });
    });
  }

  // Whether the sums of the shards are added in slices. Whole, every shard takes k - 1 messages of all bytes at once;
  // in slices k - 1 of a k-th each, and then as many again: (k - 1) (1 - 2 / k) times the bytes less, one message's
  // start more. Two shards gain nothing. Not along channels or columns, over which the next product sums.
  void scatter(const Node& node, Layout& layout) const {
    const TensorType& type = graph_.value(node.outputs[0]).type;
    const double k = static_cast<double>(shards());
    const double saved = (k - 1) * (1 - 2 / k) * static_cast<double>(size_of(type).value());
    if (saved <= static_cast<double>(q_.latency_bytes.value())) return;
    std::vector<int> axes;
    if (type.shape.size() == 4) axes = {2, 3};
    if (type.shape.size() == 3) axes = {1};
    if (type.shape.size() == 2) axes = {0};
    for (const int axis : axes) {
      std::vector<int64_t> bounds = share_bounds(type.shape[static_cast<size_t>(axis)], split_.shares);
      if (bounds.empty()) continue;
      layout.axis = axis;
      layout.bounds = std::move(bounds);
      return;
    }
  }

  // The axis of the result that keeps most of what the shards have where it is.
  std::optional<Layout> carry(const Node& node) {
    std::optional<Layout> best;
    int64_t least = 0;
    for (const ValueId input : node.inputs) {
      if (!is_split(input)) continue;
      const Layout& from = layout_of(input);
      const int64_t extent = shape_of(input)[static_cast<size_t>(from.axis)];
      const Shape& out = shape_of(node.outputs[0]);
      for (size_t o = 0; o < out.size(); ++o) {
        const std::vector<int64_t> bounds = scaled(from.bounds, extent, out[o]);
        if (!continues(node, input, static_cast<int>(o), bounds)) continue;
        const int64_t fetched = fetched_bytes(node, static_cast<int>(o), bounds);
        if (best && fetched >= least) continue;
        best = Layout{static_cast<int>(o), bounds, {}, q_.index, -1};
        least = fetched;
      }
    }
    return best;
  }

  // Every shard's part needs that input along the axis it is split on.
  bool continues(const Node& node, ValueId input, int axis, const std::vector<int64_t>& bounds) const {
    if (bounds.empty()) return false;
    const auto at = static_cast<size_t>(std::ranges::find(node.inputs, input) - node.inputs.begin());
    for (size_t k = 0; k < shards(); ++k) {
      const auto& part = piece(node, axis, bounds[k], bounds[k + 1]);
      if (!part || part->inputs[at].axis != layout_of(input).axis || is_empty(part->inputs[at])) return false;
    }
    return true;
  }

  // What shards take of each other's pieces.
  int64_t fetched_bytes(const Node& node, int axis, const std::vector<int64_t>& bounds) const {
    int64_t fetched = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      if (!is_split(input)) continue;
      const Layout& from = layout_of(input);
      const int64_t extent = shape_of(input)[static_cast<size_t>(from.axis)];
      const int64_t each = extent == 0 ? 0 : size_of(graph_.value(input).type).value() / extent;
      for (size_t k = 0; k < shards(); ++k) {
        const auto& part = piece(node, axis, bounds[k], bounds[k + 1]);
        Region region = part->inputs[i];
        if (region.axis != from.axis) region = {from.axis, 0, extent};
        fetched += each * outside(region.begin, region.end, from.bounds[k], from.bounds[k + 1]);
      }
    }
    return fetched;
  }

  const LayoutQuery& q_;
  const Graph& graph_;
  const Split& split_;
  std::vector<Layout>& layouts_;
  std::vector<std::vector<size_t>> readers_;  // [value]: nodes of the stage
  std::vector<int> uses_;                     // [value]: by nodes and as outputs of the graph
  StageLayouts result_;
};

}  // namespace

std::vector<int64_t> rounded_bounds(int64_t extent, const std::vector<int64_t>& shares, int64_t grain) {
  const auto shards = static_cast<int64_t>(shares.size());
  const int64_t units = (extent + grain - 1) / grain;
  if (units < shards) return {};
  const double all = static_cast<double>(std::accumulate(shares.begin(), shares.end(), int64_t{0}));
  std::vector<int64_t> bounds{0};
  double sum = 0;
  for (int64_t k = 0; k < shards; ++k) {
    sum += static_cast<double>(shares[static_cast<size_t>(k)]);
    const auto nearest =
        static_cast<int64_t>(std::llround(static_cast<double>(extent) * sum / (all * static_cast<double>(grain))));
    // One unit for each at least: for this one and for those that follow.
    const int64_t bound = std::clamp(nearest, bounds.back() / grain + 1, units - (shards - k - 1));
    bounds.push_back(k + 1 == shards ? extent : bound * grain);
  }
  return bounds;
}

std::vector<int64_t> share_bounds(int64_t extent, const std::vector<int64_t>& shares, int64_t grain) {
  return extent % grain == 0 ? rounded_bounds(extent, shares, grain) : std::vector<int64_t>{};
}

ImageMultiples image_multiples(const Graph& graph, const Stage& stage, const std::vector<int64_t>& node_multiples) {
  const Split& split = *stage.split;
  const bool height = split.axis == SplitAxis::height, width = split.axis == SplitAxis::width;
  ImageMultiples multiples;
  if ((!height && !width) || split.recompute_halo || node_multiples.empty()) return multiples;
  for (size_t n = stage.begin; n < stage.end; ++n) {
    const Shape& shape = graph.value(graph.nodes[n].outputs[0]).type.shape;
    if (node_multiples[n] == 1 || shape.size() != 4) continue;
    const int64_t extent = shape[height ? 2 : 3];
    int64_t& all = multiples.try_emplace(extent, 1).first->second;
    all = std::lcm(all, node_multiples[n]);
    if (rounded_bounds(extent, split.shares, all).empty()) return {};
  }
  return multiples;
}

StageLayouts choose_layouts(const LayoutQuery& query, std::vector<Layout>& layouts, const LayoutsEnough& enough) {
  return Chooser(query, layouts).run(enough);
}

}  // namespace nlsplit::inline partition
