#include "ranking/ranking.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "base/random.h"
#include "graph/passes.h"
#include "partition/anneal.h"
#include "partition/cuts.h"
#include "partition/search_splits.h"
#include "program/verify.h"
#include "ranking/alike.h"
#include "ranking/evaluate.h"
#include "ranking/explain.h"
#include "ranking/judge_baselines.h"
#include "ranking/noise_runs.h"
#include "ranking/pruning.h"
#include "ranking/verdict.h"
#include "sim/disturb.h"
#include "sim/simgrid/simgrid_tier.h"

namespace nlsplit {
namespace {

// At least so many plans go from the fast tier to SimGrid, so that contention can still reorder the top.
constexpr size_t least_finalists = 40;
// Plans with stages split inside their layers that are looked at: max_candidates / 5, shared by the micro-batch counts,
// for they take longer to lower than others; then so many more while the best of all are changed a little.
constexpr size_t split_candidates_part = 5, least_split_candidates = 50;
constexpr size_t refined_plans = 4, refining_steps = 200;
constexpr size_t most_yardsticks = 100;  // plans that are no split and are all simulated

struct Candidate {
  RankedPlan ranked;
  std::optional<ScoredPlan> found;  // by search, and may be pruned
  double bound = 0;                 // seconds no schedule of it can beat; 0: look at it first
  double fast_score = 0;            // smaller is better
  double noise_factor = 0;          // what noise makes of it, if there is any
  double noisy_score = 0;           // the score under noise
  bool must_judge = false;          // own plans and yardsticks
};

std::vector<Isa> levels_of(const Cluster& cluster) {
  std::set<Isa> levels;
  for (const Device& device : cluster.devices) levels.insert(device.isa);
  return {levels.begin(), levels.end()};
}

double score_of(const Goal& goal, const NoisyEstimate& estimate) {
  return score_of(goal, estimate.makespan_s.p95, estimate.latency_s.p95);
}

Error no_noise(const Scenario& scenario, std::string_view what) {
  Error error = invalid_input(
      fmt::format("{} needs noise, and this scenario has none: add e.g. noise: {{compute: {{jitter: 5%}}}}", what));
  error.where.file = scenario.file;
  return error;
}

class Ranker {
 public:
  Ranker(const Scenario& scenario, const Model& model, const RankOptions& options)
      : scenario_(scenario), graph_(model.graph), options_(options), costs_(cost_table(scenario, model.graph.name)) {
    if (scenario.noise) noise_bound_.emplace(scenario);
  }

  Result<Ranking> run() {
    const auto begin = std::chrono::steady_clock::now();
    if (options_.robust && !scenario_.noise) return no_noise(scenario_, "an order by p95");
    ranking_.model = graph_.name;
    ranking_.batch = scenario_.batch;
    ranking_.objective = scenario_.objective;
    goal_ = goal_of(scenario_);
    RETURN_IF_ERROR(collect_candidates());
    RETURN_IF_ERROR(fast_tier());
    RETURN_IF_ERROR(judge());
    if (options_.baselines && !ranking_.judged.empty()) {
      ASSIGN_OR_RETURN(ranking_.baselines, judge_baselines(scenario_, graph_, prepared_, costs_, goal_, options_));
    }
    count_costs();
    ranking_.keep = std::min(ranking_.judged.size(), static_cast<size_t>(scenario_.keep));
    ranking_.verdict = make_verdict(ranking_, judged_);
    if (options_.explain) ranking_.explanations = explain(scenario_, ranking_, judged_);
    ranking_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return std::move(ranking_);
  }

 private:
  bool interrupted() const { return options_.interrupted && options_.interrupted(); }
  void progress(std::string_view phase, size_t done, size_t total) const {
    if (options_.progress) options_.progress(phase, done, total);
  }

  const PreparedModel& prepared_for(const Plan& plan) const {
    return nlsplit::prepared_for(prepared_, plan.micro_batches);
  }

