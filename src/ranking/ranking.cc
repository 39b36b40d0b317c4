#include "ranking/ranking.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "base/cores.h"
#include "compile/hand_over.h"
#include "graph/differentiate/training_network.h"
#include "graph/passes/passes.h"
#include "program/verify.h"
#include "ranking/explain.h"
#include "ranking/noise_runs.h"
#include "ranking/ranker.h"
#include "ranking/verdict.h"
#include "sim/disturb.h"

namespace nlsplit::inline ranking {
namespace {

// At least so many plans go from the fast tier to the one that judges, so that contention can still reorder the top.
constexpr size_t least_finalists = 40;

std::vector<Level> levels_of(const Cluster& cluster) {
  std::set<Level> levels;
  for (const Device& device : cluster.devices) levels.insert(device.level);
  return {levels.begin(), levels.end()};
}

Error no_noise(const Scenario& scenario, std::string_view what) {
  Error error = invalid_input(
      fmt::format("{} needs noise, and this scenario has none: add e.g. noise: {{compute: {{jitter: 5%}}}}", what));
  error.where.file = scenario.file;
  return error;
}

}  // namespace

std::string named_text(const RankedPlan& plan) { return (plan.own ? plan.plan.name + ": " : "") + plan.text; }

Ranker::Ranker(const Scenario& scenario, const Model& model, const RankOptions& options)
    : scenario_(scenario), graph_(model.graph), options_(options), costs_(cost_table(scenario, model.graph.name)) {
  if (scenario.noise) noise_bound_.emplace(scenario);
}

size_t Ranker::wanted() const { return std::max(least_finalists, static_cast<size_t>(scenario_.keep) * 2); }
size_t Ranker::workers() const { return options_.workers > 0 ? options_.workers : core_count(); }

Result<Ranking> Ranker::run() {
  const auto begin = std::chrono::steady_clock::now();
  if (options_.robust && !scenario_.noise) return no_noise(scenario_, "an order by what 95 of 100 runs reach");
  ranking_.model = graph_.name;
  ranking_.generates = scenario_.generation.has_value();
  if (scenario_.generation) ranking_.generation_objective = scenario_.generation->objective;
  ranking_.batch = scenario_.batch;
  ranking_.objective = scenario_.objective;
  ranking_.tier = options_.tier;
  goal_ = goal_of(scenario_);
  RETURN_IF_ERROR(see_whether_there_are_error_bars());
  RETURN_IF_ERROR(collect_candidates());
  RETURN_IF_ERROR(fast_tier());
  RETURN_IF_ERROR(judge());
  if (scenario_.generation) RETURN_IF_ERROR(time_generations());
  order_judged();
  count_costs();
  RETURN_IF_ERROR(find_bound());
  find_confidence();
  ranking_.keep = std::min(ranking_.judged.size(), static_cast<size_t>(scenario_.keep));
  ranking_.verdict = make_verdict(ranking_, judged_, workers());
  if (scenario_.generation) find_longest_contexts();
  if (options_.baselines) report_rules();
  if (options_.explain) ranking_.explanations = explain(scenario_, ranking_, judged_);
  ranking_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return std::move(ranking_);
}

namespace {

// With caches in pages prompts are computed one after the other (serving/batch.h).
int64_t batch_for(const Scenario& scenario, const Graph& graph) {
  if (!scenario.generation || scenario.generation->page == 0) return scenario.batch;
  const auto takes_prompts = [&](ValueId input) {
    const Value& value = graph.value(input);
    return value.name == "input_ids" && value.type.shape.back() > 1;
  };
  return std::ranges::any_of(graph.inputs, takes_prompts) ? 1 : scenario.batch;
}

}  // namespace

Result<PreparedModel> prepare_model(const Scenario& scenario, const Graph& optimized, int micro_batches,
                                    const KernelPreference& prefer, const std::set<std::string>& trained,
                                    const KernelGraph* like) {
  ASSIGN_OR_RETURN(Graph graph, with_batch(optimized, batch_for(scenario, optimized) / micro_batches));
  if (auto batched = batched_values(graph); !batched && micro_batches > 1) {
    Error error = batched.error();
    error.message = "the batch cannot be cut into micro-batches: " + error.message;
    return error;
  }
  PreparedModel prepared;
  prepared.micro_batches = micro_batches;
  std::optional<TrainingOptions> training = scenario.training;
  if (training) training->micro_batches = micro_batches;
  std::vector<ValueId> states;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].kind == ValueKind::weight && trained.contains(graph.values[v].name)) states.emplace_back(v);
  }
  auto kernels =
      choose_kernels(std::move(graph), levels_of(scenario.cluster), prefer ? prefer : fastest_measured(scenario.costs),
                     training, like == nullptr ? WantedKernels() : wanted_weight_forms(*like), std::move(states));
  if (!kernels) return kernels.error();
  prepared.kernels = std::move(*kernels);
  return prepared;
}

