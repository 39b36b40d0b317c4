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

// Those that plans may use.
struct Devices {
  std::vector<DeviceId> by_speed;   // fastest first; of equals those where inputs and outputs are, then in their order
  std::vector<double> whole_model;  // [device of the cluster]: seconds
  std::vector<DeviceId> grouped;    // the first most_grouped_devices of by_speed
  std::vector<size_t> class_of;     // interchangeable_devices
  bool are_many() const { return by_speed.size() > few_devices; }
};

Devices devices_of(const Cluster& cluster, const Network& network, HostId source, HostId sink, const SearchCosts& costs,
                   const SearchOptions& options) {
  Devices devices;
  for (size_t d = 0; d < cluster.devices.size(); ++d) {
    if (std::ranges::find(options.left_out, DeviceId(d)) == options.left_out.end())
      devices.by_speed.push_back(DeviceId(d));
    const std::vector<double>& seconds = costs.node_seconds[d];
    devices.whole_model.push_back(std::accumulate(seconds.begin(), seconds.end(), 0.0));
  }
  const auto away = [&](DeviceId d) {
    return (cluster.device(d).host != source ? 1 : 0) + (cluster.device(d).host != sink ? 1 : 0);
  };
  std::stable_sort(devices.by_speed.begin(), devices.by_speed.end(), [&](DeviceId a, DeviceId b) {
    const double x = devices.whole_model[a.index()], y = devices.whole_model[b.index()];
    return x != y ? x < y : away(a) < away(b);
  });
  const size_t grouped = std::min(devices.by_speed.size(), most_grouped_devices);
  devices.grouped.assign(devices.by_speed.begin(), devices.by_speed.begin() + static_cast<std::ptrdiff_t>(grouped));
  devices.class_of =
      devices.by_speed.size() == grouped
          ? interchangeable_devices(cluster, source, sink, network, costs.node_seconds)
          : interchangeable_devices(cluster, source, sink, make_network(cluster, source, sink, devices.grouped),
                                    costs.node_seconds);
  return devices;
}

// Without those of which two devices must exchange data and cannot.
void add_scored(std::vector<Stage> stages, PlanScorer& scorer, std::vector<ScoredPlan>& to) {
  ScoredPlan scored = scorer.score(std::move(stages));
  if (std::isfinite(scored.bound_seconds)) to.push_back(std::move(scored));
}

// Plans that are in the answer whatever the method finds.
struct AlwaysFound {
  std::vector<ScoredPlan> plans;
  std::set<std::vector<DeviceId>> whole;  // of plans of one stage: what methods need not find again
};

// The whole model on each device; of many devices on one of each class and of each kind.
void add_single_devices(const Cluster& cluster, const Devices& devices, size_t nodes, PlanScorer& scorer,
                        AlwaysFound& always) {
  std::vector<DeviceId> in_order = devices.by_speed;
  std::sort(in_order.begin(), in_order.end());
  std::set<std::pair<double, int64_t>> kinds;  // seconds, memory
  for (const DeviceId device : in_order) {
    always.whole.insert({device});
    const bool is_grouped = std::ranges::find(devices.grouped, device) != devices.grouped.end();
    const bool first_of_class = is_grouped && devices.class_of[device.index()] == device.index();
    const bool first_of_kind =
        kinds.insert({devices.whole_model[device.index()], cluster.device(device).memory.value()}).second;
    if (!devices.are_many() || first_of_class || first_of_kind)
      add_scored({{0, nodes, {device}}}, scorer, always.plans);
  }
}

// Copies on the fastest two devices, three and so on; of many devices where they take less time than fewer copies.
void add_copies(const Devices& devices, size_t nodes, int micro_batches, size_t most_replicas, PlanScorer& scorer,
                AlwaysFound& always) {
  double busiest = std::numeric_limits<double>::infinity();  // of fewer copies
  const size_t most_copies = std::min(devices.by_speed.size(), most_replicas);
  for (size_t k = 2; k <= most_copies; ++k) {
    std::vector<DeviceId> fastest(devices.by_speed.begin(), devices.by_speed.begin() + static_cast<std::ptrdiff_t>(k));
    const double seconds = busiest_copy(micro_batches, fastest, devices.whole_model);
    std::sort(fastest.begin(), fastest.end());
    always.whole.insert(fastest);
    const bool all = k == most_copies && seconds <= busiest;
    if (!devices.are_many() || seconds < busiest || all) add_scored({{0, nodes, fastest}}, scorer, always.plans);
    busiest = std::min(busiest, seconds);
  }
}

