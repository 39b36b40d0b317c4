#include "partition/search_splits.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "partition/cuts.h"
#include "partition/expand.h"
#include "partition/rename_alike.h"
#include "partition/split_shares.h"

namespace nlsplit::inline partition {
namespace {

constexpr double alike_enough = 1.03;     // times as long as another device takes
constexpr size_t most_end_cuts = 12;      // where a split beginning ends, or a split end begins
constexpr size_t most_end_devices = 8;    // that share it
constexpr size_t most_layer_plans = 100;  // whose stages are split
constexpr size_t scored_for_one = 4;      // plans that are scored, for each that is wanted

class SplitSearch {
 public:
  SplitSearch(const Graph& graph, const Cluster& cluster, HostId source, PlanScorer& scorer,
              const SearchOptions& options, const std::vector<size_t>& class_of)
      : graph_(graph),
        cluster_(cluster),
        class_of_(class_of),
        costs_(scorer.costs()),
        options_(options),
        plan_scorer_(scorer),
        scorer_(scorer.scorer()) {
    std::vector<double> whole;
    for (size_t d = 0; d < cluster.devices.size(); ++d) {
      if (std::ranges::find(options.left_out, DeviceId(d)) == options.left_out.end()) by_speed_.push_back(DeviceId(d));
      whole.push_back(scorer_.seconds(DeviceId(d), 0, graph.nodes.size()));
    }
    // Of equals those where the inputs are.
    std::ranges::stable_sort(by_speed_, [&](DeviceId a, DeviceId b) {
      const double x = whole[a.index()], y = whole[b.index()];
      return x != y ? x < y : (cluster.device(a).host == source) > (cluster.device(b).host == source);
    });
    for (const double seconds : scorer.network().lane_seconds_per_byte)
      slowest_link_ = std::max(slowest_link_, seconds);
    const Shape& input = graph.value(graph.inputs[0]).type.shape;
    if (!input.empty()) samples_ = input[0];
    most_devices_ = options.max_devices > 0 ? std::min(options.max_devices, by_speed_.size()) : by_speed_.size();
  }

  void split_stages_of(const std::vector<ScoredPlan>& layers) {
    size_t looked_at = 0;
    for (const ScoredPlan& scored : layers) {
      if (interrupted()) return;
      const std::vector<Stage>& stages = scored.plan.stages;
      if (std::ranges::none_of(stages, [](const Stage& stage) { return stage.devices.size() > 1; })) continue;
      if (looked_at++ >= most_layer_plans) return;
      for (size_t s = 0; s < stages.size(); ++s) {
        if (stages[s].devices.size() > 1) split(stages, s);
      }
      if (costs_.step) split_all(stages);
    }
  }

  void split_ends() {
    const std::vector<size_t> cuts = thin_cuts(find_cuts(graph_), costs_.cut_bytes, most_end_cuts);
    for (size_t k = 2; k <= std::min(most_devices_, most_end_devices); ++k) {
      std::vector<DeviceId> devices(by_speed_.begin(), by_speed_.begin() + static_cast<std::ptrdiff_t>(k));
      std::sort(devices.begin(), devices.end());
      for (const size_t cut : cuts) {
        if (interrupted()) return;
        const size_t end = graph_.nodes.size();
        if (cut == end) {
          split({{0, end, devices}}, 0);
          continue;
        }
        if (options_.max_stages == 1) continue;
        split({{0, cut, devices}, {cut, end, {by_speed_[0]}}}, 0);
        split({{0, cut, {by_speed_[0]}}, {cut, end, devices}}, 1);
        if (k == most_devices_) continue;
        split({{0, cut, devices}, {cut, end, {by_speed_[k]}}}, 0);
        std::vector<DeviceId> others(by_speed_.begin() + 1, by_speed_.begin() + static_cast<std::ptrdiff_t>(k) + 1);
        std::sort(others.begin(), others.end());
        split({{0, cut, {by_speed_[0]}}, {cut, end, others}}, 1);
      }
    }
  }

