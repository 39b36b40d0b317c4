// What is looked at: the plans that search finds for each micro-batch count, and the user's own.
#include <algorithm>
#include <array>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "base/cores.h"
#include "base/sizes.h"
#include "base/sort_large.h"
#include "compile/split.h"
#include "compile/split_training.h"
#include "partition/search_splits.h"
#include "ranking/ranker.h"

namespace nlsplit::inline ranking {
namespace {

// Plans with stages split inside their layers that are looked at: max_candidates / 5, shared by the micro-batch counts,
// for they take longer to lower than others.
constexpr size_t split_candidates_part = 5, least_split_candidates = 50;
// Plans that are no split, and their layers, each copy counted, up to which all are simulated.
constexpr size_t most_yardsticks = 100, most_yardstick_layers = 100'000;

}  // namespace

Status Ranker::collect_candidates() {
  std::vector<RankedPlan> own;
  for (const UserPlan& plan : scenario_.plans) {
    auto resolved = resolve_own_plan(scenario_, graph_, plan);
    if (resolved) {
      std::ranges::move(*resolved, std::back_inserter(own));
      continue;
    }
    // Invalid input ends the ranking. A plan that is not supported is reported, and the others are ranked.
    if (resolved.error().kind != ErrorKind::unsupported) return resolved.error();
    ranking_.own_refused.push_back({plan.name, resolved.error()});
  }
  for (const RankedPlan& plan : own) ++own_ways_[plan.plan.name];
  RETURN_IF_ERROR(prepare_models(own));
  RETURN_IF_ERROR(search_all());
  choose_yardsticks();
  choose_rules();
  for (RankedPlan& plan : own) {
    Candidate candidate;
    candidate.ranked = std::move(plan);
    candidate.must_judge = true;
    candidates_.push_back(std::move(candidate));
  }
  // Yardsticks and own plans first, then by the bound, so that an interrupted ranking has timed the most promising.
  sort_large(candidates_, [](const Candidate& a, const Candidate& b) { return a.bound < b.bound; });
  return ok_status();
}

// All of them are timed and simulated where that is little work; else the best three of each kind are timed first, and
// the others if they may be better.
void Ranker::choose_yardsticks() {
  std::array<std::vector<Candidate*>, plan_kind_count> kinds;
  size_t count = 0, layers = 0;
  for (Candidate& candidate : candidates_) {
    if (!is_yardstick(candidate)) continue;
    kinds[static_cast<size_t>(kind_of(candidate.ranked.plan))].push_back(&candidate);
    ++count;
    layers += layers_lowered(candidate.ranked.plan) * (scenario_.training ? layers_of_a_step : 1);
  }
  many_yardsticks_ = count > most_yardsticks || layers > most_yardstick_layers;
  for (std::vector<Candidate*>& kind : kinds) {
    std::ranges::stable_sort(kind, {}, [](const Candidate* candidate) { return candidate->bound; });
    for (size_t i = 0; i < kind.size(); ++i) {
      if (many_yardsticks_ && i >= Pruning::min_timed_unsplit) continue;
      kind[i]->bound = 0;
      if (many_yardsticks_) continue;
      kind[i]->must_judge = true;
      kind[i]->found.reset();
    }
  }
}

Status Ranker::prepare_models(const std::vector<RankedPlan>& own) {
  std::set<int> counts(scenario_.micro_batches.begin(), scenario_.micro_batches.end());
  for (const RankedPlan& plan : own) counts.insert(plan.plan.micro_batches);
  progress("preparing the model", 0, counts.size());
  const std::vector<int> all(counts.begin(), counts.end());
  std::vector<std::optional<Result<PreparedModel>>> models(all.size());
  on_all_cores(
      all.size(), [&](size_t i) { models[i] = prepare_model(scenario_, graph_, all[i]); }, workers());
  for (std::optional<Result<PreparedModel>>& model : models) {
    ASSIGN_OR_RETURN(PreparedModel prepared, *std::move(model));
    prepared_.push_back(std::move(prepared));
  }
  // Noise and error bars look at all a plan does.
  const bool times_only = !scenario_.training && !scenario_.noise && !wants_parts_ && options_.samples == 0;
  const bool inside = !scenario_.search.axes.empty() ||
                      std::ranges::any_of(own, [](const RankedPlan& plan) { return has_splits(plan.plan); });
  if (const std::optional<Repeat> repeat = times_only && inside ? longest_repeat(graph_) : std::nullopt)
    shorter_ = std::make_unique<ShorterModels>(scenario_, graph_, *repeat);
  see_whether_layers_may_be_split();
  return scenario_.generation ? prepare_generations() : ok_status();
}

// What training refuses of a plan that splits layers is no reason to refuse all others.
void Ranker::see_whether_layers_may_be_split() {
  inside_ = !scenario_.search.axes.empty();
  if (!inside_ || !scenario_.training) return;
  const KernelGraph& kernels = prepared_.front().kernels;
  if (const Status allowed =
          check_split_training(kernels.graph, kernels.training->options.batch_norm, scenario_.zero, scenario_.exact);
      !allowed.ok())
    ranking_.why_not_inside = allowed.error().message;
  inside_ = ranking_.why_not_inside.empty();
}

Status Ranker::search_all() {
  ranking_.proved = true;
  const std::vector<int>& counts = scenario_.micro_batches;
  network_ = make_network(scenario_.cluster, scenario_.endpoints.source, results());
  leave_out_devices_without_room();
  std::vector<std::optional<Result<Searched>>> results(counts.size());
  std::mutex mutex;  // of progress
  size_t done = 0;
  progress("searching", done, counts.size());
  on_all_cores(
      counts.size(),
      [&](size_t k) {
        if (k > 0 && interrupted()) return;
        const size_t i = counts.size() - 1 - k;  // many micro-batches take longest: no core is left with them alone
        results[i] = search(nlsplit::prepared_for(prepared_, counts[i]));
        if (results[i]->ok() && prompts_matter()) results[i] = with_prompts(*std::move(*results[i]));
        const std::lock_guard lock(mutex);
        progress("searching", ++done, counts.size());
      },
      workers());
  for (std::optional<Result<Searched>>& result : results) {
    if (!result) continue;
    ASSIGN_OR_RETURN(Searched searched, *std::move(result));
    set_node_shares(searched.costs);
    if (!first_costs_ || searched.costs.micro_batches < first_costs_->micro_batches) {
      first_costs_ = searched.costs;
      class_of_ = searched.found.class_of;
    }
    add_found(searched);
    if (searched.prompt_scorer) prompt_scorers_[searched.costs.micro_batches] = std::move(searched.prompt_scorer);
    if (searched.scorer) scorers_.push_back(std::move(searched.scorer));
  }
  if (interrupted()) {
    ranking_.interrupted = true;
    ranking_.proved = false;
  }
  return ok_status();
}

namespace {

// What search leaves stages out by, whose weights alone are more than a device has. Replicas that keep shares of them
// (zero: 3) have room for more, all devices together at most: what a plan takes is known when it is lowered.
Cluster cluster_to_search(const Scenario& scenario) {
  Cluster cluster = scenario.cluster;
  if (!scenario.training || scenario.zero < 3) return cluster;
  const auto devices = static_cast<int64_t>(cluster.devices.size());
  for (Device& device : cluster.devices) device.memory = bytes(saturating_product(device.memory.value(), devices));
  return cluster;
}

}  // namespace

// On a host with several devices any of them may hold the batch: then they are left out together or not at all. Where
// no device would be left, none is, and plans say what they miss.
void Ranker::leave_out_devices_without_room() {
  if (scenario_.generation) return;  // its executions hold a token or a chunk, not the batch
  const PreparedModel& prepared = prepared_.front();
  const Graph& graph = prepared.kernels.graph;
  const auto batch_of = [&](const std::vector<ValueId>& values) {
    int64_t all = 0;
    for (const ValueId value : values) all += size_of(graph.value(value).type).value();
    return saturating_product(all, prepared.micro_batches);
  };
  std::vector<int64_t> needed(scenario_.cluster.hosts.size(), 0);
  needed[scenario_.endpoints.source.index()] += batch_of(graph.inputs);
  if (!scenario_.training) needed[results().index()] += batch_of(graph.outputs);
  const auto has_room = [&](const Device& device) { return device.memory.value() >= needed[device.host.index()]; };
  std::vector<NoRoom> found;
  for (const Device& device : scenario_.cluster.devices) {
    const bool another = std::ranges::any_of(
        scenario_.cluster.devices, [&](const Device& other) { return other.host == device.host && has_room(other); });
    if (!another) found.push_back({device.name, device.memory, bytes(needed[device.host.index()])});
  }
  if (found.size() < scenario_.cluster.devices.size()) ranking_.no_room = std::move(found);
}

HostId Ranker::results() const { return scenario_.training ? scenario_.endpoints.source : scenario_.endpoints.sink; }

Result<Ranker::Searched> Ranker::search(const PreparedModel& prepared) const {
  const HostId source = scenario_.endpoints.source;
  const Graph& graph = prepared.kernels.graph;
  SearchOptions options = scenario_.search;
  options.interrupted = options_.interrupted;
  for (const NoRoom& device : ranking_.no_room)
    options.left_out.push_back(scenario_.cluster.find_device(device.device));
  if (!inside_) options.axes.clear();
  Searched searched;
  ASSIGN_OR_RETURN(searched.costs, search_costs(scenario_, prepared, costs_));
  std::vector<std::vector<Stage>> seeds;
  for (const Baseline& baseline : all_baselines()) {
    searched.rules.push_back(baseline.stages(graph, scenario_.cluster, searched.costs));
    if (!searched.rules.back().empty()) seeds.push_back(searched.rules.back());
  }
  std::optional<Graph> without_outputs;
  if (scenario_.training) without_outputs.emplace(graph).outputs.clear();
  const Cluster cluster = cluster_to_search(scenario_);
  ASSIGN_OR_RETURN(searched.found, search_layers(without_outputs ? *without_outputs : graph, cluster, *network_, source,
                                                 results(), searched.costs, options, seeds));
  if (interrupted() || !(inside_ || prompts_matter())) return searched;
  searched.scorer = std::make_unique<PlanScorer>(graph, scenario_.cluster, *network_, source, results(), searched.costs,
                                                 exact_multiples(prepared.kernels));
  const size_t most = std::max(
      least_split_candidates, scenario_.search.max_candidates / split_candidates_part / scenario_.micro_batches.size());
  std::ranges::move(search_splits(graph, scenario_.cluster, source, *searched.scorer, options, searched.found, most,
                                  [&](const ScoredPlan& scored) { return bound_of(scored); }),
                    std::back_inserter(searched.found.plans));
  return searched;
}

namespace {

// By how many micro-batches the schedule has under way. Of others than these two: one.
double memory_under(const std::string& schedule, const ScoredPlan& scored) {
  if (schedule == "gpipe") return scored.memory_bytes_of_all;
  return schedule == "1f1b" ? scored.memory_bytes_of_chain : scored.memory_bytes;
}

}  // namespace

void Ranker::add_found(Searched& searched) {
  SearchResult& found = searched.found;
  note_rules(searched);
  ranking_.devices = found.devices;
  ranking_.proved &= found.proved;
  ranking_.space += found.space * static_cast<double>(scenario_.schedules.size());
  const std::vector<ScoredPlan> plans = std::exchange(found.plans, {});  // there may be millions
  const size_t most_splits = interrupted() ? most_after_interrupt : plans.size();
  candidates_.reserve(candidates_.size() + std::min(plans.size(), most_splits) * scenario_.schedules.size());
  size_t splits = 0;
  for (const ScoredPlan& scored : plans) {
    const uint32_t rules = rules_of(scored.plan, searched.rules);
    if (rules == 0 && is_split(scored.plan) && ++splits > most_splits) continue;
    for (const std::string& schedule : scenario_.schedules) {
      Candidate& candidate = candidates_.emplace_back();
      candidate.ranked.plan = scored.plan;
      candidate.ranked.plan.schedule = schedule;
      candidate.found = scored;
      if (scenario_.training) candidate.found->memory_bytes = memory_under(schedule, scored);
      candidate.bound = bound_of(scored);
      candidate.rules = rules;
    }
  }
}

void Ranker::set_node_shares(const SearchCosts& costs) {
  if (!ranking_.node_shares.empty()) return;
  ranking_.node_shares.assign(costs.node_seconds[0].size(), 0);
  for (const std::vector<double>& seconds : costs.node_seconds) {
    const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    if (all <= 0) continue;
    for (size_t n = 0; n < seconds.size(); ++n)
      ranking_.node_shares[n] += seconds[n] / all / static_cast<double>(costs.node_seconds.size());
  }
}

}  // namespace nlsplit::inline ranking