void add_seeds(const std::vector<std::vector<Stage>>& seeds, const SearchOptions& options, PlanScorer& scorer,
               AlwaysFound& always) {
  for (const std::vector<Stage>& seed : seeds) {
    const bool known =
        std::ranges::any_of(always.plans, [&](const ScoredPlan& other) { return other.plan.stages == seed; });
    if (known || !within_limits(seed, options)) continue;
    if (seed.size() == 1 && !seed[0].split) always.whole.insert(seed[0].devices);
    add_scored(seed, scorer, always.plans);
  }
}

size_t most_stages(size_t cuts, size_t most_devices, const SearchOptions& options) {
  if (!options.layers) return 1;
  const size_t most = std::min(most_devices, cuts);
  return options.max_stages > 0 ? std::min(most, options.max_stages) : most;
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
  const Devices devices = devices_of(cluster, network, source, sink, costs, options);
  const size_t most_devices =
      options.max_devices > 0 ? std::min(options.max_devices, devices.by_speed.size()) : devices.by_speed.size();
  const size_t most_replicas = options.replicate ? std::min(static_cast<size_t>(costs.micro_batches), most_devices) : 1;
  PlanScorer scorer(graph, cluster, network, source, sink, costs);
  AlwaysFound always;
  add_single_devices(cluster, devices, graph.nodes.size(), scorer, always);
  add_copies(devices, graph.nodes.size(), costs.micro_batches, most_replicas, scorer, always);
  const size_t whole_models = always.plans.size();
  add_seeds(seeds, options, scorer, always);

  SearchResult result;
  result.devices = std::min(devices.by_speed.size(), method->most_devices);
  result.class_of = devices.class_of;
  const size_t wanted = options.max_candidates > whole_models ? options.max_candidates - whole_models : 0;
  DeviceGroups groups(devices.grouped, devices.class_of, costs.micro_batches, static_cast<int>(most_replicas),
                      most_devices);
  const std::vector<size_t> cuts = distinct_cuts(find_cuts(graph), costs.node_seconds, costs.cut_bytes);
  const size_t max_stages = most_stages(cuts.size(), most_devices, options);
  const std::vector<double> sequences = groups.sequences(max_stages);
  for (size_t k = 0; k < max_stages; ++k) result.space += sequences[k] * binomial(cuts.size() - 1, k);

  const SearchSpace space{.graph = &graph,
                          .cluster = &cluster,
                          .network = &network,
                          .source = source,
                          .sink = sink,
                          .costs = &costs,
                          .scorer = &scorer.scorer(),
                          .groups = &groups,
                          .devices = devices.by_speed,
                          .most_replicas = most_replicas,
                          .cuts = cuts,
                          .weight_bytes = scorer.weight_bytes(),
                          .max_stages = max_stages,
                          .max_devices = most_devices,
                          .wanted = wanted,
                          .plans = result.space,
                          .seed = options.seed,
                          .stop = &options.interrupted};
  ASSIGN_OR_RETURN(FoundPlans candidates, method->find(space));
  // dp adds up what a batch takes, not a step.
  const bool proves = costs.step == nullptr || method->name != std::string_view("dp");
  result.proved = candidates.proved && proves && !space.interrupted();
  std::vector<ScoredPlan> found;
  for (std::vector<Stage>& stages : candidates.plans) {
    if (space.interrupted() && found.size() >= most_after_interrupt) break;
    if (stages.size() == 1 && !always.whole.insert(stages[0].devices).second) continue;
    if (std::ranges::find(seeds, stages) == seeds.end()) add_scored(std::move(stages), scorer, found);
  }
  found = best_of_many_kinds(std::move(found), space.interrupted() ? std::min(wanted, most_after_interrupt) : wanted);
  result.plans = std::move(always.plans);
  std::move(found.begin(), found.end(), std::back_inserter(result.plans));
  sort_large(result.plans, before);
  return result;
}

}  // namespace nlsplit::inline partition