  Status collect_candidates() {
    std::vector<RankedPlan> own;
    for (const UserPlan& plan : scenario_.plans) {
      ASSIGN_OR_RETURN(std::vector<RankedPlan> resolved, resolve_own_plan(scenario_, graph_, plan));
      std::move(resolved.begin(), resolved.end(), std::back_inserter(own));
    }
    std::set<int> counts(scenario_.micro_batches.begin(), scenario_.micro_batches.end());
    for (const RankedPlan& plan : own) {
      counts.insert(plan.plan.micro_batches);
      ++own_ways_[plan.plan.name];
    }
    for (const int count : counts) {
      progress("preparing the model", prepared_.size(), counts.size());
      ASSIGN_OR_RETURN(PreparedModel model, prepare_model(scenario_, graph_, count));
      prepared_.push_back(std::move(model));
    }
    ranking_.proved = true;
    for (const int count : scenario_.micro_batches) {
      ASSIGN_OR_RETURN(SearchResult found, search(nlsplit::prepared_for(prepared_, count)));
      ranking_.devices = found.devices;
      ranking_.proved &= found.proved;
      ranking_.space += found.space * static_cast<double>(scenario_.schedules.size());
      for (ScoredPlan& scored : found.plans) {
        for (const std::string& schedule : scenario_.schedules) {
          Candidate candidate;
          candidate.ranked.plan = scored.plan;
          candidate.ranked.plan.schedule = schedule;
          candidate.must_judge = !is_split(scored.plan);
          candidate.bound = candidate.must_judge ? 0 : scored.bound_seconds;
          if (!candidate.must_judge) candidate.found = scored;
          candidates_.push_back(std::move(candidate));
        }
      }
    }
    for (RankedPlan& plan : own) {
      Candidate candidate;
      candidate.ranked = std::move(plan);
      candidate.must_judge = true;
      candidates_.push_back(std::move(candidate));
    }
    // The promising ones first, yardsticks and own plans before them all, in case somebody interrupts.
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.bound < b.bound; });
    return ok_status();
  }

  Result<SearchResult> search(const PreparedModel& prepared) {
    const HostId source = scenario_.endpoints.source;
    ASSIGN_OR_RETURN(const SearchCosts costs, search_costs(scenario_, prepared, costs_));
    const Graph& graph = prepared.kernels.graph;
    set_node_shares(costs);
    if (!scenario_.training) {
      const HostId sink = scenario_.endpoints.sink;
      ASSIGN_OR_RETURN(SearchResult found,
                       search_layers(graph, scenario_.cluster, source, sink, costs, scenario_.search));
      const size_t most = std::max(least_split_candidates, scenario_.search.max_candidates / split_candidates_part /
                                                               scenario_.micro_batches.size());
      std::vector<ScoredPlan> split =
          search_splits(graph, scenario_.cluster, source, sink, costs, scenario_.search, found.plans, most);
      std::move(split.begin(), split.end(), std::back_inserter(found.plans));
      if (!first_costs_ || costs.micro_batches < first_costs_->micro_batches) first_costs_ = costs;
      return found;
    }
    Graph without_outputs = graph;  // nothing goes to the sink
    without_outputs.outputs.clear();
    return search_layers(without_outputs, scenario_.cluster, source, source, costs, scenario_.search);
  }

  void set_node_shares(const SearchCosts& costs) {
    if (!ranking_.node_shares.empty()) return;
    ranking_.node_shares.assign(costs.node_seconds[0].size(), 0);
    for (const std::vector<double>& seconds : costs.node_seconds) {
      const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
      if (all <= 0) continue;
      for (size_t n = 0; n < seconds.size(); ++n)
        ranking_.node_shares[n] += seconds[n] / all / static_cast<double>(costs.node_seconds.size());
    }
  }

