#include "ranking/ranking.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "compile/hand_over.h"
#include "graph/differentiate/training_network.h"
#include "graph/passes/passes.h"
#include "program/verify.h"
#include "ranking/baseline_plans.h"
#include "ranking/candidates.h"
#include "ranking/error_bars.h"
#include "ranking/explain.h"
#include "ranking/finalists.h"
#include "ranking/generation_times.h"
#include "ranking/longer_contexts.h"
#include "ranking/noise_runs.h"
#include "ranking/rank_context.h"
#include "ranking/refine.h"
#include "ranking/search_plans.h"
#include "ranking/verdict.h"
#include "sim/disturb.h"

namespace nlsplit::inline ranking {
namespace {

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

namespace {

// What the ranking is of.
Ranking heading_of(const Scenario& scenario, const Graph& graph, const RankOptions& options) {
  Ranking ranking;
  ranking.model = graph.name;
  ranking.generates = scenario.generation.has_value();
  if (scenario.generation) ranking.generation_objective = scenario.generation->objective;
  ranking.batch = scenario.batch;
  ranking.objective = scenario.objective;
  ranking.tier = options.tier;
  return ranking;
}

void report_costs(const CostCounts& costs, Ranking& ranking) {
  ranking.measured_costs = costs.measured;
  ranking.predicted_costs = costs.predicted;
  ranking.estimated_costs = costs.estimated;
  ranking.largest_spread = costs.largest_spread;
}

void report_space(SearchSpace space, Ranking& ranking) {
  ranking.devices = space.devices;
  ranking.proved = space.proved;
  ranking.no_room = std::move(space.no_room);
  ranking.node_shares = std::move(space.node_shares);
}

// All phases, for one number of sequences. Each takes what the ones before it have made.
Result<Ranking> rank(const Scenario& scenario, const Graph& graph, const RankOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  if (options.robust && !scenario.noise) return no_noise(scenario, "an order by what 95 of 100 runs reach");
  ASSIGN_OR_RETURN(ErrorBarsWanted bars, error_bars_wanted(scenario, options));

  // What all phases read.
  Tally tally;
  ASSIGN_OR_RETURN(std::vector<RankedPlan> own, own_plans(scenario, graph, tally));
  ASSIGN_OR_RETURN(const RankContext context, rank_context(scenario, graph, options, own, bars.wanted));

  // Candidates, by the search's bounds.
  ASSIGN_OR_RETURN(FoundPlans found, search_plans(context, tally));
  SearchSpace& space = found.space;
  std::vector<RankedBaseline>& baselines = found.baselines;
  Candidates candidates = order_candidates(scenario, std::move(found.candidates), std::move(own), baselines.size());

  // The fast tier.
  ASSIGN_OR_RETURN(FittingPlans fitting,
                   time_candidates(context, std::move(candidates.plans), space.node_shares, baselines, tally));
  RETURN_IF_ERROR(refine(context, space, fitting, baselines, tally));
  const Goal fast_goal = fitting.goal;
  std::vector<Candidate> finalists =
      choose_finalists(context, std::move(fitting), candidates.many_yardsticks, baselines);
  space.scorers.clear();  // their memory is for the simulations

  // The judging tier.
  JudgedPlans judged;
  int noise_runs = 0;
  RETURN_IF_ERROR(judge(context, std::move(finalists), judged, tally));
  if (wants_noise(context)) {
    ASSIGN_OR_RETURN(noise_runs, judge_under_noise(context, judged));
  }
  const Goal goal = measured_goal(fast_goal, judged.ranked);
  sort_judged(scenario, goal, judged);
  if (scenario.generation) RETURN_IF_ERROR(judge_generations(context, space.node_shares, judged, tally));

  // What there is to say of them.
  Ranking ranking = heading_of(scenario, graph, options);
  ranking.goal = goal;
  ranking.noise_runs = noise_runs;
  ranking.robust = options.robust && noise_runs > 0;
  ranking.order = order_of(goal, judged.ranked, ranking.robust);
  const CostCounts costs = count_costs(context, std::move(judged.costs));
  report_costs(costs, ranking);
  ASSIGN_OR_RETURN(ranking.bound, bound_of_all(context, goal, judged.ranked, costs.measured + costs.predicted == 0));
  if (bars.wanted) {
    ErrorBars drawn =
        find_error_bars(context, goal, judged.ranked, judged.lowered, space.node_shares, tally.interrupted);
    ranking.confidence = std::move(drawn.confidence);
    bars.why_not = std::move(drawn.why_not);
  }
  ranking.no_error_bars = std::move(bars.why_not);
  ranking.keep = std::min(judged.ranked.size(), static_cast<size_t>(scenario.keep));
  ranking.judged = std::move(judged.ranked);
  ranking.why_not_inside = context.why_not_inside;
  report_space(std::move(space), ranking);
  report_tally(std::move(tally), ranking);
  ranking.verdict = make_verdict(ranking, judged.lowered, context.workers);
  if (scenario.generation) find_contexts_of_told(context, judged.needs, baselines, ranking);
  if (options.baselines) {
    report_baselines(scenario, graph, ranking.judged, baselines);
    ranking.baselines = std::move(baselines);
  }
  if (options.explain) ranking.explanations = explain(scenario, ranking, judged.lowered);
  ranking.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return ranking;
}

}  // namespace

Result<Ranking> rank_plans(const Scenario& given, const Model& model, const RankOptions& options) {
  Scenario scenario = given;
  ASSIGN_OR_RETURN(std::vector<LeftOutCount> left_out, leave_out_counts(scenario, model.graph));
  ASSIGN_OR_RETURN(Ranking ranking, rank(scenario, model.graph, options));
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
      other = rank(same, model.graph, options);
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
  CHECK(!noise_run || timed_by == nullptr, "a run of the noise is of the scenario itself");
  if (noise_run && !scenario.noise) return no_noise(scenario, "a run of it");
  if (noise_run && (*noise_run < 0 || *noise_run >= scenario.noise->runs))
    return invalid_input(fmt::format("the scenario's noise has runs 1 … {}", scenario.noise->runs));
  if (noise_run) RETURN_IF_ERROR(check_noise(scenario, tier));
  const Cluster& cluster = timed_by != nullptr ? timed_by->cluster : scenario.cluster;
  const CostTable costs = cost_table(scenario, optimized.name);
  ASSIGN_OR_RETURN(const PreparedModel prepared, prepare_model(scenario, optimized, plan.micro_batches));
  ASSIGN_OR_RETURN(LoweredPlan lowered, lower_plan(scenario, prepared, plan, costs));
  RETURN_IF_ERROR(verify(lowered.program));
  if (noise_run) {
    const NoiseKeys keys = noise_keys(lowered.program, lowered.dependencies, lowered.timed, cluster);
    disturb(lowered.timed, *scenario.noise, cluster, keys, *noise_run);
  }
  if (timed_by != nullptr) {
    const CostTable others = cost_table(*timed_by, optimized.name);
    ASSIGN_OR_RETURN(lowered.timed, timed_graph_of(lowered, cluster, others));
    lowered.load = load_of(lowered.timed, cluster, lowered.program.devices.size());
  }
  const std::vector<const TimedGraph*> graphs = {&lowered.timed};
  ASSIGN_OR_RETURN(const std::vector<Timing> timings, simulate_all(tier, cluster, graphs));
  TimedPlan timed;
  timed.estimate = estimate_of(scenario, lowered, timings[0]);
  timed.breakdown = break_down(lowered.timed, timings[0], cluster);
  add_breakdown(lowered, timed.breakdown, cluster, timed.estimate);
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
