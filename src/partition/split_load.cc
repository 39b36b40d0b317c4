#include "partition/split_load.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "cost/messages.h"
#include "graph/operators/operator.h"
#include "graph/passes/passes.h"
#include "partition/group_play.h"
#include "partition/split_parts.h"

namespace nlsplit::inline partition {

namespace {

double bytes_of_value(const Graph& graph, ValueId value) {
  return static_cast<double>(size_of(graph.value(value).type).value());
}

int64_t extent_of(const Graph& graph, ValueId value, int axis) {
  return graph.value(value).type.shape[static_cast<size_t>(axis)];
}

// Fills in SplitParts, a node after the other.
class PartsFinder {
 public:
  PartsFinder(const Graph& graph, const Split& split, const std::vector<bool>& batched, Bytes latency_bytes,
              const ImageMultiples& multiples, DType messages, const StepCosts* step, Pieces& pieces)
      : graph_(graph),
        split_(split),
        messages_(messages),
        step_(step),
        pieces_(pieces),
        weight_seen_(graph.values.size(), false) {
    found_.layouts.resize(graph.values.size());
    std::vector<DeviceId> devices;
    for (size_t k = 0; k < shards(); ++k) devices.emplace_back(k);
    const Stage all{0, graph.nodes.size(), devices, split};
    const std::vector<bool> alike{false};
    choose_layouts({graph, all, 0, alike, batched, latency_bytes, multiples, pieces}, found_.layouts);
    const auto sum = static_cast<double>(std::accumulate(split.shares.begin(), split.shares.end(), int64_t{0}));
    for (const int64_t share : split.shares) shares_.push_back(static_cast<double>(share) / sum);
  }

  SplitParts run() {
    for (const Node& node : graph_.nodes) found_.nodes.push_back(parts_of(node));
    return std::move(found_);
  }

 private:
  size_t shards() const { return split_.shares.size(); }

  SplitParts::OfNode parts_of(const Node& node) {
    const Layout& layout = found_.layouts[node.outputs[0].index()];
    SplitParts::OfNode parts;
    parts.is_split = (layout.axis >= 0 || layout.sums()) && !is_view(node.op);
    // [shard]: what it reads. Made on demand: its share, from whole inputs.
    std::vector<const NodePiece*> pieces(shards(), nullptr);
    const auto known = [](const Pieces::Piece& piece) { return piece ? &*piece : nullptr; };
    for (size_t k = 0; k < shards(); ++k) {
      if (layout.sums()) {
        pieces[k] = known(pieces_.sum_of(node, layout.inner[k], layout.inner[k + 1], k == 0));
        parts.work.push_back(part(layout.inner, k));
      } else if (layout.axis >= 0) {
        pieces[k] = known(pieces_.of(node, split_.axis, layout.axis, layout.bounds[k], layout.bounds[k + 1]));
        parts.work.push_back(part(layout.bounds, k));
      } else if (layout.on_demand >= 0) {
        parts.work.push_back(shares_[k]);
      }
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      if (!input.valid()) continue;
      std::vector<Region> regions(shards());
      for (size_t k = 0; k < shards(); ++k) {
        if (pieces[k] != nullptr && i < pieces[k]->inputs.size()) regions[k] = pieces[k]->inputs[i];
      }
      if (graph_.value(input).kind == ValueKind::weight)
        read_weight(input, regions, layout.on_demand >= 0, parts);
      else
        take(input, regions, parts);
    }
    for (const EpilogueStep& step : node.epilogue) {
      if (!step.operand.valid() || graph_.value(step.operand).kind == ValueKind::weight) continue;
      std::vector<Region> regions(shards());
      for (size_t k = 0; layout.axis >= 0 && k < shards(); ++k)
        regions[k] = {layout.axis, layout.bounds[k], layout.bounds[k + 1]};
      take(step.operand, regions, parts);
    }
    return parts;
  }

  static double part(const std::vector<int64_t>& bounds, size_t k) {
    return static_cast<double>(bounds[k + 1] - bounds[k]) / static_cast<double>(bounds.back());
  }

  void read_weight(ValueId weight, const std::vector<Region>& regions, bool on_demand, SplitParts::OfNode& parts) {
    if (weight_seen_[weight.index()]) return;
    weight_seen_[weight.index()] = true;
    parts.weight_bytes.resize(shards(), 0);
    parts.whole_bytes += bytes_of_value(graph_, weight);
    const auto is_whole = [](const Region& region) { return region.axis < 0; };
    if (step_ != nullptr && step_->trained[weight.index()] && !on_demand && std::ranges::all_of(regions, is_whole))
      parts.shared_bytes += bytes_of_value(graph_, weight);
    for (size_t k = 0; k < shards(); ++k) {
      double read = on_demand ? shares_[k] : 1;
      if (regions[k].axis >= 0)
        read = static_cast<double>(regions[k].end - regions[k].begin) /
               static_cast<double>(extent_of(graph_, weight, regions[k].axis));
      parts.weight_bytes[k] += read * bytes_of_value(graph_, weight);
    }
  }

