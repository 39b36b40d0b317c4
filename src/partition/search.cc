#include "partition/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/sort_large.h"
#include "graph/operators/operator.h"
#include "partition/cuts.h"
#include "partition/plan_scorer.h"
#include "partition/search_methods.h"

namespace nlsplit::inline partition {
namespace {

constexpr size_t few_devices = 8;  // of more, those that are no different from others are not looked at by themselves

constexpr size_t kinds_of_cuts = 8;  // at least, among the candidates

double binomial(size_t n, size_t k) {
  if (k > n) return 0;
  double result = 1;
  for (size_t i = 0; i < k; ++i) result = result * static_cast<double>(n - i) / static_cast<double>(i + 1);
  return std::round(result);
}

// Seconds in which the busiest of these copies of the whole model computes. whole_model: [device].
double busiest_copy(int micro_batches, const std::vector<DeviceId>& devices, const std::vector<double>& whole_model) {
  std::vector<double> seconds;
  for (const DeviceId device : devices) seconds.push_back(whole_model[device.index()]);
  const std::vector<int> jobs = share_jobs(micro_batches, seconds);
  double busiest = 0;
  for (size_t i = 0; i < jobs.size(); ++i) busiest = std::max(busiest, jobs[i] * seconds[i]);
  return busiest;
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

// The best `wanted`, of plans with the same cuts a share at most, as long as there are others: their bounds are off
// alike.
std::vector<ScoredPlan> best_of_many_kinds(std::vector<ScoredPlan> found, size_t wanted) {
  sort_large(found, before);
  if (found.size() <= wanted) return found;
  const size_t most_alike = std::max<size_t>(1, wanted / kinds_of_cuts);
  std::map<std::vector<size_t>, size_t> of_cuts;
  std::vector<ScoredPlan> kept, others;
  for (ScoredPlan& plan : found) {
    std::vector<size_t> cuts;
    for (const Stage& stage : plan.plan.stages) cuts.push_back(stage.end);
    (++of_cuts[cuts] <= most_alike && kept.size() < wanted ? kept : others).push_back(std::move(plan));
  }
  for (size_t i = 0; kept.size() < wanted; ++i) kept.push_back(std::move(others[i]));
  return kept;
}

Error unknown_method(const std::string& name) {
  std::string names;
  for (const SearchMethod& method : search_methods())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", method.name);
  return invalid_input(fmt::format("unknown search method '{}'; there are {}", name, names));
}

}  // namespace

bool within_limits(const std::vector<Stage>& stages, const SearchOptions& options) {
  std::set<DeviceId> devices;
  for (const Stage& stage : stages) {
    devices.insert(stage.devices.begin(), stage.devices.end());
    if (!options.replicate && !stage.split && stage.devices.size() > 1) return false;
    if (stage.split && std::ranges::find(options.axes, stage.split->axis) == options.axes.end()) return false;
  }
  return (options.layers || stages.size() == 1) && (options.max_stages == 0 || stages.size() <= options.max_stages) &&
         (options.max_devices == 0 || devices.size() <= options.max_devices);
}

Result<SearchResult> search_layers(const Graph& graph, const Cluster& cluster, HostId source, HostId sink,
                                   const SearchCosts& costs, const SearchOptions& options,
                                   const std::vector<std::vector<Stage>>& seeds) {
  return search_layers(graph, cluster, make_network(cluster, source, sink), source, sink, costs, options, seeds);
}

Result<SearchResult> search_layers(const Graph& graph, const Cluster& cluster, const Network& network, HostId source,
                                   HostId sink, const SearchCosts& costs, const SearchOptions& options,
                                   const std::vector<std::vector<Stage>>& seeds) {
  const SearchMethod* method = find_search_method(options.method);
  if (method == nullptr) return unknown_method(options.method);
  CHECK(costs.node_seconds.size() == cluster.devices.size() && !graph.nodes.empty(),
        "costs of another cluster or an empty graph");
  CHECK(options.left_out.size() < cluster.devices.size(), "no device is left to search");
  const size_t nodes = graph.nodes.size();

  // Fastest first; of equals those where inputs and outputs are, then in their order.
  std::vector<DeviceId> by_speed;
  std::vector<double> whole_model;  // seconds
  for (size_t d = 0; d < cluster.devices.size(); ++d) {
    if (std::ranges::find(options.left_out, DeviceId(d)) == options.left_out.end()) by_speed.push_back(DeviceId(d));
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
  std::vector<DeviceId> in_order = by_speed;
  std::sort(in_order.begin(), in_order.end());
  PlanScorer scorer(graph, cluster, network, source, sink, costs);

  std::set<std::vector<DeviceId>> whole;  // one-stage plans there are already
  std::vector<ScoredPlan> always, found;
  const auto add = [&](std::vector<Stage> stages, std::vector<ScoredPlan>& to) {
    ScoredPlan scored = scorer.score(std::move(stages));
    if (std::isfinite(scored.bound_seconds)) to.push_back(std::move(scored));  // else two devices cannot talk
  };
  const std::vector<DeviceId> grouped(by_speed.begin(), by_speed.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                               by_speed.size(), most_grouped_devices)));
  const std::vector<size_t> class_of =
      by_speed.size() == grouped.size()
          ? interchangeable_devices(cluster, source, sink, network, costs.node_seconds)
          : interchangeable_devices(cluster, source, sink, make_network(cluster, source, sink, grouped),
                                    costs.node_seconds);
  const bool many = by_speed.size() > few_devices;
  std::set<std::pair<double, int64_t>> kinds;  // of single devices: seconds, memory
  for (const DeviceId device : in_order) {
    whole.insert({device});
    const bool is_grouped = std::ranges::find(grouped, device) != grouped.end();
    const bool first_of_class = is_grouped && class_of[device.index()] == device.index();
    const bool first_of_kind =
        kinds.insert({whole_model[device.index()], cluster.device(device).memory.value()}).second;
    if (!many || first_of_class || first_of_kind) add({{0, nodes, {device}}}, always);
  }
  const size_t most_devices =
      options.max_devices > 0 ? std::min(options.max_devices, by_speed.size()) : by_speed.size();
  const size_t most_replicas = options.replicate ? std::min(static_cast<size_t>(costs.micro_batches), most_devices) : 1;
  double busiest = std::numeric_limits<double>::infinity();  // of one copy less
  const size_t most_copies = std::min(by_speed.size(), most_replicas);
  for (size_t k = 2; k <= most_copies; ++k) {
    std::vector<DeviceId> fastest(by_speed.begin(), by_speed.begin() + static_cast<std::ptrdiff_t>(k));
    const double seconds = busiest_copy(costs.micro_batches, fastest, whole_model);
    std::sort(fastest.begin(), fastest.end());
    whole.insert(fastest);
    const bool all = k == most_copies && seconds <= busiest;
    if (!many || seconds < busiest || all) add({{0, nodes, fastest}}, always);
    busiest = std::min(busiest, seconds);
  }
  const size_t whole_models = always.size();
  for (const std::vector<Stage>& seed : seeds) {
    const bool known = std::ranges::any_of(always, [&](const ScoredPlan& other) { return other.plan.stages == seed; });
    if (known || !within_limits(seed, options)) continue;
    if (seed.size() == 1 && !seed[0].split) whole.insert(seed[0].devices);
    add(seed, always);
  }