namespace {

// Of a plan whose prompts are computed elsewhere.
Status check_prefill(const Scenario& scenario, const PlanStages& plan) {
  if (plan.prefill.empty()) return ok_status();
  if (!scenario.generation) return invalid_input("prefill and decode are of `workload: {mode: generation, …}`");
  if (scenario.generation->chunk == 1)
    return unsupported("with `chunk: 1` prompts are taken token by token, and there is no prefill");
  if (scenario.generation->page > 0)
    return unsupported("caches in pages are for a server, which computes prompts and tokens by one plan");
  RETURN_IF_ERROR(check_hand_over(plan.prefill));
  return check_hand_over(plan.stages);
}

bool recomputes(const std::vector<Stage>& stages) { return std::ranges::any_of(stages, &Stage::recompute); }

}  // namespace

Result<std::vector<RankedPlan>> resolve_own_plan(const Scenario& scenario, const Graph& optimized,
                                                 const UserPlan& own) {
  std::vector<RankedPlan> plans;
  std::vector<PlanNote> notes;
  auto stages = parse_plan_stages(own.stages, optimized, scenario.cluster, &notes);
  if (!stages) {
    return at_plan(own, stages.error());
  }
  if (const Status sound = check_prefill(scenario, *stages); !sound.ok()) return at_plan(own, sound.error());
  if (!scenario.training && (recomputes(stages->stages) || recomputes(stages->prefill)))
    return at_plan(own,
                   invalid_input("only a training plan has stages that are 'recomputed': nothing else has gradients"));
  if (scenario.generation && scenario.generation->page > 0 &&
      std::ranges::any_of(own.micro_batches, [](int count) { return count > 1; }))
    return at_plan(own, unsupported("caches in pages are of all sequences: there are no micro-batches"));
  for (const int micro_batches : own.micro_batches.empty() ? scenario.micro_batches : own.micro_batches) {
    for (const std::string& schedule :
         own.schedule.empty() ? scenario.schedules : std::vector<std::string>{own.schedule}) {
      RankedPlan ranked;
      ranked.plan = {own.name, stages->stages, micro_batches, schedule, stages->prefill};
      ranked.own = true;
      ranked.notes = notes;
      if (const Status sound = check_plan(ranked.plan, optimized, scenario.cluster, scenario.batch); !sound.ok()) {
        return at_plan(own, sound.error());
      }
      plans.push_back(std::move(ranked));
    }
  }
  return plans;
}

PlanKind kind_of(const Plan& plan) {
  if (plan.stages.size() > 1 || has_splits(plan) || !plan.prefill.empty()) return PlanKind::split;
  return is_single(plan) ? PlanKind::single : PlanKind::copies;
}

bool is_split(const Plan& plan) { return kind_of(plan) == PlanKind::split; }

Result<std::vector<LeftOutCount>> leave_out_counts(Scenario& scenario, const Graph& optimized) {
  std::map<int, Status> checked;
  const auto check = [&](int count) -> const Status& {
    const auto [at, first] = checked.try_emplace(count);
    if (!first || !scenario.training || scenario.training->batch_norm != BatchNorm::batch) return at->second;
    const Result<Graph> graph = with_batch(optimized, scenario.batch / count);
    if (graph) at->second = check_statistics(*graph, BatchNorm::batch);  // what else is wrong prepare_model says
    return at->second;
  };
  // The first trouble, where no count is left.
  const auto leave_out = [&](std::vector<int>& counts) -> Status {
    if (counts.empty()) return ok_status();
    const Status first = check(counts.front());
    std::erase_if(counts, [&](int count) { return !check(count).ok(); });
    return counts.empty() ? first : ok_status();
  };
  if (const Status left = leave_out(scenario.micro_batches); !left.ok()) return at_counts(scenario, left.error());
  for (UserPlan& own : scenario.plans) {
    if (const Status left = leave_out(own.micro_batches); !left.ok()) return at_plan(own, left.error());
  }
  std::vector<LeftOutCount> left_out;
  for (const auto& [count, status] : checked) {
    if (!status.ok()) left_out.push_back({count, status.error().message});
  }
  return left_out;
}

