#include "partition/expand.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/operators/operator.h"
#include "graph/passes/passes.h"
#include "partition/expand_pieces.h"

namespace nlsplit::inline partition {
namespace {

struct Range {
  int64_t begin = 0, end = 0;
};

// Rewrites the stages one after the other.
class Expander {
 public:
  Expander(const Graph& graph, const Plan& plan, const SplitOptions& options, std::vector<bool> batched)
      : graph_(graph),
        plan_(plan),
        options_(options),
        batched_(std::move(batched)),
        pieces_(graph, batched_),
        layouts_(graph.values.size()),
        out_(graph, plan, layouts_) {
    out_.set_maker([this](ValueId value, const Region& region, int shard) {
      return make_on_demand(value, region, static_cast<size_t>(shard));
    });
  }
  Expander(const Expander&) = delete;
  Expander& operator=(const Expander&) = delete;

  Result<Expanded> run() {
    std::vector<PlanNote> notes;
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      stage_ = static_cast<int>(s);
      if (plan_.stages[s].split) {
        ASSIGN_OR_RETURN(std::vector<PlanNote> more, expand_stage(plan_.stages[s]));
        notes.insert(notes.end(), more.begin(), more.end());
      } else {
        copy_stage(plan_.stages[s]);
      }
    }
    Expanded expanded = out_.finish(graph_.outputs);
    expanded.notes = std::move(notes);
    return expanded;
  }

 private:
  size_t shards() const { return plan_.stages[static_cast<size_t>(stage_)].split->shares.size(); }
  const std::string& value_name(ValueId value) const { return graph_.value(value).name; }

  void copy_stage(const Stage& stage) {
    for (size_t n = stage.begin; n < stage.end; ++n) {
      const Node& node = graph_.nodes[n];
      std::vector<std::string> names;
      for (const ValueId output : node.outputs) {
        names.push_back(value_name(output));
        layouts_[output.index()].stage = stage_;
      }
      const std::vector<ValueId> made =
          emit(n, 0, node.name, {std::vector<Region>(node.inputs.size()), node.attrs}, {}, names);
      for (size_t i = 0; i < made.size(); ++i) out_.set_pieces(node.outputs[i], {{made[i], 0, 0}});
    }
  }

  Result<std::vector<PlanNote>> expand_stage(const Stage& stage) {
    std::vector<bool> alike;
    for (const Stage& other : plan_.stages) alike.push_back(other.split == stage.split);
    const ImageMultiples multiples = image_multiples(graph_, stage, options_.multiples);
    StageLayouts chosen =
        choose_layouts({graph_, stage, stage_, alike, batched_, options_.latency_bytes, multiples, pieces_}, layouts_);
    if (chosen.split_nodes == 0) {
      const std::string why =
          chosen.refused.empty() ? "no layer of it has a rule for that axis" : std::move(chosen.refused);
      return invalid_input(fmt::format("the stage from '{}' to '{}' cannot be split by {}: {}",
                                       graph_.nodes[stage.begin].name, graph_.nodes[stage.end - 1].name,
                                       name_of(stage.split->axis), why));
    }
    const std::vector<std::vector<Range>> ranges = ranges_of(stage);
    for (size_t n = stage.begin; n < stage.end; ++n) {
      const Node& node = graph_.nodes[n];
      const Layout& layout = layouts_[node.outputs[0].index()];
      if (layout.on_demand >= 0) continue;
      if (layout.sums())
        add_up(n, layout);
      else
        make_pieces(n, layout, ranges[n - stage.begin]);
    }
    return std::move(chosen.notes);
  }

  const std::optional<NodePiece>& piece(const Node& node, int axis, Range range) const {
    const SplitAxis how = plan_.stages[static_cast<size_t>(stage_)].split->axis;
    return pieces_.of(node, how, axis, range.begin, range.end);
  }