  SearchResult result;
  result.devices = std::min(by_speed.size(), method->most_devices);
  result.class_of = class_of;
  const size_t wanted = options.max_candidates > whole_models ? options.max_candidates - whole_models : 0;
  DeviceGroups groups(grouped, class_of, costs.micro_batches, static_cast<int>(most_replicas), most_devices);
  const std::vector<size_t> cuts = distinct_cuts(find_cuts(graph), costs.node_seconds, costs.cut_bytes);
  size_t max_stages = std::min(most_devices, cuts.size());
  if (options.max_stages > 0) max_stages = std::min(max_stages, options.max_stages);
  if (!options.layers) max_stages = 1;
  const std::vector<double> sequences = groups.sequences(max_stages);
  for (size_t k = 0; k < max_stages; ++k) result.space += sequences[k] * binomial(cuts.size() - 1, k);

  const SearchSpace space{&graph,           &cluster,     &network, source,        sink,         &costs,
                          &scorer.scorer(), &groups,      by_speed, most_replicas, cuts,         scorer.weight_bytes(),
                          max_stages,       most_devices, wanted,   result.space,  options.seed, &options.interrupted};
  ASSIGN_OR_RETURN(FoundPlans candidates, method->find(space));
  // dp adds up what a batch takes, not a step.
  const bool proves = costs.step == nullptr || method->name != std::string_view("dp");
  result.proved = candidates.proved && proves && !space.interrupted();
  for (std::vector<Stage>& stages : candidates.plans) {
    if (space.interrupted() && found.size() >= most_after_interrupt) break;
    if (stages.size() == 1 && !whole.insert(stages[0].devices).second) continue;
    if (std::ranges::find(seeds, stages) == seeds.end()) add(std::move(stages), found);
  }
  found = best_of_many_kinds(std::move(found), space.interrupted() ? std::min(wanted, most_after_interrupt) : wanted);
  result.plans = std::move(always);
  std::move(found.begin(), found.end(), std::back_inserter(result.plans));
  sort_large(result.plans, before);
  return result;
}

}  // namespace nlsplit::inline partition