  void take(ValueId value, const std::vector<Region>& regions, SplitParts::OfNode& parts) {
    const Layout& from = found_.layouts[value.index()];
    if (from.axis < 0) return;  // every shard has all of it, or makes it
    const int64_t extent = extent_of(graph_, value, from.axis);
    PieceExchange exchange{value, {}, {}};
    bool needed = false;
    for (size_t k = 0; k < shards(); ++k) {
      Region wanted{from.axis, 0, extent};
      double of_other_axes = 1;
      if (regions[k].axis == from.axis)
        wanted = regions[k];
      else if (regions[k].axis >= 0)
        of_other_axes = static_cast<double>(regions[k].end - regions[k].begin) /
                        static_cast<double>(extent_of(graph_, value, regions[k].axis));
      // Rows that others have are computed instead.
      if (split_.recompute_halo && regions[k].axis == from.axis)
        wanted = {from.axis, from.bounds[k], from.bounds[k + 1]};
      needed |= !is_empty(wanted) && (wanted.begin < from.bounds[k] || wanted.end > from.bounds[k + 1]);
      exchange.wanted.push_back(wanted);
      exchange.bytes.push_back(of_other_axes * least_message_bytes(graph_.value(value).type, messages_) /
                               static_cast<double>(extent));
    }
    if (!needed) return;
    // What one reader has taken is there for the next.
    std::vector<size_t>& known = of_value_[value.index()];
    const auto same = std::ranges::find_if(known, [&](size_t e) {
      return found_.exchanges[e].wanted == exchange.wanted && found_.exchanges[e].bytes == exchange.bytes;
    });
    if (same != known.end()) {
      parts.exchanges.push_back(*same);
      return;
    }
    known.push_back(found_.exchanges.size());
    parts.exchanges.push_back(found_.exchanges.size());
    found_.exchanges.push_back(std::move(exchange));
  }

  const Graph& graph_;
  const Split& split_;
  DType messages_;
  const StepCosts* step_;  // of training
  Pieces& pieces_;
  std::vector<double> shares_;     // [shard], sum 1
  std::vector<bool> weight_seen_;  // [value]
  std::map<size_t, std::vector<size_t>> of_value_;
  SplitParts found_;
};

}  // namespace

SplitLoads::SplitLoads(const Graph& graph, const Cluster& cluster, const Network& network, const SearchCosts& costs,
                       std::vector<int64_t> multiples)
    : graph_(graph),
      cluster_(cluster),
      network_(network),
      costs_(costs),
      multiples_(std::move(multiples)),
      kinds_(device_kinds(costs.node_seconds)),
      batched_(graph.values.size(), false),
      pieces_(graph, batched_) {
  if (auto batched = batched_values(graph); batched.ok()) batched_ = std::move(batched).value();
}

SplitLoads::~SplitLoads() = default;

const SplitParts& SplitLoads::parts(const Stage& stage, Bytes latency_bytes) {
  const Split& split = *stage.split;
  ImageMultiples multiples = image_multiples(graph_, stage, multiples_);
  const auto [at, added] = parts_.try_emplace(
      {split.axis, split.recompute_halo, split.shares, latency_bytes.value(), std::move(multiples)}, nullptr);
  if (added)
    at->second = std::make_unique<const SplitParts>(PartsFinder(graph_, split, batched_, latency_bytes,
                                                                std::get<ImageMultiples>(at->first), cluster_.messages,
                                                                costs_.step.get(), pieces_)
                                                        .run());
  return *at->second;
}

// Whether two groups of a stage take the same time.
bool SplitLoads::is_alike(const Stage& stage, size_t group, size_t other) const {
  const size_t shards = stage.split->shares.size();
  const DeviceId* a = &stage.devices[group * shards];
  const DeviceId* b = &stage.devices[other * shards];
  for (size_t j = 0; j < shards; ++j) {
    if (kinds_[a[j].index()] != kinds_[b[j].index()]) return false;
    for (size_t k = 0; k < shards; ++k) {
      const Path &x = path(a[j], a[k]), &y = path(b[j], b[k]);
      if (x.latency != y.latency || x.seconds_per_byte != y.seconds_per_byte) return false;
    }
  }
  return true;
}

ShardSeconds SplitLoads::seconds_of(DeviceId device) const {
  const size_t d = device.index();
  if (costs_.step == nullptr) return {&costs_.node_seconds[d]};
  const StepCosts& step = *costs_.step;
  return {&step.forward[d], &step.inputs[d], &step.weights[d], &step.updates[d]};
}

std::optional<PlanLoads> SplitLoads::of(const std::vector<Stage>& stages) {
  double most = 0;  // as expand_plan finds it
  for (const Stage& stage : stages) {
    if (!stage.split) continue;
    const size_t shards = stage.split->shares.size();
    for (size_t first = 0; first < stage.devices.size(); first += shards) {
      for (size_t j = first; j < first + shards; ++j) {
        for (size_t k = first; k < first + shards; ++k) {
          const Path& between = path(stage.devices[j], stage.devices[k]);
          if (j != k && !between.exists) return std::nullopt;
          if (k == j + 1 && between.seconds_per_byte > 0)
            most = std::max(most, between.latency / between.seconds_per_byte);
        }
      }
    }
  }
  PlanLoads loads(stages.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    const Stage& stage = stages[s];
    if (!stage.split) continue;
    const SplitParts& of_all = parts(stage, bytes(static_cast<int64_t>(most)));
    const auto nodes = std::span(of_all.nodes).subspan(stage.begin, stage.end - stage.begin);
    if (std::ranges::none_of(nodes, &SplitParts::OfNode::is_split)) return std::nullopt;
    const size_t shards = stage.split->shares.size();
    for (size_t g = 0; g < stage.devices.size() / shards; ++g) {
      if (g > 0 && is_alike(stage, g, g - 1)) {
        loads[s].push_back(loads[s].back());
        continue;
      }
      std::vector<const Path*> links(shards * shards);
      std::vector<ShardSeconds> seconds;
      const DeviceId* devices = &stage.devices[g * shards];
      for (size_t j = 0; j < shards; ++j) {
        seconds.push_back(seconds_of(devices[j]));
        for (size_t k = 0; k < shards; ++k) links[j * shards + k] = &path(devices[j], devices[k]);
      }
      loads[s].push_back(play_group(graph_, of_all, stage, cluster_.messages, links, seconds));
    }
  }
  return loads;
}

}  // namespace nlsplit::inline partition