  // [node of the stage][shard]: what it computes of a split result. What it owns; where halos are recomputed also what
  // it needs for that, so backwards.
  std::vector<std::vector<Range>> ranges_of(const Stage& stage) const {
    std::vector<std::vector<Range>> ranges(stage.end - stage.begin);
    std::vector<std::vector<Range>> wanted(graph_.values.size());
    for (size_t n = stage.end; n-- > stage.begin;) {
      const Node& node = graph_.nodes[n];
      const Layout& layout = layouts_[node.outputs[0].index()];
      if (layout.axis < 0) continue;
      std::vector<Range>& own = ranges[n - stage.begin];
      for (size_t k = 0; k < shards(); ++k) own.push_back({layout.bounds[k], layout.bounds[k + 1]});
      if (!stage.split->recompute_halo || layout.sums()) continue;
      for (size_t k = 0; k < shards(); ++k) {
        Range hull = own[k];
        if (const std::vector<Range>& more = wanted[node.outputs[0].index()]; !more.empty() && more[k].end > 0)
          hull = {std::min(hull.begin, more[k].begin), std::max(hull.end, more[k].end)};
        // Else the rows between come from their owners.
        if (piece(node, layout.axis, hull)) own[k] = hull;
        const std::optional<NodePiece>& made = piece(node, layout.axis, own[k]);
        for (size_t i = 0; i < node.inputs.size(); ++i) want(node.inputs[i], made->inputs[i], k, wanted);
        for (const EpilogueStep& step : node.epilogue)
          want(step.operand, {layout.axis, own[k].begin, own[k].end}, k, wanted);
      }
    }
    return ranges;
  }

  void want(ValueId value, const Region& region, size_t shard, std::vector<std::vector<Range>>& wanted) const {
    if (!value.valid() || region.axis < 0 || is_empty(region)) return;
    const Layout& layout = layouts_[value.index()];
    if (layout.stage != stage_ || layout.axis != region.axis) return;
    std::vector<Range>& of_value = wanted[value.index()];
    of_value.resize(shards());
    Range& hull = of_value[shard];
    hull = hull.end == 0 ? Range{region.begin, region.end}
                         : Range{std::min(hull.begin, region.begin), std::max(hull.end, region.end)};
  }

  void make_pieces(size_t n, const Layout& layout, const std::vector<Range>& ranges) {
    const Node& node = graph_.nodes[n];
    std::vector<std::vector<ShardPiece>> pieces(node.outputs.size());
    for (size_t k = 0; k < shards(); ++k) {
      NodePiece part{std::vector<Region>(node.inputs.size()), node.attrs};
      Region made;
      if (layout.axis >= 0) {
        const std::optional<NodePiece>& cut = piece(node, layout.axis, ranges[k]);
        CHECK(cut.has_value(), fmt::format("'{}' has no piece that it was given", node.name));
        part = *cut;
        made = {layout.axis, ranges[k].begin, ranges[k].end};
      }
      if (const ValueId same = already_cut(node, part, k); same.valid()) {
        pieces[0].push_back({same, made.begin, made.end});
        continue;
      }
      std::vector<std::string> names;
      for (const ValueId output : node.outputs) names.push_back(fmt::format("{}#{}", value_name(output), k));
      const std::vector<ValueId> values = emit(n, k, fmt::format("{}#{}", node.name, k), part, made, names);
      for (size_t i = 0; i < values.size(); ++i) pieces[i].push_back({values[i], made.begin, made.end});
    }
    for (size_t i = 0; i < pieces.size(); ++i) out_.set_pieces(node.outputs[i], std::move(pieces[i]));
  }

