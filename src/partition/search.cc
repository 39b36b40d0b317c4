#include "partition/search.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "partition/cuts.h"
#include "partition/search_beam.h"

namespace nlsplit {
namespace {

constexpr double exhaustive_factor = 8;  // spaces up to so many times max_candidates are scored entirely

double binomial(size_t n, size_t k) {
  if (k > n) return 0;
  double result = 1;
  for (size_t i = 0; i < k; ++i) result = result * static_cast<double>(n - i) / static_cast<double>(i + 1);
  return std::round(result);
}

// Every sequence of groups with every choice of cuts.
void enumerate(DeviceGroups& groups, const std::vector<size_t>& cuts, size_t max_stages, size_t next_cut,
               DeviceSet used, std::vector<Stage>& stages, std::vector<std::vector<Stage>>& found) {
  const std::vector<DeviceSet> choices = groups.after(used);
  const size_t begin = stages.empty() ? 0 : stages.back().end;
  for (const DeviceSet group : choices) {
    const std::vector<DeviceId> devices = groups.members(group);
    stages.push_back({begin, cuts.back(), devices});
    found.push_back(stages);
    if (stages.size() < max_stages) {
      for (size_t c = next_cut; c + 1 < cuts.size(); ++c) {
        stages.back().end = cuts[c];
        enumerate(groups, cuts, max_stages, c + 1, used | group, stages, found);
      }
    }
    stages.pop_back();
  }
}

// BeamInput::weight_bytes.
std::vector<double> weight_bytes_before(const Graph& graph) {
  std::vector<double> sums = {0};
  std::vector<bool> seen(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    double sum = sums.back();
    for (const ValueId read : reads_of(node)) {
      if (graph.value(read).kind != ValueKind::weight || seen[read.index()]) continue;
      seen[read.index()] = true;
      sum += static_cast<double>(size_of(graph.value(read).type).value());
    }
    sums.push_back(sum);
  }
  return sums;
}

bool before(const ScoredPlan& a, const ScoredPlan& b) {
  if (a.bound_seconds != b.bound_seconds) return a.bound_seconds < b.bound_seconds;
  const std::vector<Stage>&x = a.plan.stages, &y = b.plan.stages;
  if (x.size() != y.size()) return x.size() < y.size();
  for (size_t s = 0; s < x.size(); ++s) {
    if (x[s].end != y[s].end) return x[s].end < y[s].end;
    if (x[s].devices != y[s].devices) return x[s].devices < y[s].devices;
  }
  return false;
}

}  // namespace

SearchResult search_layers(const Graph& graph, const Cluster& cluster, HostId source, HostId sink,
                           const SearchCosts& costs, const SearchOptions& options) {
  CHECK(costs.node_seconds.size() == cluster.devices.size() && !graph.nodes.empty(),
        "costs of another cluster or an empty graph");
  const size_t nodes = graph.nodes.size();

  // Fastest first; of equals those where inputs and outputs are, then in their order.
  std::vector<DeviceId> by_speed;
  std::vector<double> whole_model;  // seconds
  for (size_t d = 0; d < cluster.devices.size(); ++d) {
    by_speed.push_back(DeviceId(d));
    const std::vector<double>& seconds = costs.node_seconds[d];
    whole_model.push_back(std::accumulate(seconds.begin(), seconds.end(), 0.0));
  }
  const auto away = [&](DeviceId d) {
    return (cluster.device(d).host != source ? 1 : 0) + (cluster.device(d).host != sink ? 1 : 0);
  };
  std::stable_sort(by_speed.begin(), by_speed.end(), [&](DeviceId a, DeviceId b) {
    const double x = whole_model[a.index()], y = whole_model[b.index()];
    return x != y ? x < y : away(a) < away(b);
  });
  by_speed.resize(std::min(by_speed.size(), most_searched_devices));
  std::vector<DeviceId> in_order = by_speed;
  std::sort(in_order.begin(), in_order.end());
  const Network network = make_network(cluster, source, sink, by_speed);
  const Scorer scorer(cluster, network, source, sink, costs, find_crossings(graph));

  std::set<std::vector<DeviceId>> whole;  // one-stage plans there are already
  std::vector<ScoredPlan> always, found;
  const auto add = [&](std::vector<Stage> stages, std::vector<ScoredPlan>& to) {
    ScoredPlan scored;
    scored.bound_seconds = scorer.bound(stages);
    if (!std::isfinite(scored.bound_seconds)) return;  // two of its devices cannot talk to each other
    scored.plan.stages = std::move(stages);
    scored.plan.micro_batches = costs.micro_batches;
    to.push_back(std::move(scored));
  };
  for (const DeviceId device : in_order) {
    whole.insert({device});
    add({{0, nodes, {device}}}, always);
  }
  const size_t most_replicas = options.replicate ? static_cast<size_t>(costs.micro_batches) : 1;
  for (size_t k = 2; k <= std::min(by_speed.size(), most_replicas); ++k) {
    std::vector<DeviceId> fastest(by_speed.begin(), by_speed.begin() + static_cast<std::ptrdiff_t>(k));
    std::sort(fastest.begin(), fastest.end());
    whole.insert(fastest);
    add({{0, nodes, fastest}}, always);
  }

  SearchResult result;
  result.devices = by_speed.size();
  const size_t wanted = options.max_candidates > always.size() ? options.max_candidates - always.size() : 0;
  DeviceGroups groups(by_speed, interchangeable_devices(cluster, source, sink, network, costs.node_seconds),
                      static_cast<int>(most_replicas));
  const std::vector<size_t> cuts = find_cuts(graph);
  size_t max_stages = std::min(by_speed.size(), cuts.size());
  if (options.max_stages > 0) max_stages = std::min(max_stages, options.max_stages);
  if (!options.layers) max_stages = 1;
  const std::vector<double> sequences = groups.sequences(max_stages);
  for (size_t k = 0; k < max_stages; ++k) result.space += sequences[k] * binomial(cuts.size() - 1, k);

  std::vector<std::vector<Stage>> candidates;
  if (result.space <= exhaustive_factor * static_cast<double>(options.max_candidates)) {
    std::vector<Stage> stages;
    enumerate(groups, cuts, max_stages, 0, 0, stages, candidates);
  } else {
    candidates = search_beam({&cluster, &network, source, sink, &costs, &scorer, &groups, cuts,
                              weight_bytes_before(graph), max_stages, wanted, options.seed});
  }
  for (std::vector<Stage>& stages : candidates) {
    if (stages.size() == 1 && !whole.insert(stages[0].devices).second) continue;
    add(std::move(stages), found);
  }
  const auto kept = std::min(wanted, found.size());
  std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(kept), found.end(), before);
  found.resize(kept);
  result.plans = std::move(always);
  std::move(found.begin(), found.end(), std::back_inserter(result.plans));
  std::sort(result.plans.begin(), result.plans.end(), before);
  return result;
}

}  // namespace nlsplit