  // Not every schedule exists for every plan: such a plan is left out, unless the user asked for just this one.
  bool has_no_schedule(const Candidate& candidate, const Error& error) const {
    if (!scenario_.training) return false;
    const Plan& plan = candidate.ranked.plan;
    const bool asked_for = candidate.ranked.own && std::ranges::any_of(scenario_.plans, [&](const UserPlan& own) {
                             return own.name == plan.name && own.schedule == plan.schedule;
                           });
    if (asked_for) return false;
    if (error.kind == ErrorKind::unsupported) return true;
    const auto input = schedule_input(prepared_for(plan).kernels, plan, scenario_.cluster, &costs_);
    return input.ok() && !make_schedule(plan.schedule, *input).ok();
  }

  // A plan that splits layers cannot always be planned for: more shards than rows, a shard's kernel without a cost. One
  // that search found is left out; so is one of the user's, as long as another micro-batch count or schedule is left.
  Status leave_out(const Candidate& candidate, const Error& error) {
    const Plan& plan = candidate.ranked.plan;
    if (!candidate.ranked.own) {
      if (ranking_.left_out++ == 0) ranking_.why_left_out = error.message;
      return ok_status();
    }
    const Error& first = own_troubles_.try_emplace(plan.name, error).first->second;
    if (--own_ways_[plan.name] == 0) {
      const auto at = std::ranges::find(scenario_.plans, plan.name, &UserPlan::name);
      CHECK(at != scenario_.plans.end(), "a plan of one's own that the scenario has not");
      return at_plan(*at, first);
    }
    const bool known = std::ranges::any_of(ranking_.own_left_out, [&](const OwnLeftOut& other) {
      return other.name == plan.name && other.micro_batches == plan.micro_batches;
    });
    if (!known) ranking_.own_left_out.push_back({plan.name, plan.micro_batches, error.message});
    return ok_status();
  }

  void count_misfit(const DeviceProgram& device, const Candidate& candidate) {
    auto at = std::find_if(ranking_.misfits.begin(), ranking_.misfits.end(),
                           [&](const Misfit& m) { return m.device == device.name; });
    if (at == ranking_.misfits.end()) {
      ranking_.misfits.push_back({device.name, device.memory, device.arena, 0});
      at = ranking_.misfits.end() - 1;
    }
    ++at->plans;
    at->least_needed = std::min(at->least_needed, device.arena);
    if (candidate.ranked.own) count_own_misfit(device, candidate.ranked.plan);
  }

  void count_own_misfit(const DeviceProgram& device, const Plan& plan) {
    auto at = std::find_if(ranking_.own_misfits.begin(), ranking_.own_misfits.end(),
                           [&](const OwnMisfit& m) { return m.name == plan.name && m.device == device.name; });
    if (at == ranking_.own_misfits.end()) {
      ranking_.own_misfits.push_back({plan.name, {}, device.name, device.memory, device.arena});
      at = ranking_.own_misfits.end() - 1;
    }
    if (std::find(at->micro_batches.begin(), at->micro_batches.end(), plan.micro_batches) == at->micro_batches.end()) {
      at->micro_batches.push_back(plan.micro_batches);
    }
    at->least_needed = std::min(at->least_needed, device.arena);
  }

  // So many of the best go to SimGrid.
  size_t wanted() const { return std::max(least_finalists, static_cast<size_t>(scenario_.keep) * 2); }

  // The fast tier's word on a candidate; none: it is counted among those that cannot be.
  Result<std::optional<Estimate>> time(Candidate& candidate) {
    auto result = lower_plan(scenario_, prepared_for(candidate.ranked.plan), candidate.ranked.plan, costs_);
    if (!result) {
      if (has_splits(candidate.ranked.plan)) {
        RETURN_IF_ERROR(leave_out(candidate, result.error()));
        return std::optional<Estimate>();
      }
      if (!has_no_schedule(candidate, result.error())) return result.error();
      if (ranking_.unscheduled++ == 0) ranking_.why_unscheduled = result.error().message;
      return std::optional<Estimate>();
    }
    const LoweredPlan& lowered = *result;
    ++ranking_.considered;
    if (has_splits(candidate.ranked.plan)) ++ranking_.split_inside;
    if (lowered.too_large != nullptr) {
      count_misfit(*lowered.too_large, candidate);
      return std::optional<Estimate>();
    }
    std::optional<Estimate> estimate = estimate_fast(scenario_, lowered);
    if (noise_bound_) candidate.noise_factor = noise_bound_->factor(lowered, estimate->makespan_s);
    return estimate;
  }