  // A Slice of what was made for it alone takes all of that: there is nothing to copy.
  ValueId already_cut(const Node& node, const NodePiece& part, size_t shard) {
    if (node.op != Op::Slice || !node.epilogue.empty() || layouts_[node.inputs[0].index()].on_demand < 0) return {};
    const Region& region = part.inputs[0];
    if (region.axis < 0) return {};
    Shape taken = graph_.value(node.inputs[0]).type.shape, result = graph_.value(node.outputs[0]).type.shape;
    taken[static_cast<size_t>(region.axis)] = result[static_cast<size_t>(region.axis)] = region.end - region.begin;
    const auto unit = [](int64_t step) { return step == 1; };
    if (taken != result || !std::ranges::all_of(attr_ints(node.attrs, "steps"), unit)) return {};
    return out_.fetch(node.inputs[0], region, stage_, static_cast<int>(shard));
  }

  ValueId make_on_demand(ValueId value, const Region& region, size_t shard) {
    const size_t n = graph_.value(value).producer.index();
    const Node& node = graph_.nodes[n];
    NodePiece part{std::vector<Region>(node.inputs.size()), node.attrs};
    if (region.axis >= 0) {
      const std::optional<NodePiece>& cut = piece(node, region.axis, {region.begin, region.end});
      CHECK(cut.has_value(), fmt::format("'{}' has no piece that a reader needs", node.name));
      part = *cut;
    }
    return emit(n, shard, fmt::format("{}#{}", node.name, shard), part, region,
                {fmt::format("{}#{}", value_name(value), shard)})[0];
  }

  // Partial sums, one a shard, the bias in the first; added by each shard whole or in slices; then the epilogue.
  void add_up(size_t n, const Layout& layout) {
    const Node& node = graph_.nodes[n];
    const ValueId result = node.outputs[0];
    std::vector<ValueId> partial;
    for (size_t k = 0; k < shards(); ++k) {
      const auto& part = pieces_.sum_of(node, layout.inner[k], layout.inner[k + 1], k == 0);
      CHECK(part.has_value(), fmt::format("'{}' has no partial sum that it was given", node.name));
      Node sum;
      sum.op = node.op;
      sum.name = fmt::format("{}#{}", node.name, k);
      sum.attrs = part->attrs;
      for (size_t i = 0; i < part->inputs.size(); ++i)
        sum.inputs.push_back(out_.fetch(node.inputs[i], part->inputs[i], stage_, static_cast<int>(k)));
      partial.push_back(out_.emit(std::move(sum), {fmt::format("{}.partial#{}", value_name(result), k)}, stage_,
                                  static_cast<int>(k), static_cast<int>(n))[0]);
    }
    std::vector<ShardPiece> pieces;
    for (size_t k = 0; k < shards(); ++k) {
      Region region;
      if (layout.axis >= 0) region = {layout.axis, layout.bounds[k], layout.bounds[k + 1]};
      Node sum;
      sum.op = Op::Sum;
      sum.name = fmt::format("{}.sum#{}", node.name, k);
      for (size_t p = 0; p < partial.size(); ++p)
        sum.inputs.push_back(out_.part_of(partial[p], {region}, fmt::format("{}#{}.part{}", node.name, p, k)));
      const std::string last = fmt::format("{}#{}", value_name(result), k);
      const std::string first = node.epilogue.empty() ? last : sum.name;
      ValueId value = out_.emit(std::move(sum), {first}, stage_, static_cast<int>(k), -1)[0];
      for (size_t i = 0; i < node.epilogue.size(); ++i) {
        const EpilogueStep& step = node.epilogue[i];
        Node then;
        then.op = step.op;
        then.name = fmt::format("{}#{}", step.name, k);
        then.attrs = step.attrs;
        then.inputs = {value};
        if (step.operand.valid()) then.inputs.push_back(out_.fetch(step.operand, region, stage_, static_cast<int>(k)));
        const std::string name = i + 1 == node.epilogue.size() ? last : then.name;
        value = out_.emit(std::move(then), {name}, stage_, static_cast<int>(k), static_cast<int>(n))[0];
      }
      pieces.push_back({value, region.begin, region.end});
    }
    out_.set_pieces(result, std::move(pieces));
  }