  // The best of each kind in turn, of those that are best by a guess.
  std::vector<ScoredPlan> best(size_t most, const std::function<double(const ScoredPlan&)>& cost) {
    for (auto& [kind, all] : kinds_) std::ranges::stable_sort(all, {}, &Found::guess);
    std::map<Kind, std::vector<ScoredPlan>> scored;
    size_t left = most * scored_for_one;
    take_turns(kinds_, [&](const Kind& kind, const Found& found) {
      if (left == 0 || interrupted()) return false;
      --left;
      ScoredPlan plan = plan_scorer_.score(found.stages);
      if (std::isfinite(plan.bound_seconds)) scored[kind].push_back(std::move(plan));
      return true;
    });
    for (auto& [kind, all] : scored) std::ranges::stable_sort(all, {}, cost);
    std::vector<ScoredPlan> plans;
    take_turns(scored, [&](const Kind&, ScoredPlan& plan) {
      if (plans.size() == most) return false;
      plans.push_back(std::move(plan));
      return true;
    });
    std::ranges::stable_sort(plans, {}, &ScoredPlan::bound_seconds);
    return plans;
  }

 private:
  // Recompute the halo; devices of the split stage; shards; their shares: by speed, or which of those by memory.
  using Kind = std::tuple<SplitAxis, bool, size_t, size_t, size_t>;
  struct Found {
    std::vector<Stage> stages;
    double guess = 0;  // a bound without its messages, and what its pieces take on the slowest link
  };

  // The first of each kind, the second of each, … as long as `take` says so.
  template <class Kinds, class Take>
  static void take_turns(Kinds& kinds, const Take& take) {
    bool more = true;
    for (size_t place = 0; more; ++place) {
      more = false;
      for (auto& [kind, all] : kinds) {
        if (place >= all.size()) continue;
        if (!take(kind, all[place])) return;
        more = true;
      }
    }
  }

  // Every stage of several devices along the same axis: a pipeline of such stages.
  void split_all(const std::vector<Stage>& whole) {
    for (const SplitAxis axis : options_.axes) {
      std::vector<Stage> stages = whole;
      size_t split = 0, devices = 0;
      for (Stage& stage : stages) {
        if (stage.devices.size() < 2 || std::ranges::find(axes_of(stage), axis) == axes_of(stage).end()) continue;
        if (axis == SplitAxis::batch && samples_ < static_cast<int64_t>(stage.devices.size())) continue;
        stage.split = Split{axis, false, shares_by_speed(costs_, stage)};
        devices += stage.devices.size();
        ++split;
      }
      if (split > 1) add(stages, {axis, false, devices, devices / split, 0}, joined_bytes(stages));
    }
  }

  // Between stages of a micro-batch, of those that are split.
  double joined_bytes(const std::vector<Stage>& stages) const {
    double bytes = 0;
    for (const Stage& stage : stages) bytes += stage.split ? costs_.cut_bytes[stage.end] : 0;
    return bytes;
  }

  const std::vector<SplitAxis>& axes_of(const Stage& stage) {
    const auto [axes, added] = axes_.try_emplace({stage.begin, stage.end});
    if (added) axes->second = applicable_axes(graph_, stage.begin, stage.end, options_.axes);
    return axes->second;
  }

  bool interrupted() const { return options_.interrupted && options_.interrupted(); }

  void split(std::vector<Stage> stages, size_t s) {
    split_among(stages, s, stages[s].devices.size());
    for (size_t shards = 2; shards * 2 <= stages[s].devices.size(); ++shards) {
      if (group_devices(stages[s], shards)) split_among(stages, s, shards);
    }
  }

  // Puts devices in groups of so many, replicas of each other, all with the same shares. False: they cannot be.
  bool group_devices(Stage& stage, size_t shards) const {
    const size_t groups = stage.devices.size() / shards;
    if (groups * shards != stage.devices.size() || groups > static_cast<size_t>(costs_.micro_batches)) return false;
    // As fast as each other: devices of a group are neighbours. Else the fastest of each group first, then the second.
    const auto seconds = [&](DeviceId device) { return scorer_.seconds(device, stage.begin, stage.end); };
    const auto alike = [&](DeviceId a, DeviceId b) { return seconds(a) <= alike_enough * seconds(b); };
    std::vector<DeviceId> by_speed = stage.devices;
    std::ranges::stable_sort(by_speed, {}, seconds);
    if (alike(by_speed.back(), by_speed.front())) return true;
    std::vector<DeviceId> grouped(by_speed.size());
    for (size_t shard = 0; shard < shards; ++shard) {
      if (!alike(by_speed[shard * groups + groups - 1], by_speed[shard * groups])) return false;
      for (size_t g = 0; g < groups; ++g) grouped[g * shards + shard] = by_speed[shard * groups + g];
    }
    stage.devices = std::move(grouped);
    return true;
  }

