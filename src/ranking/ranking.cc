#include "ranking/ranking.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "base/random.h"
#include "graph/passes.h"
#include "program/verify.h"
#include "ranking/evaluate.h"
#include "ranking/judge_baselines.h"
#include "ranking/noise_runs.h"
#include "ranking/verdict.h"
#include "sim/disturb.h"
#include "sim/simgrid/simgrid_tier.h"

namespace nlsplit {
namespace {

// At least so many plans go from the fast tier to SimGrid, so that contention can still reorder the top.
constexpr size_t least_finalists = 40;

struct Candidate {
  RankedPlan ranked;
  size_t prepared = 0;      // index into the prepared models
  double bound = 0;         // seconds no schedule of it can beat; 0: look at it first
  double fast_score = 0;    // smaller is better
  double noisy_score = 0;   // the same under noise, if there is any
  bool must_judge = false;  // own plans and yardsticks
};

std::vector<Isa> levels_of(const Cluster& cluster) {
  std::set<Isa> levels;
  for (const Device& device : cluster.devices) levels.insert(device.isa);
  return {levels.begin(), levels.end()};
}

double score_of(Objective objective, const NoisyEstimate& estimate) {
  switch (objective) {
    case Objective::throughput:
      return estimate.makespan_s.p95;
    case Objective::latency:
      return estimate.latency_s.p95;
  }
  CHECK(false, "unknown objective");
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
    RETURN_IF_ERROR(collect_candidates());
    RETURN_IF_ERROR(fast_tier());
    RETURN_IF_ERROR(judge());
    if (options_.baselines) {
      ASSIGN_OR_RETURN(ranking_.baselines, judge_baselines(scenario_, graph_, prepared_, costs_, options_));
    }
    count_costs();
    ranking_.keep = std::min(ranking_.judged.size(), static_cast<size_t>(scenario_.keep));
    ASSIGN_OR_RETURN(ranking_.verdict, make_verdict(scenario_, prepared_, costs_, ranking_));
    ranking_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return std::move(ranking_);
  }

 private:
  bool interrupted() const { return options_.interrupted && options_.interrupted(); }
  void progress(std::string_view phase, size_t done, size_t total) const {
    if (options_.progress) options_.progress(phase, done, total);
  }

  size_t prepared_index(int micro_batches) const {
    for (size_t i = 0; i < prepared_.size(); ++i) {
      if (prepared_[i].micro_batches == micro_batches) return i;
    }
    CHECK(false, "a micro-batch count nobody prepared");
  }