  std::vector<ValueId> emit(size_t n, size_t shard, std::string name, const NodePiece& part, const Region& made,
                            const std::vector<std::string>& value_names) {
    const Node& node = graph_.nodes[n];
    Node copy;
    copy.op = node.op;
    copy.name = std::move(name);
    copy.attrs = part.attrs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!node.inputs[i].valid())
        copy.inputs.emplace_back();
      else if (!is_empty(part.inputs[i]))
        copy.inputs.push_back(out_.fetch(node.inputs[i], part.inputs[i], stage_, static_cast<int>(shard)));
    }
    for (const EpilogueStep& step : node.epilogue) {
      EpilogueStep& then = copy.epilogue.emplace_back(step);
      if (plan_.stages[static_cast<size_t>(stage_)].split) then.name = fmt::format("{}#{}", step.name, shard);
      if (step.operand.valid()) then.operand = out_.fetch(step.operand, made, stage_, static_cast<int>(shard));
    }
    return out_.emit(std::move(copy), value_names, stage_, static_cast<int>(shard), static_cast<int>(n), made);
  }

  const Graph& graph_;
  const Plan& plan_;
  const SplitOptions options_;
  const std::vector<bool> batched_;
  mutable Pieces pieces_;
  std::vector<Layout> layouts_;  // [value]
  PieceGraph out_;
  int stage_ = 0;
};

bool uses_batch(const Plan& plan) {
  return std::ranges::any_of(plan.stages,
                             [](const Stage& stage) { return stage.split && stage.split->axis == SplitAxis::batch; });
}

}  // namespace

void add_slices(const std::vector<WeightSlice>& slices, WeightStore& weights) {
  for (const WeightSlice& slice : slices) {
    const ContentId id = weights.add_slice(slice.from, slice.axis, slice.begin, slice.end, slice.whole);
    CHECK(id == slice.id, "a slice of a weight with another id than planned");
  }
}

Result<Expanded> expand_splits(const Graph& at_micro_batch, const Plan& plan, const SplitOptions& options) {
  std::vector<bool> batched(at_micro_batch.values.size(), false);
  if (uses_batch(plan)) {
    ASSIGN_OR_RETURN(batched, batched_values(at_micro_batch));
  }
  return Expander(at_micro_batch, plan, options, std::move(batched)).run();
}

std::vector<SplitAxis> applicable_axes(const Graph& graph, size_t begin, size_t end, std::span<const SplitAxis> axes) {
  std::vector<SplitAxis> applicable;
  const std::vector<bool> alike{false};
  std::vector<bool> batched(graph.values.size(), false);
  if (std::ranges::find(axes, SplitAxis::batch) != axes.end()) {
    if (auto by_sample = batched_values(graph); by_sample.ok()) batched = std::move(by_sample).value();
  }
  Pieces pieces(graph, batched);
  for (const SplitAxis axis : axes) {
    const Stage stage{begin, end, {DeviceId(0), DeviceId(1)}, Split{axis, false, {1, 1}}};
    std::vector<Layout> layouts(graph.values.size());
    // The first layer that is split so is enough.
    bool applies = false;
    choose_layouts({graph, stage, 0, alike, batched, bytes(0), {}, pieces}, layouts,
                   [&](const Node& node, const StageLayouts& chosen) {
                     const bool is_split = layouts[node.outputs[0].index()].axis >= 0;
                     switch (axis) {
                       case SplitAxis::batch:
                         applies = chosen.split_nodes > 0;
                         break;
                       case SplitAxis::height:
                       case SplitAxis::width:  // convolutions and pools have one
                         applies = is_split && find_attr(node.attrs, "kernel_shape") != nullptr;
                         break;
                       case SplitAxis::channels:
                       case SplitAxis::sequence:
                         applies = is_split && column_axis(graph, node) >= 0;
                         break;
                       case SplitAxis::tensor:
                         applies = chosen.sums > 0;
                         break;
                     }
                     return applies;
                   });
    if (applies) applicable.push_back(axis);
  }
  return applicable;
}

}  // namespace nlsplit::inline partition