  // In groups of so many shards, in the order of their devices.
  void split_among(std::vector<Stage>& stages, size_t s, size_t shards) {
    const Stage& stage = stages[s];
    Stage group = stage;
    group.devices.resize(shards);
    const std::vector<int64_t> by_speed = shares_by_speed(costs_, group);
    for (const SplitAxis axis : axes_of(stage)) {
      if (axis == SplitAxis::batch && samples_ < static_cast<int64_t>(shards)) continue;
      split_along(axis, stages, s, shards, by_speed, 0);
      size_t kind = 0;
      for (const std::vector<int64_t>& shares : shares_by_memory(by_speed, shard_bytes(axis, stage, shards)))
        split_along(axis, stages, s, shards, shares, ++kind);
    }
  }

  void split_along(SplitAxis axis, std::vector<Stage>& stages, size_t s, size_t shards,
                   const std::vector<int64_t>& shares, size_t kind_of_shares) {
    Stage& stage = stages[s];
    const bool rows = axis == SplitAxis::height || axis == SplitAxis::width;
    for (const bool recompute : {false, true}) {
      if (recompute && !rows) continue;
      stage.split = Split{axis, recompute, shares};
      add(stages, {axis, recompute, stage.devices.size(), shards, kind_of_shares}, costs_.cut_bytes[stage.end]);
    }
  }

  // Weights are shared among the shards where these divide channels, heads or columns; else every shard has all.
  ShardBytes shard_bytes(SplitAxis axis, const Stage& stage, size_t shards) const {
    const double held = costs_.step ? costs_.step->held_bytes : 1;
    const double weights = held * plan_scorer_.weight_bytes_of(stage), values = plan_scorer_.largest_layer_bytes(stage);
    const bool divides_weights = axis == SplitAxis::channels || axis == SplitAxis::tensor;
    ShardBytes bytes{divides_weights ? 0 : weights, divides_weights ? weights + values : values,
                     std::vector<double>(shards, never)};
    for (size_t i = 0; i < stage.devices.size(); ++i) {
      double& least = bytes.memory[i % shards];
      least = std::min(least, static_cast<double>(cluster_.device(stage.devices[i]).memory.value()));
    }
    return bytes;
  }

  void add(std::vector<Stage> stages, const Kind& kind, double joined_bytes) {
    rename_alike(stages, class_of_);
    const double bound = scorer_.bound(stages);
    if (!std::isfinite(bound)) return;
    std::vector<Found>& all = kinds_[kind];
    if (std::ranges::any_of(all, [&](const Found& other) { return other.stages == stages; })) return;
    all.push_back({std::move(stages), bound + costs_.micro_batches * joined_bytes * slowest_link_});
  }

  const Graph& graph_;
  const Cluster& cluster_;
  const std::vector<size_t>& class_of_;
  const SearchCosts& costs_;
  const SearchOptions& options_;
  PlanScorer& plan_scorer_;
  const Scorer& scorer_;
  std::vector<DeviceId> by_speed_;
  double slowest_link_ = 0;  // seconds for a byte
  size_t most_devices_ = 0;
  int64_t samples_ = 1;                                               // of a micro-batch
  std::map<std::pair<size_t, size_t>, std::vector<SplitAxis>> axes_;  // by begin and end of a stage
  std::map<Kind, std::vector<Found>> kinds_;
};

}  // namespace

std::vector<ScoredPlan> search_splits(const Graph& graph, const Cluster& cluster, HostId source, PlanScorer& scorer,
                                      const SearchOptions& options, const SearchResult& layers, size_t most,
                                      const std::function<double(const ScoredPlan&)>& cost) {
  if (options.axes.empty() || cluster.devices.size() < options.left_out.size() + 2) return {};
  SplitSearch search(graph, cluster, source, scorer, options, layers.class_of);
  search.split_stages_of(layers.plans);
  search.split_ends();
  return search.best(most, cost);
}

}  // namespace nlsplit::inline partition
