#include "partition/search_splits.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "partition/cuts.h"
#include "partition/expand.h"

namespace nlsplit::inline partition {
namespace {

constexpr int64_t most_shares_each = 8;   // so many for each device, on average
constexpr double good_enough = 1.03;      // times what exact shares would take
constexpr size_t most_end_cuts = 12;      // where a split beginning ends, or a split end begins
constexpr size_t most_end_devices = 8;    // that share it
constexpr size_t most_layer_plans = 100;  // whose stages are split
constexpr size_t scored_for_one = 4;      // plans that are scored, for each that is wanted

class SplitSearch {
 public:
  SplitSearch(const Graph& graph, const Cluster& cluster, HostId source, PlanScorer& scorer,
              const SearchOptions& options)
      : graph_(graph), costs_(scorer.costs()), options_(options), plan_scorer_(scorer), scorer_(scorer.scorer()) {
    std::vector<double> whole;
    for (size_t d = 0; d < cluster.devices.size(); ++d) {
      by_speed_.push_back(DeviceId(d));
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
  using Kind = std::tuple<SplitAxis, bool, size_t, size_t>;  // recompute the halo, devices of the split stage, shards
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
    const auto alike = [&](DeviceId a, DeviceId b) { return seconds(a) <= good_enough * seconds(b); };
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
    Stage& stage = stages[s];
    const auto [axes, added] = axes_.try_emplace({stage.begin, stage.end});
    if (added) axes->second = applicable_axes(graph_, stage.begin, stage.end, options_.axes);
    Stage group = stage;
    group.devices.resize(shards);
    const std::vector<int64_t> shares = shares_by_speed(costs_, group);
    for (const SplitAxis axis : axes->second) {
      if (axis == SplitAxis::batch && samples_ < static_cast<int64_t>(shares.size())) continue;
      const bool rows = axis == SplitAxis::height || axis == SplitAxis::width;
      for (const bool recompute : {false, true}) {
        if (recompute && !rows) continue;
        stage.split = Split{axis, recompute, shares};
        add(stages, {axis, recompute, stage.devices.size(), shards}, costs_.cut_bytes[stage.end]);
      }
    }
  }

  void add(const std::vector<Stage>& stages, const Kind& kind, double joined_bytes) {
    const double bound = scorer_.bound(stages);
    if (!std::isfinite(bound)) return;
    std::vector<Found>& all = kinds_[kind];
    if (std::ranges::any_of(all, [&](const Found& other) { return other.stages == stages; })) return;
    all.push_back({stages, bound + costs_.micro_batches * joined_bytes * slowest_link_});
  }

  const Graph& graph_;
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

std::vector<int64_t> small_shares(const std::vector<double>& seconds) {
  const auto count = static_cast<int64_t>(seconds.size());
  std::vector<int64_t> best(seconds.size(), 1);
  if (std::ranges::any_of(seconds, [](double s) { return s <= 0; })) return best;
  const auto time_of = [&](const std::vector<int64_t>& shares) {
    const auto all = static_cast<double>(std::accumulate(shares.begin(), shares.end(), int64_t{0}));
    double slowest = 0;
    for (size_t i = 0; i < shares.size(); ++i)
      slowest = std::max(slowest, static_cast<double>(shares[i]) / all * seconds[i]);
    return slowest;
  };
  const double ideal = shared_seconds(seconds);
  double least = time_of(best);
  for (int64_t all = count + 1; all <= count * most_shares_each && least > good_enough * ideal; ++all) {
    const std::vector<int> jobs = share_jobs(static_cast<int>(all), seconds);
    if (std::ranges::find(jobs, 0) != jobs.end()) continue;
    const std::vector<int64_t> shares(jobs.begin(), jobs.end());
    const double time = time_of(shares);
    if (time >= least) continue;
    least = time;
    best = shares;
  }
  int64_t divisor = 0;
  for (const int64_t share : best) divisor = std::gcd(divisor, share);
  for (int64_t& share : best) share /= divisor;
  return best;
}

std::vector<int64_t> shares_by_speed(const SearchCosts& costs, const Stage& stage) {
  std::vector<double> seconds;
  for (const DeviceId device : stage.devices) {
    const std::vector<double>& of = costs.node_seconds[device.index()];
    seconds.push_back(std::accumulate(of.begin() + static_cast<std::ptrdiff_t>(stage.begin),
                                      of.begin() + static_cast<std::ptrdiff_t>(stage.end), 0.0));
  }
  return small_shares(seconds);
}

std::vector<ScoredPlan> search_splits(const Graph& graph, const Cluster& cluster, HostId source, PlanScorer& scorer,
                                      const SearchOptions& options, const std::vector<ScoredPlan>& layers, size_t most,
                                      const std::function<double(const ScoredPlan&)>& cost) {
  if (options.axes.empty() || cluster.devices.size() < 2) return {};
  SplitSearch search(graph, cluster, source, scorer, options);
  search.split_stages_of(layers);
  search.split_ends();
  return search.best(most, cost);
}

}  // namespace nlsplit::inline partition