  Status fast_tier() {
    std::vector<Candidate> fitting;
    std::vector<Estimate> estimates;  // of each
    // Samples are of all plans that fit; and what a weighted objective is relative to is not known yet.
    const bool prune = options_.samples == 0 && scenario_.objective != Objective::weighted;
    Pruning pruning(wanted(), scenario_.objective);
    Variants variants(ranking_.node_shares);
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (interrupted()) {
        ranking_.interrupted = true;
        break;
      }
      if (i % 64 == 0) progress("timing plans", i, candidates_.size());
      Candidate& candidate = candidates_[i];
      if (prune && candidate.found) {
        if (variants.enough(*candidate.found, candidate.ranked.plan.schedule)) continue;
        if (!pruning.worth(*candidate.found)) continue;
      }
      ASSIGN_OR_RETURN(const std::optional<Estimate> estimate, time(candidate));
      if (!estimate) continue;
      if (prune) {
        pruning.note(candidate.found ? &*candidate.found : nullptr,
                     score_of(goal_, *estimate) * (noise_bound_ ? candidate.noise_factor : 1), respects_of(*estimate),
                     is_split(candidate.ranked.plan));
        if (candidate.found) variants.note(*candidate.found, candidate.ranked.plan.schedule);
      }
      estimates.push_back(*estimate);
      fitting.push_back(std::move(candidate));
    }
    candidates_ = std::move(fitting);
    if (candidates_.empty() && !ranking_.interrupted) return nothing_fits();
    measure_against_singles(estimates);
    score(estimates, 0);
    if (may_refine() && !ranking_.interrupted) {
      RETURN_IF_ERROR(refine(estimates));
    }
    choose_champions(estimates);
    return ok_status();
  }

  bool may_refine() const {
    const SearchOptions& search = scenario_.search;
    const bool annealed = search.method == "anneal" && (search.layers || search.replicate);
    return !scenario_.training && (annealed || !search.axes.empty());
  }

  // What a weighted objective is relative to: the best single device among the candidates.
  void measure_against_singles(const std::vector<Estimate>& estimates) {
    std::vector<Estimate> singles, others;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      std::vector<Estimate>& kind = is_single(candidates_[i].ranked.plan) ? singles : others;
      kind.push_back(estimates[i]);
    }
    if (!candidates_.empty()) set_yardstick(goal_, singles, others);
  }

  void score(const std::vector<Estimate>& estimates, size_t from) {
    for (size_t i = from; i < candidates_.size(); ++i) {
      candidates_[i].fast_score = score_of(goal_, estimates[i]);
      candidates_[i].noisy_score = candidates_[i].fast_score * candidates_[i].noise_factor;
    }
  }

  // Small changes to the best plans, each timed by the fast tier: split stages, their shares and where they end are too
  // many to list.
  Status refine(std::vector<Estimate>& estimates) {
    std::vector<size_t> order(candidates_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t i) { return candidates_[i].fast_score; });
    // The best of all, and the best that have a split stage.
    std::vector<Plan> starts;
    for (const bool split : {false, true}) {
      size_t taken = 0;
      for (const size_t i : order) {
        const Candidate& candidate = candidates_[i];
        if (candidate.ranked.own || (split && !has_splits(candidate.ranked.plan))) continue;
        if (std::ranges::find(starts, candidate.ranked.plan) == starts.end()) starts.push_back(candidate.ranked.plan);
        if (++taken == refined_plans / 2) break;
      }
    }
    AnnealSpace space;
    space.graph = &prepared_.front().kernels.graph;
    const SearchCosts& costs = *first_costs_;
    space.cuts = distinct_cuts(find_cuts(*space.graph), costs.node_seconds, costs.cut_bytes);
    for (size_t d = 0; d < scenario_.cluster.devices.size(); ++d) space.devices.push_back(DeviceId(d));
    space.max_devices =
        scenario_.search.max_devices > 0 ? scenario_.search.max_devices : scenario_.cluster.devices.size();
    space.max_stages = scenario_.search.max_stages > 0 ? scenario_.search.max_stages : space.max_devices;
    if (!scenario_.search.layers) space.max_stages = 1;
    space.replicate = scenario_.search.replicate;
    space.axes = scenario_.search.axes;
    space.micro_batches = scenario_.micro_batches;
    space.shares = [&](const Stage& stage) { return shares_by_speed(costs, stage); };
    const auto is_same = [](const Plan& a, const Plan& b) {
      return a.stages == b.stages && a.micro_batches == b.micro_batches && a.schedule == b.schedule;
    };
    Status status = ok_status();
    size_t done = 0;
    space.cost = [&](const Plan& plan) {
      constexpr double cannot_be = std::numeric_limits<double>::infinity();
      if (!status.ok() || interrupted()) return cannot_be;
      for (const Candidate& known : candidates_) {
        if (!known.ranked.own && is_same(known.ranked.plan, plan)) return known.fast_score;
      }
      if (done++ % 16 == 0) progress("changing the best plans", done, refining_steps);
      Candidate candidate;
      candidate.ranked.plan = plan;
      auto estimate = time(candidate);
      if (!estimate) {
        status = estimate.error();
        return cannot_be;
      }
      if (!estimate->has_value()) return cannot_be;
      estimates.push_back(**estimate);
      candidates_.push_back(std::move(candidate));
      score(estimates, candidates_.size() - 1);
      return candidates_.back().fast_score;
    };
    anneal(space, starts, {.steps = refining_steps, .seed = scenario_.search.seed});
    if (interrupted()) ranking_.interrupted = true;
    return status;
  }

  // The best split in each respect is simulated whatever the objective: the verdict speaks of all three. So is the most
  // even one, which would be the best over faster links. And the yardsticks: all of them where they are few, else the
  // best device and the best copies in each respect.
  void choose_champions(const std::vector<Estimate>& estimates) {
    size_t yardsticks = 0;
    for (const Candidate& candidate : candidates_) yardsticks += is_yardstick(candidate);
    choose_best(estimates, [](const Candidate& candidate) { return is_split(candidate.ranked.plan); });
    if (yardsticks <= most_yardsticks) return;
    for (Candidate& candidate : candidates_) {
      if (is_yardstick(candidate)) candidate.must_judge = false;
    }
    for (const bool single : {false, true}) {
      choose_best(estimates, [&](const Candidate& candidate) {
        return is_yardstick(candidate) && is_single(candidate.ranked.plan) == single;
      });
    }
  }

  static bool is_yardstick(const Candidate& candidate) {
    return !candidate.ranked.own && !is_split(candidate.ranked.plan);
  }

  // Of these the best in each respect must be judged.
  template <class Among>
  void choose_best(const std::vector<Estimate>& estimates, const Among& among) {
    Respects least;
    std::array<size_t, std::tuple_size_v<Respects>> champion = {};
    least.fill(std::numeric_limits<double>::infinity());
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (!among(candidates_[i])) continue;
      const Respects scores = respects_of(estimates[i]);
      for (size_t s = 0; s < scores.size(); ++s) {
        if (scores[s] >= least[s]) continue;
        least[s] = scores[s];
        champion[s] = i;
      }
    }
    for (size_t s = 0; s < champion.size(); ++s) {
      if (std::isfinite(least[s])) candidates_[champion[s]].must_judge = true;
    }
  }

  Error nothing_fits() const {
    if (ranking_.misfits.empty()) {
      Error error =
          unsupported(ranking_.unscheduled > 0 ? fmt::format("no plan can be scheduled: {}", ranking_.why_unscheduled)
                                               : fmt::format("no plan can be lowered: {}", ranking_.why_left_out));
      error.where.file = scenario_.file;
      return error;
    }
    std::string text = "no plan fits in the devices' memory:";
    for (const Misfit& misfit : ranking_.misfits) {
      text += fmt::format("\n  {} has {}, the most modest plan that uses it needs {}", misfit.device,
                          to_string(misfit.has), to_string(misfit.least_needed));
    }
    Error error = invalid_input(text);
    error.where.file = scenario_.file;
    return error;
  }

  void draw_samples() {
    Random random(options_.seed);
    std::vector<size_t> order(candidates_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t i = 0; i < std::min(options_.samples, order.size()); ++i) {
      std::swap(order[i], order[i + random.below(order.size() - i)]);
      candidates_[order[i]].ranked.sampled = candidates_[order[i]].must_judge = true;
    }
  }

  // Whether or not noise is asked for now: a plan's number must not depend on it.
  void choose_robust(size_t most) {
    std::vector<size_t> order(candidates_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t i) { return candidates_[i].noisy_score; });
    for (size_t i = 0; i < std::min(most, order.size()); ++i) candidates_[order[i]].must_judge = true;
  }

  Status judge() {
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.fast_score < b.fast_score; });
    draw_samples();
    if (noise_bound_) choose_robust(wanted());
    std::vector<Candidate> chosen, finalists;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (i < wanted() || candidates_[i].must_judge) chosen.push_back(std::move(candidates_[i]));
    }
    std::vector<LoweredPlan> lowered;
    lowered.reserve(chosen.size());
    for (Candidate& candidate : chosen) {
      progress("lowering", lowered.size(), chosen.size());
      const Plan& plan = candidate.ranked.plan;
      ASSIGN_OR_RETURN(LoweredPlan one, lower_plan(scenario_, prepared_for(plan), plan, costs_));
      if (const Status sound = verify(one.program); !sound.ok()) {
        // One device has several stages then, and its messages may need another order than its slots.
        if (has_splits(plan) && !candidate.ranked.own) {
          RETURN_IF_ERROR(leave_out(candidate, sound.error()));
          continue;
        }
        if (!candidate.ranked.own) {
          CHECK(false, fmt::format("a plan found by search does not verify: {}: {}",
                                   to_string(plan, graph_, scenario_.cluster), sound.error().message));
        }
        Error error = sound.error();
        error.message = fmt::format("plan {} cannot run: {}", plan.name, error.message);
        return error;
      }
      if (has_splits(plan)) count_costs_of(one.program);
      lowered.push_back(std::move(one));
      finalists.push_back(std::move(candidate));
    }
    ranking_.judged.resize(finalists.size());
    RETURN_IF_ERROR(simulate_each(
        scenario_.cluster, lowered.size(),
        [&](size_t i) {
          return Simulation{&lowered[i].timed, {}};
        },
        [&](size_t i, const Timing& timing) {
          progress("simulating", i, lowered.size());
          RankedPlan& plan = finalists[i].ranked;
          plan.estimate = estimate_of(scenario_, lowered[i], timing);
          add_breakdown(lowered[i], break_down(lowered[i].timed, timing, scenario_.cluster), scenario_.cluster,
                        plan.estimate);
          plan.text = to_string(plan.plan, graph_, scenario_.cluster);
          std::ranges::copy(lowered[i].notes, std::back_inserter(plan.notes));
          plan.promise = lowered[i].promise;
          plan.layers = layers_of(plan.plan);
          ranking_.judged[i] = std::move(plan);
          return true;
        }));
    if (scenario_.noise && (options_.noise || options_.robust)) {
      ASSIGN_OR_RETURN(const NoiseRuns noisy, run_noise(scenario_, lowered, options_));
      ranking_.noise_runs = noisy.runs;
      for (size_t i = 0; i < noisy.plans.size(); ++i) ranking_.judged[i].noisy = noisy.plans[i];
    }
    measure_judged();
    sort_judged(std::move(lowered));
    ranking_.order.resize(ranking_.judged.size());
    std::iota(ranking_.order.begin(), ranking_.order.end(), size_t{0});
    if (options_.robust && ranking_.noise_runs > 0) {
      ranking_.robust = true;
      std::ranges::stable_sort(ranking_.order, {},
                               [&](size_t i) { return score_of(goal_, ranking_.judged[i].noisy.value()); });
    }
    return ok_status();
  }

  // Best first, and the lowered plans with them.
  void sort_judged(std::vector<LoweredPlan> lowered) {
    std::vector<size_t> order(lowered.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t i) { return score_of(goal_, ranking_.judged[i].estimate); });
    std::vector<RankedPlan> sorted;
    for (const size_t i : order) {
      sorted.push_back(std::move(ranking_.judged[i]));
      judged_.push_back(std::move(lowered[i]));
    }
    ranking_.judged = std::move(sorted);
  }

  void count_cost(DeviceId device, const ComputeDesc& desc) {
    if (desc.kernel.empty()) return;
    if (const auto cost = costs_.cost(device, desc))
      seen_costs_.emplace(std::pair(signature(desc), cost->origin), cost->spread);
  }

  // Of a plan that splits layers: no other has its shards.
  void count_costs_of(const Program& program) {
    for (const DeviceProgram& device : program.devices) {
      const DeviceId id = scenario_.cluster.find_device(device.name);
      if (device.kind == DeviceKind::host || !id.valid()) continue;
      for (const Segment& segment : device.segments) {
        for (const Instr& instr : segment.instrs) {
          if (instr.opcode == Opcode::compute) count_cost(id, program.descs[static_cast<size_t>(instr.desc)]);
        }
      }
    }
  }

  std::vector<std::string> layers_of(const Plan& plan) const {
    if (plan.stages.size() == 1) return {"all"};
    std::vector<std::string> layers;
    for (const Stage& stage : plan.stages)
      layers.push_back(stage.end == graph_.nodes.size() ? "rest" : ".." + cut_name(graph_, stage.end));
    return layers;
  }

  // From here on the objective is relative to what SimGrid says.
  void measure_judged() {
    std::vector<Estimate> singles, others;
    for (const RankedPlan& plan : ranking_.judged) {
      std::vector<Estimate>& kind = is_single(plan.plan) ? singles : others;
      kind.push_back(plan.estimate);
    }
    if (!ranking_.judged.empty()) set_yardstick(goal_, singles, others);
    ranking_.goal = goal_;
  }

  // How many distinct computations stand behind the answer, and where their costs come from. One that has none is
  // needed by no plan.
  void count_costs() {
    for (const PreparedModel& prepared : prepared_) {
      for (const auto& [isa, chosen] : prepared.kernels.chosen) {
        for (size_t d = 0; d < scenario_.cluster.devices.size(); ++d) {
          if (scenario_.cluster.devices[d].isa != isa) continue;
          std::vector<ComputeDesc> descs = chosen.descs;
          if (const auto& training = prepared.kernels.training) {
            for (const auto* parts : {&training->input_gradients, &training->weight_gradients}) {
              for (const NodeGradient& part : *parts) descs.push_back(part.desc);
            }
          }
          for (const ComputeDesc& desc : descs) count_cost(DeviceId(d), desc);
        }
      }
    }
    for (const auto& [what, spread] : seen_costs_) {
      switch (what.second) {
        case CostOrigin::measured:
          ++ranking_.measured_costs;
          break;
        case CostOrigin::predicted:
          ++ranking_.predicted_costs;
          ranking_.largest_spread = std::max(ranking_.largest_spread, spread);
          break;
        case CostOrigin::roofline:
          ++ranking_.estimated_costs;
          break;
      }
    }
  }

  const Scenario& scenario_;
  const Graph& graph_;
  const RankOptions& options_;
  CostTable costs_;
  Goal goal_;
  std::optional<NoiseBound> noise_bound_;
  std::optional<SearchCosts> first_costs_;  // of the fewest micro-batches; of inference
  std::vector<PreparedModel> prepared_;
  std::vector<Candidate> candidates_;
  std::vector<LoweredPlan> judged_;            // as Ranking::judged
  std::map<std::string, size_t> own_ways_;     // by name: micro-batch counts and schedules still possible
  std::map<std::string, Error> own_troubles_;  // by name: the first reason why one is not
  std::map<std::pair<std::string, CostOrigin>, double> seen_costs_;  // by signature: its spread
  Ranking ranking_;
};

}  // namespace

