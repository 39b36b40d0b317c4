#include "ranking/search_plans.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <utility>

#include "base/cores.h"
#include "base/sizes.h"
#include "compile/split.h"
#include "partition/search_splits.h"
#include "ranking/baseline_plans.h"
#include "ranking/prompts.h"

namespace nlsplit::inline ranking {
namespace {

// Plans with stages split inside their layers that are looked at: max_candidates / 5, shared by the micro-batch counts,
// for they take longer to lower than others.
constexpr size_t split_candidates_part = 5, least_split_candidates = 50;

// For one micro-batch count.
struct Searched {
  SearchCosts costs;
  std::unique_ptr<PlanScorer> scorer;         // none: nothing is split inside its layers
  std::unique_ptr<PlanScorer> prompt_scorer;  // of generation, where prompts matter
  SearchResult found;
  std::vector<std::vector<Stage>> baselines;  // [baseline]: its plan; empty if it has none
};

// What search leaves stages out by, whose weights alone are more than a device has. Replicas that keep shares of them
// (zero: 3) have room for more, all devices together at most: what a plan takes is known when it is lowered.
Cluster cluster_to_search(const Scenario& scenario) {
  Cluster cluster = scenario.cluster;
  if (!scenario.training || scenario.zero < 3) return cluster;
  const auto devices = static_cast<int64_t>(cluster.devices.size());
  for (Device& device : cluster.devices) device.memory = bytes(saturating_product(device.memory.value(), devices));
  return cluster;
}

// On a host with several devices any of them may hold the batch: then they are left out together or not at all. Where
// no device would be left, none is, and plans say what they miss.
std::vector<NoRoom> devices_without_room(const Scenario& scenario, const PreparedModel& prepared) {
  if (scenario.generation) return {};  // its executions hold a token or a chunk, not the batch
  const Graph& graph = prepared.kernels.graph;
  const auto batch_of = [&](const std::vector<ValueId>& values) {
    int64_t all = 0;
    for (const ValueId value : values) all += size_of(graph.value(value).type).value();
    return saturating_product(all, prepared.micro_batches);
  };
  std::vector<int64_t> needed(scenario.cluster.hosts.size(), 0);
  needed[scenario.endpoints.source.index()] += batch_of(graph.inputs);
  if (!scenario.training) needed[results_host(scenario).index()] += batch_of(graph.outputs);
  const auto has_room = [&](const Device& device) { return device.memory.value() >= needed[device.host.index()]; };
  std::vector<NoRoom> found;
  for (const Device& device : scenario.cluster.devices) {
    const bool another = std::ranges::any_of(
        scenario.cluster.devices, [&](const Device& other) { return other.host == device.host && has_room(other); });
    if (!another) found.push_back({device.name, device.memory, bytes(needed[device.host.index()])});
  }
  return found.size() < scenario.cluster.devices.size() ? found : std::vector<NoRoom>();
}

std::unique_ptr<PlanScorer> scorer_of(const Scenario& scenario, const Network& network, const PreparedModel& prepared,
                                      const SearchCosts& costs) {
  return std::make_unique<PlanScorer>(prepared.kernels.graph, scenario.cluster, network, scenario.endpoints.source,
                                      results_host(scenario), costs, exact_multiples(prepared.kernels));
}

Result<Searched> search(const RankContext& context, const SearchSpace& space, const PreparedModel& prepared) {
  const Scenario& scenario = context.scenario;
  const HostId source = scenario.endpoints.source;
  const Graph& graph = prepared.kernels.graph;
  SearchOptions options = scenario.search;
  options.interrupted = context.options.interrupted;
  for (const NoRoom& device : space.no_room) options.left_out.push_back(scenario.cluster.find_device(device.device));
  if (!context.splits_layers) options.axes.clear();
  Searched searched;
  ASSIGN_OR_RETURN(searched.costs, search_costs(scenario, prepared, context.costs));
  std::vector<std::vector<Stage>> seeds;
  for (const Baseline& baseline : all_baselines(scenario)) {
    searched.baselines.push_back(baseline.stages(graph, scenario.cluster, searched.costs));
    if (!searched.baselines.back().empty()) seeds.push_back(searched.baselines.back());
  }
  std::optional<Graph> without_outputs;
  if (scenario.training) without_outputs.emplace(graph).outputs.clear();
  const Cluster cluster = cluster_to_search(scenario);
  ASSIGN_OR_RETURN(searched.found, search_layers(without_outputs ? *without_outputs : graph, cluster, *space.network,
                                                 source, results_host(scenario), searched.costs, options, seeds));
  if (interrupted(context.options) || !(context.splits_layers || prompts_matter(context))) return searched;
  searched.scorer = scorer_of(scenario, *space.network, prepared, searched.costs);
  const size_t most = std::max(least_split_candidates,
                               scenario.search.max_candidates / split_candidates_part / scenario.micro_batches.size());
  std::ranges::move(search_splits(graph, scenario.cluster, source, *searched.scorer, options, searched.found, most,
                                  [&](const ScoredPlan& scored) { return bound_of(scenario, scored); }),
                    std::back_inserter(searched.found.plans));
  return searched;
}

// Also plans that are good for prompts; all scored by both.
Result<Searched> add_plans_of_prompts(const RankContext& context, const SearchSpace& space, Searched searched) {
  const Scenario& scenario = context.scenario;
  const int count = searched.costs.micro_batches;
  const PreparedModel& prompts = *context.generations.at(count).prefill;
  if (!searched.scorer)
    searched.scorer = scorer_of(scenario, *space.network, prepared_for(context.prepared, count), searched.costs);
  ASSIGN_OR_RETURN(Searched found, search(context, space, prompts));
  auto scorer = scorer_of(scenario, *space.network, prompts, found.costs);
  // Plans are of the network for tokens; both have the same nodes, or the search for prompts says nothing of it.
  const std::vector<Node>&nodes = context.graph.nodes, &others = prompts.kernels.graph.nodes;
  const bool same = std::ranges::equal(nodes, others, {}, &Node::name, &Node::name);
  std::vector<ScoredPlan>& plans = searched.found.plans;
  const size_t of_tokens = plans.size();
  std::map<size_t, std::vector<size_t>> known;  // by number of stages: places in `plans`
  for (size_t i = 0; i < of_tokens; ++i) known[plans[i].plan.stages.size()].push_back(i);
  for (ScoredPlan& scored : found.found.plans) {
    const std::vector<Stage>& stages = scored.plan.stages;
    const bool is_known =
        std::ranges::any_of(known[stages.size()], [&](size_t i) { return plans[i].plan.stages == stages; });
    if (same && !is_known) plans.push_back(searched.scorer->score(stages));
  }
  searched.found.proved = false;
  for (ScoredPlan& scored : plans) {
    if (same) scored = with_prompts(scenario, scored, scorer->score(scored.plan.stages));
  }
  if (same) searched.prompt_scorer = std::move(scorer);
  std::ranges::stable_sort(plans, {}, [&](const ScoredPlan& scored) { return bound_of(scenario, scored); });
  return searched;
}

// By how many micro-batches the schedule has under way. Of others than these two: one.
double memory_under(const std::string& schedule, const ScoredPlan& scored) {
  if (schedule == "gpipe") return scored.memory_bytes_of_all;
  return schedule == "1f1b" ? scored.memory_bytes_of_chain : scored.memory_bytes;
}

// most_splits: of plans that are no baseline's.
void add_candidates(const Scenario& scenario, const std::vector<ScoredPlan>& plans,
                    const std::vector<std::vector<Stage>>& baselines, size_t most_splits,
                    std::vector<Candidate>& candidates) {
  candidates.reserve(candidates.size() + std::min(plans.size(), most_splits) * scenario.schedules.size());
  size_t splits = 0;
  for (const ScoredPlan& scored : plans) {
    const uint32_t mask = baselines_of(scored.plan, baselines);
    if (mask == 0 && is_split(scored.plan) && ++splits > most_splits) continue;
    for (const std::string& schedule : scenario.schedules) {
      Candidate& candidate = candidates.emplace_back();
      candidate.ranked.plan = scored.plan;
      candidate.ranked.plan.schedule = schedule;
      candidate.found = scored;
      if (scenario.training) candidate.found->memory_bytes = memory_under(schedule, scored);
      candidate.bound = bound_of(scenario, scored);
      candidate.baselines = mask;
    }
  }
}

// [node]: share of the time of the whole model, mean over the devices.
std::vector<double> node_shares_of(const SearchCosts& costs) {
  std::vector<double> shares(costs.node_seconds[0].size(), 0);
  for (const std::vector<double>& seconds : costs.node_seconds) {
    const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    if (all <= 0) continue;
    for (size_t n = 0; n < seconds.size(); ++n)
      shares[n] += seconds[n] / all / static_cast<double>(costs.node_seconds.size());
  }
  return shares;
}

// [micro-batch count]; none: not searched, after an interrupt.
std::vector<std::optional<Result<Searched>>> search_counts(const RankContext& context, const SearchSpace& space) {
  const std::vector<int>& counts = context.scenario.micro_batches;
  std::vector<std::optional<Result<Searched>>> results(counts.size());
  std::mutex mutex;  // of progress
  size_t done = 0;
  progress(context.options, "searching", done, counts.size());
  on_all_cores(
      counts.size(),
      [&](size_t k) {
        if (k > 0 && interrupted(context.options)) return;
        const size_t i = counts.size() - 1 - k;  // many micro-batches take longest: no core is left with them alone
        results[i] = search(context, space, prepared_for(context.prepared, counts[i]));
        if (results[i]->ok() && prompts_matter(context))
          results[i] = add_plans_of_prompts(context, space, *std::move(*results[i]));
        const std::lock_guard lock(mutex);
        progress(context.options, "searching", ++done, counts.size());
      },
      context.workers);
  return results;
}

// And takes its plans.
void add_searched(const RankContext& context, Searched searched, FoundPlans& all, Tally& tally) {
  const Scenario& scenario = context.scenario;
  SearchSpace& space = all.space;
  if (space.node_shares.empty()) space.node_shares = node_shares_of(searched.costs);
  if (!space.costs || searched.costs.micro_batches < space.costs->micro_batches) {
    space.costs = searched.costs;
    space.class_of = searched.found.class_of;
  }
  space.devices = searched.found.devices;
  space.proved &= searched.found.proved;
  tally.space += searched.found.space * static_cast<double>(scenario.schedules.size());
  const std::vector<ScoredPlan> plans = std::exchange(searched.found.plans, {});  // there may be millions
  note_search(scenario, searched.baselines, plans, all.baselines);
  const size_t most_splits = interrupted(context.options) ? most_after_interrupt : plans.size();
  add_candidates(scenario, plans, searched.baselines, most_splits, all.candidates);
  if (searched.prompt_scorer) space.prompt_scorers[searched.costs.micro_batches] = std::move(searched.prompt_scorer);
  if (searched.scorer) space.scorers.push_back(std::move(searched.scorer));
}

}  // namespace

Result<FoundPlans> search_plans(const RankContext& context, Tally& tally) {
  const Scenario& scenario = context.scenario;
  FoundPlans all;
  all.space.proved = true;
  all.space.network = std::make_unique<const Network>(
      make_network(scenario.cluster, scenario.endpoints.source, results_host(scenario)));
  all.space.no_room = devices_without_room(scenario, context.prepared.front());
  for (std::optional<Result<Searched>>& result : search_counts(context, all.space)) {
    if (!result) continue;
    ASSIGN_OR_RETURN(Searched searched, *std::move(result));
    add_searched(context, std::move(searched), all, tally);
  }
  if (interrupted(context.options)) {
    tally.interrupted = true;
    all.space.proved = false;
  }
  return all;
}

}  // namespace nlsplit::inline ranking