Result<Ranking> rank_plans(const Scenario& given, const Model& model, const RankOptions& options) {
  Scenario scenario = given;
  ASSIGN_OR_RETURN(std::vector<LeftOutCount> left_out, leave_out_counts(scenario, model.graph));
  ASSIGN_OR_RETURN(Ranking ranking, Ranker(scenario, model, options).run());
  ranking.counts_left_out = std::move(left_out);
  if (!options.all_sequences || !scenario.generation || scenario.generation->sequences.size() < 2) return ranking;
  for (const int64_t sequences : scenario.generation->sequences) {
    OfSequences& of = ranking.by_sequences.emplace_back();
    of.sequences = sequences;
    std::optional<Result<Ranking>> other;
    if (sequences != scenario.batch) {
      Scenario same = scenario;
      same.batch = sequences;
      std::erase_if(same.micro_batches, [&](int count) { return sequences % count != 0; });
      if (same.micro_batches.empty()) same.micro_batches = {1};
      other = Ranker(same, model, options).run();
    }
    if (other && !other->ok()) {
      of.why_not = other->error().message;
      continue;
    }
    const Ranking& own = other ? other->value() : ranking;
    if (!own.judged.empty()) of.best = own.judged.front();
  }
  return ranking;
}

double cost_of(const Ranking& ranking, const Estimate& estimate) { return score_of(ranking.goal, estimate); }

std::optional<double> within_bound(const Ranking& ranking) {
  if (!ranking.bound || (ranking.generates && ranking.generation_objective != GenerationObjective::tpot))
    return std::nullopt;
  return 1 - *ranking.bound / cost_of(ranking, ranking.judged[0].estimate);
}

Result<TimedPlan> time_plan(const Scenario& scenario, const Graph& optimized, const Plan& plan,
                            std::optional<int> noise_run, const Scenario* timed_by, const Tier& tier) {
  if (noise_run && !scenario.noise) return no_noise(scenario, "a run of it");
  if (noise_run && (*noise_run < 0 || *noise_run >= scenario.noise->runs))
    return invalid_input(fmt::format("the scenario's noise has runs 1 … {}", scenario.noise->runs));
  if (noise_run) RETURN_IF_ERROR(check_noise(scenario, tier));
  const CostTable costs = cost_table(scenario, optimized.name);
  ASSIGN_OR_RETURN(const PreparedModel prepared, prepare_model(scenario, optimized, plan.micro_batches));
  ASSIGN_OR_RETURN(LoweredPlan lowered, lower_plan(scenario, prepared, plan, costs));
  RETURN_IF_ERROR(verify(lowered.program));
  if (noise_run) {
    const NoiseKeys keys = noise_keys(lowered.program, lowered.dependencies, lowered.timed, scenario.cluster);
    disturb(lowered.timed, *scenario.noise, scenario.cluster, keys, *noise_run);
  }
  if (timed_by != nullptr) {
    const CostTable others = cost_table(*timed_by, optimized.name);
    ASSIGN_OR_RETURN(lowered.timed, timed_graph_of(lowered, timed_by->cluster, others));
    lowered.load = load_of(lowered.timed, timed_by->cluster, lowered.program.devices.size());
  }
  const std::vector<const TimedGraph*> graphs = {&lowered.timed};
  ASSIGN_OR_RETURN(const std::vector<Timing> timings,
                   simulate_all(tier, timed_by != nullptr ? timed_by->cluster : scenario.cluster, graphs));
  TimedPlan timed;
  timed.estimate = estimate_of(scenario, lowered, timings[0]);
  timed.breakdown = break_down(lowered.timed, timings[0], scenario.cluster);
  add_breakdown(lowered, timed.breakdown, scenario.cluster, timed.estimate);
  timed.decided = lowered.timed.online ? decisions_of(lowered.timed, timings[0], lowered.program.devices.size())
                                       : static_order(lowered.program);
  timed.trace = to_trace(lowered.program, lowered.dependencies, lowered.timed, timings[0]);
  timed.program = std::move(lowered.program);
  timed.graph = std::move(lowered.timed);
  timed.slices = std::move(lowered.slices);
  timed.training = std::move(lowered.training);
  timed.notes = std::move(lowered.notes);
  timed.promise = std::move(lowered.promise);
  return timed;
}

}  // namespace nlsplit::inline ranking