Result<PreparedModel> prepare_model(const Scenario& scenario, const Graph& optimized, int micro_batches,
                                    const KernelPreference& prefer) {
  ASSIGN_OR_RETURN(Graph graph, with_batch(optimized, scenario.batch / micro_batches));
  if (auto batched = batched_values(graph); !batched && micro_batches > 1) {
    Error error = batched.error();
    error.message = "the batch cannot be cut into micro-batches: " + error.message;
    return error;
  }
  PreparedModel prepared;
  prepared.micro_batches = micro_batches;
  auto kernels = choose_kernels(std::move(graph), levels_of(scenario.cluster),
                                prefer ? prefer : fastest_measured(scenario.costs), scenario.training);
  if (!kernels) return kernels.error();
  prepared.kernels = std::move(*kernels);
  return prepared;
}

Result<std::vector<RankedPlan>> resolve_own_plan(const Scenario& scenario, const Graph& optimized,
                                                 const UserPlan& own) {
  std::vector<RankedPlan> plans;
  std::vector<PlanNote> notes;
  auto stages = parse_stages(own.stages, optimized, scenario.cluster, &notes);
  if (!stages) {
    return at_plan(own, stages.error());
  }
  if (scenario.training && std::ranges::any_of(*stages, [](const Stage& stage) { return stage.split.has_value(); })) {
    return at_plan(own, unsupported("splits inside layers are for inference, and this scenario trains: nothing splits "
                                    "gradients yet"));
  }
  for (const int micro_batches : own.micro_batches.empty() ? scenario.micro_batches : own.micro_batches) {
    for (const std::string& schedule :
         own.schedule.empty() ? scenario.schedules : std::vector<std::string>{own.schedule}) {
      RankedPlan ranked;
      ranked.plan = {own.name, *stages, micro_batches, schedule};
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

bool is_split(const Plan& plan) { return plan.stages.size() > 1 || has_splits(plan); }

Result<Ranking> rank_plans(const Scenario& scenario, const Model& model, const RankOptions& options) {
  return Ranker(scenario, model, options).run();
}

double cost_of(const Ranking& ranking, const Estimate& estimate) { return score_of(ranking.goal, estimate); }

Result<TimedPlan> time_plan(const Scenario& scenario, const Graph& optimized, const Plan& plan,
                            std::optional<int> noise_run, const Scenario* timed_by) {
  if (noise_run && !scenario.noise) return no_noise(scenario, "a run of it");
  if (noise_run && (*noise_run < 0 || *noise_run >= scenario.noise->runs))
    return invalid_input(fmt::format("the scenario's noise has runs 1 … {}", scenario.noise->runs));
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
                   simulate_all(timed_by != nullptr ? timed_by->cluster : scenario.cluster, graphs));
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
  timed.notes = std::move(lowered.notes);
  timed.promise = std::move(lowered.promise);
  return timed;
}

}  // namespace nlsplit