  Status collect_candidates() {
    std::vector<RankedPlan> own;
    for (const UserPlan& plan : scenario_.plans) {
      ASSIGN_OR_RETURN(std::vector<RankedPlan> resolved, resolve_own_plan(scenario_, graph_, plan));
      std::move(resolved.begin(), resolved.end(), std::back_inserter(own));
    }
    std::set<int> counts(scenario_.micro_batches.begin(), scenario_.micro_batches.end());
    for (const RankedPlan& plan : own) counts.insert(plan.plan.micro_batches);
    for (const int count : counts) {
      progress("preparing the model", prepared_.size(), counts.size());
      ASSIGN_OR_RETURN(PreparedModel model, prepare_model(scenario_, graph_, count));
      prepared_.push_back(std::move(model));
    }
    for (const int count : scenario_.micro_batches) {
      const size_t index = prepared_index(count);
      ASSIGN_OR_RETURN(SearchResult found, search(prepared_[index]));
      ranking_.devices = found.devices;
      ranking_.space += found.space * static_cast<double>(scenario_.schedules.size());
      for (ScoredPlan& scored : found.plans) {
        for (const std::string& schedule : scenario_.schedules) {
          Candidate candidate;
          candidate.ranked.plan = scored.plan;
          candidate.ranked.plan.schedule = schedule;
          candidate.prepared = index;
          candidate.must_judge = scored.plan.stages.size() == 1;
          candidate.bound = candidate.must_judge ? 0 : scored.bound_seconds;
          candidates_.push_back(std::move(candidate));
        }
      }
    }
    for (RankedPlan& plan : own) {
      Candidate candidate;
      candidate.prepared = prepared_index(plan.plan.micro_batches);
      candidate.ranked = std::move(plan);
      candidate.must_judge = true;
      candidates_.push_back(std::move(candidate));
    }
    // The promising ones first, yardsticks and own plans before them all, in case somebody interrupts.
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.bound < b.bound; });
    return ok_status();
  }

  Result<SearchResult> search(const PreparedModel& prepared) const {
    const HostId source = scenario_.endpoints.source;
    ASSIGN_OR_RETURN(const SearchCosts costs, search_costs(scenario_, prepared, costs_));
    const Graph& graph = prepared.kernels.graph;
    if (!scenario_.training)
      return search_layers(graph, scenario_.cluster, source, scenario_.endpoints.sink, costs, scenario_.search);
    Graph without_outputs = graph;  // nothing goes to the sink
    without_outputs.outputs.clear();
    return search_layers(without_outputs, scenario_.cluster, source, source, costs, scenario_.search);
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
    const auto input = schedule_input(prepared_[candidate.prepared].kernels, plan, scenario_.cluster, &costs_);
    return input.ok() && !make_schedule(plan.schedule, *input).ok();
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

  Status fast_tier() {
    std::vector<Candidate> fitting;
    // The best split in each respect is simulated whatever the objective: the verdict speaks of all three. So is the
    // most even one, which would be the best over faster links.
    std::array<double, 4> least;
    std::array<size_t, 4> champion = {};
    least.fill(std::numeric_limits<double>::infinity());
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (interrupted()) {
        ranking_.interrupted = true;
        break;
      }
      if (i % 64 == 0) progress("timing plans", i, candidates_.size());
      Candidate& candidate = candidates_[i];
      auto result = lower_plan(scenario_, prepared_[candidate.prepared], candidate.ranked.plan, costs_);
      if (!result) {
        if (!has_no_schedule(candidate, result.error())) return result.error();
        if (ranking_.unscheduled++ == 0) ranking_.why_unscheduled = result.error().message;
        continue;
      }
      const LoweredPlan& lowered = *result;
      ++ranking_.considered;
      if (lowered.too_large != nullptr) {
        count_misfit(*lowered.too_large, candidate);
        continue;
      }
      const Estimate estimate = estimate_fast(scenario_, lowered);
      candidate.fast_score = score_of(scenario_.objective, estimate);
      if (noise_bound_)
        candidate.noisy_score = candidate.fast_score * noise_bound_->factor(lowered, estimate.makespan_s);
      if (candidate.ranked.plan.stages.size() > 1) {
        const std::array<double, 4> scores = {estimate.makespan_s, estimate.latency_mean_s,
                                              static_cast<double>(estimate.largest_memory.value()),
                                              estimate.busiest_device_share * estimate.makespan_s};
        for (size_t s = 0; s < scores.size(); ++s) {
          if (scores[s] >= least[s]) continue;
          least[s] = scores[s];
          champion[s] = fitting.size();
        }
      }
      fitting.push_back(std::move(candidate));
    }
    for (size_t s = 0; s < champion.size(); ++s) {
      if (std::isfinite(least[s])) fitting[champion[s]].must_judge = true;
    }
    candidates_ = std::move(fitting);
    if (candidates_.empty() && !ranking_.interrupted) return nothing_fits();
    return ok_status();
  }

  Error nothing_fits() const {
    if (ranking_.misfits.empty()) {
      Error error = unsupported(fmt::format("no plan can be scheduled: {}", ranking_.why_unscheduled));
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
  void choose_robust(size_t wanted) {
    std::vector<size_t> order(candidates_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t i) { return candidates_[i].noisy_score; });
    for (size_t i = 0; i < std::min(wanted, order.size()); ++i) candidates_[order[i]].must_judge = true;
  }

  Status judge() {
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.fast_score < b.fast_score; });
    draw_samples();
    const size_t wanted = std::max(least_finalists, static_cast<size_t>(scenario_.keep) * 2);
    if (noise_bound_) choose_robust(wanted);
    std::vector<Candidate> finalists;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (i < wanted || candidates_[i].must_judge) finalists.push_back(std::move(candidates_[i]));
    }
    std::vector<LoweredPlan> lowered;
    lowered.reserve(finalists.size());
    for (size_t i = 0; i < finalists.size(); ++i) {
      progress("lowering", i, finalists.size());
      ASSIGN_OR_RETURN(LoweredPlan one,
                       lower_plan(scenario_, prepared_[finalists[i].prepared], finalists[i].ranked.plan, costs_));
      if (const Status sound = verify(one.program); !sound.ok()) {
        if (!finalists[i].ranked.own) {
          CHECK(false,
                fmt::format("a plan found by search does not verify: {}: {}",
                            to_string(finalists[i].ranked.plan, graph_, scenario_.cluster), sound.error().message));
        }
        Error error = sound.error();
        error.message = fmt::format("plan {} cannot run: {}", finalists[i].ranked.plan.name, error.message);
        return error;
      }
      lowered.push_back(std::move(one));
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
          ranking_.judged[i] = std::move(plan);
          return true;
        }));
    if (scenario_.noise && (options_.noise || options_.robust)) {
      ASSIGN_OR_RETURN(const NoiseRuns noisy, run_noise(scenario_, lowered, options_));
      ranking_.noise_runs = noisy.runs;
      for (size_t i = 0; i < noisy.plans.size(); ++i) ranking_.judged[i].noisy = noisy.plans[i];
    }
    std::stable_sort(ranking_.judged.begin(), ranking_.judged.end(), [&](const RankedPlan& a, const RankedPlan& b) {
      return score_of(scenario_.objective, a.estimate) < score_of(scenario_.objective, b.estimate);
    });
    ranking_.order.resize(ranking_.judged.size());
    std::iota(ranking_.order.begin(), ranking_.order.end(), size_t{0});
    if (options_.robust && ranking_.noise_runs > 0) {
      ranking_.robust = true;
      std::ranges::stable_sort(ranking_.order, {}, [&](size_t i) {
        return score_of(scenario_.objective, ranking_.judged[i].noisy.value());
      });
    }
    return ok_status();
  }

  // How many distinct computations stand behind the answer, and where their costs come from. One that has none is
  // needed by no plan.
  void count_costs() {
    std::map<std::pair<std::string, CostOrigin>, double> seen;  // spread
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
          for (const ComputeDesc& desc : descs) {
            if (desc.kernel.empty()) continue;
            if (const auto cost = costs_.cost(DeviceId(d), desc))
              seen.emplace(std::pair(signature(desc), cost->origin), cost->spread);
          }
        }
      }
    }
    for (const auto& [what, spread] : seen) {
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
  std::optional<NoiseBound> noise_bound_;
  std::vector<PreparedModel> prepared_;
  std::vector<Candidate> candidates_;
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

std::string to_string(const OwnMisfit& misfit) {
  std::string counts;
  for (size_t i = 0; i < misfit.micro_batches.size(); ++i) {
    counts += i == 0 ? "" : i + 1 == misfit.micro_batches.size() ? " or " : ", ";
    counts += fmt::format("{}", misfit.micro_batches[i]);
  }
  return fmt::format("{} does not fit in {} micro-batch{}: {} has {} and would need {}{}", misfit.name, counts,
                     counts == "1" ? "" : "es", misfit.device, to_string(misfit.has), to_string(misfit.least_needed),
                     misfit.micro_batches.size() > 1 ? " or more" : "");
}

Result<Ranking> rank_plans(const Scenario& scenario, const Model& model, const RankOptions& options) {
  return Ranker(scenario, model, options).run();
}

Result<RankedPlan> find_plan(const Ranking& ranking, const std::string& which) {
  size_t number = 0;
  const auto [end, failure] = std::from_chars(which.data(), which.data() + which.size(), number);
  if (failure == std::errc() && end == which.data() + which.size()) {
    if (number >= 1 && number <= ranking.judged.size()) return ranking.judged[number - 1];
    return invalid_input(fmt::format("there is no plan {}; the ranking has 1 … {}", which, ranking.judged.size()));
  }
  if (ranking.judged.empty()) return invalid_input("the ranking is empty");
  for (const OwnMisfit& misfit : ranking.own_misfits) {
    const bool fits = std::any_of(ranking.judged.begin(), ranking.judged.end(),
                                  [&](const RankedPlan& p) { return p.own && p.plan.name == misfit.name; });
    if (!fits && misfit.name == which) return invalid_input("plan " + to_string(misfit));
  }
  std::string names;
  std::set<std::string> listed;
  for (const RankedPlan& plan : ranking.judged) {
    if (!plan.own) continue;
    if (plan.plan.name == which) return plan;
    if (!listed.insert(plan.plan.name).second) continue;
    names += (names.empty() ? "" : ", ") + plan.plan.name;
  }
  return invalid_input(fmt::format("there is no plan called {}; take a number 1 … {}{}", which, ranking.judged.size(),
                                   names.empty() ? "" : " or one of " + names));
}

std::vector<size_t> kept(const Ranking& ranking) {
  return {ranking.order.begin(), ranking.order.begin() + static_cast<std::ptrdiff_t>(ranking.keep)};
}

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
  return timed;
}

}  // namespace nlsplit
