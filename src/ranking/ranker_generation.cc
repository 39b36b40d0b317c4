// Plans that generate: prompts beside tokens in the search, and the best of them as sessions that take prompts and make
// tokens.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/cores.h"
#include "compile/split.h"
#include "graph/memory.h"
#include "ranking/generation.h"
#include "ranking/ranker.h"
#include "ranking/shorter.h"

namespace nlsplit::inline ranking {

namespace {

constexpr size_t sessions_a_core = 4;           // compiled before they are simulated
constexpr int64_t long_contexts[] = {64, 128};  // times the workload's: what grows with it is then larger than the rest
constexpr size_t required_each = 10;            // plans judged for each requirement, whatever the objective

// A plan's session, or those of the shorter networks it is made of.
struct PlanSessions {
  std::vector<double> weights;
  std::vector<CompiledSession> sessions;
};

Result<PlanSessions> sessions_of(const Scenario& scenario, const GenerationModels& models, ShorterGenerations* shorter,
                                 const Plan& plan, bool verify = true) {
  PlanSessions made;
  const std::vector<ShorterPlan> plans =
      shorter == nullptr ? std::vector<ShorterPlan>() : shorter_plans(plan, shorter->repeat());
  if (plans.empty()) {
    ASSIGN_OR_RETURN(CompiledSession session, generation_session(scenario, models, plan, verify));
    made.weights = {1};
    made.sessions.push_back(std::move(session));
  }
  for (const ShorterPlan& one : plans) {
    ASSIGN_OR_RETURN(const GenerationModels* fewer, shorter->without(one.fewer));
    ASSIGN_OR_RETURN(CompiledSession session, generation_session(scenario, *fewer, one.plan, verify));
    made.weights.push_back(one.weight);
    made.sessions.push_back(std::move(session));
  }
  return made;
}

template <class Of>
double weighted_sum(const std::vector<double>& weights, const Of& of) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) sum += weights[i] * of(i);
  return sum;
}

// [device of the Programs]
std::vector<DeviceNeeds> needed_by(const PlanSessions& plan) {
  std::vector<DeviceNeeds> needed;
  const auto sum = [&](const auto& of) { return bytes(std::llround(weighted_sum(plan.weights, of))); };
  const std::vector<DeviceProgram>& devices = plan.sessions[0].session.programs[0].devices;
  for (size_t d = 0; d < devices.size(); ++d) {
    const Bytes arena = sum([&](size_t i) {
      int64_t most = 0;
      for (const Program& program : plan.sessions[i].session.programs)
        most = std::max(most, program.devices[d].arena.value());
      return static_cast<double>(most);
    });
    const Bytes caches = sum([&](size_t i) {
      int64_t all = 0;
      for (const Buffer& buffer : plan.sessions[i].session.programs.back().devices[d].buffers)
        all += buffer.kind == BufferKind::state ? buffer.stride() : 0;
      return static_cast<double>(all);
    });
    needed.push_back({devices[d].kind, devices[d].memory, arena, caches});
  }
  return needed;
}

// Of the device that needs the most. Error: it is more than a device has.
Status find_fullest(const PlanSessions& plan, const std::vector<DeviceNeeds>& needed, GenerationTimes& times) {
  const std::vector<DeviceProgram>& devices = plan.sessions[0].session.programs[0].devices;
  for (size_t d = 0; d < devices.size(); ++d) {
    if (needed[d].kind == DeviceKind::host) continue;
    if (needed[d].arena > needed[d].memory)
      return invalid_input(fmt::format("device {} has {} of memory, and this needs {}", devices[d].name,
                                       to_string(needed[d].memory), to_string(needed[d].arena)));
    if (needed[d].arena <= times.fullest_memory) continue;
    times.fullest_device = devices[d].name;
    times.fullest_memory = needed[d].arena;
  }
  return ok_status();
}

Result<std::unique_ptr<LongerContext>> with_context(const Scenario& scenario, int64_t context,
                                                    const std::map<int, GenerationModels>& like,
                                                    const ShorterGenerations* shorter) {
  auto made = std::make_unique<LongerContext>();
  made->scenario = scenario;
  made->scenario.generation->context = context;
  for (Device& device : made->scenario.cluster.devices) device.memory = bytes(std::numeric_limits<int64_t>::max() / 4);
  ASSIGN_OR_RETURN(const Model model, load_model(made->scenario));
  for (const auto& [count, models] : like) {
    ASSIGN_OR_RETURN(made->models[count], prepare_generation(made->scenario, model.graph, count, nullptr));
  }
  if (shorter != nullptr)
    made->shorter = std::make_unique<ShorterGenerations>(made->scenario, made->models.at(1), shorter->repeat());
  return made;
}

// Positions until one of the devices is full. 0: not known. What is there beside the caches, the more of some kernels'
// scratch included, is as large as now until scratch that grows with the context is larger: a line through two long
// contexts.
int64_t largest_context(const std::vector<DeviceNeeds>& now, const Scenario& scenario,
                        const std::vector<std::unique_ptr<LongerContext>>& longer, const Plan& plan) {
  if (longer.empty()) return 0;
  std::vector<std::vector<DeviceNeeds>> there;
  std::vector<double> context = {static_cast<double>(scenario.generation->context)};
  for (const auto& one : longer) {
    const auto sessions =
        sessions_of(one->scenario, one->models.at(plan.micro_batches), one->shorter.get(), plan, false);
    if (!sessions) return 0;
    there.push_back(needed_by(*sessions));
    context.push_back(static_cast<double>(one->scenario.generation->context));
  }
  const auto value = [](Bytes bytes) { return static_cast<double>(bytes.value()); };
  double most = std::numeric_limits<double>::infinity();
  for (size_t d = 0; d < now.size(); ++d) {
    if (now[d].kind == DeviceKind::host) continue;
    const double memory = value(now[d].memory);
    const double caches = value(there[1][d].caches - there[0][d].caches) / (context[2] - context[1]);
    const double all = value(there[1][d].arena - there[0][d].arena) / (context[2] - context[1]);
    if (caches > 0) most = std::min(most, context[0] + (memory - value(now[d].arena)) / caches);
    if (all > 0) most = std::min(most, context[1] + (memory - value(there[0][d].arena)) / all);
  }
  if (!std::isfinite(most) || most < context[0]) return 0;
  const int64_t step = arena_alignment / 4;  // positions whose every buffer is a multiple of the alignment
  return std::max(static_cast<int64_t>(most) / step * step, scenario.generation->context);
}

}  // namespace

bool Ranker::prompts_matter() const {
  if (generations_.empty() || !generations_.begin()->second.prefill) return false;
  const Generation& of = *scenario_.generation;
  return of.objective != GenerationObjective::tpot || of.require.ttft_s || of.require.tokens_per_second;
}

Status Ranker::prepare_generations() {
  for (const PreparedModel& prepared : prepared_) {
    const int count = prepared.micro_batches;
    ASSIGN_OR_RETURN(generations_[count], prepare_generation(scenario_, graph_, count, nullptr));
  }
  const auto one = generations_.find(1);
  if (!shorter_ || one == generations_.end()) return ok_status();
  shorter_generations_ = std::make_unique<ShorterGenerations>(scenario_, one->second, shorter_->repeat());
  if (!shorter_generations_->exist()) shorter_generations_.reset();
  if (shorter_generations_ && one->second.prefill)
    shorter_prompts_ = std::make_unique<ShorterModels>(scenario_, one->second.prefill->kernels.graph,
                                                       shorter_generations_->repeat_of_prompts().value());
  return ok_status();
}

// Of the executions that the cost is made of. Chunks of a prompt follow each other through the stages.
ScoredPlan Ranker::with_prompts(const ScoredPlan& tokens, const ScoredPlan& prompts) const {
  const Executions executions = executions_of(scenario_);
  const double chunks = executions.prompts;
  const auto sum = [&](double of_tokens, double of_prompts) {  // either may be infinite
    return (executions.tokens > 0 ? executions.tokens * of_tokens : 0) + (chunks > 0 ? of_prompts : 0);
  };
  const double behind = (chunks - 1) * prompts.busiest_seconds;
  ScoredPlan both = tokens;
  both.bound_seconds = sum(tokens.bound_seconds, prompts.bound_seconds + behind);
  both.latency_seconds = sum(tokens.latency_seconds, prompts.latency_seconds + behind);
  both.busiest_seconds = sum(tokens.busiest_seconds, chunks * prompts.busiest_seconds);
  both.memory_bytes = std::max(tokens.memory_bytes, prompts.memory_bytes);
  both.inner_nodes += prompts.inner_nodes;
  both.inner_instructions += prompts.inner_instructions;
  return both;
}

Status Ranker::search_prompts(Searched& searched) {
  const int count = searched.costs.micro_batches;
  const PreparedModel& prompts = *generations_.at(count).prefill;
  const PreparedModel& tokens = nlsplit::prepared_for(prepared_, count);
  const HostId source = scenario_.endpoints.source, sink = scenario_.endpoints.sink;
  if (!network_) network_ = make_network(scenario_.cluster, source, sink);
  if (!searched.scorer)
    searched.scorer = std::make_unique<PlanScorer>(tokens.kernels.graph, scenario_.cluster, *network_, source, sink,
                                                   searched.costs, exact_multiples(tokens.kernels));
  ASSIGN_OR_RETURN(Searched found, search(prompts));
  auto scorer = std::make_unique<PlanScorer>(prompts.kernels.graph, scenario_.cluster, *network_, source, sink,
                                             found.costs, exact_multiples(prompts.kernels));
  // Plans are of the network for tokens; both have the same nodes, or the search for prompts says nothing of it.
  const std::vector<Node>&nodes = graph_.nodes, &others = prompts.kernels.graph.nodes;
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
    if (same) scored = with_prompts(scored, scorer->score(scored.plan.stages));
  }
  if (same) prompt_scorers_[count] = std::move(scorer);
  std::ranges::stable_sort(plans, {}, [&](const ScoredPlan& scored) { return bound_of(scored); });
  return ok_status();
}

Result<LoweredPlan> Ranker::lower_prompts(const Plan& plan) const {
  const GenerationModels& models = generations_.at(plan.micro_batches);
  ASSIGN_OR_RETURN(const Plan same, plan_of_prompts(models, plan));
  if (shorter_prompts_) {
    if (const std::vector<ShorterPlan> plans = shorter_plans(same, shorter_prompts_->repeat()); !plans.empty())
      return lower_shorter(scenario_, plans, *shorter_prompts_, costs_);
  }
  return lower_plan(scenario_, *models.prefill, same, costs_);
}

// timed: of a token. Its estimate becomes what the cost is made of.
void Ranker::add_prompts(const Plan& plan, Timed& timed) const {
  auto lowered = lower_prompts(plan);
  if (!lowered) {
    timed.trouble = lowered.error();
    timed.estimate.reset();
    return;
  }
  if (const DeviceProgram* device = lowered->too_large; device != nullptr) {
    timed.too_large = Misfit{device->name, device->memory, device->arena, 1};
    timed.estimate.reset();
    return;
  }
  Estimate& all = *timed.estimate;
  const Estimate prompts = estimate_fast(scenario_, *lowered);
  timed.token_s = all.makespan_s;
  timed.prompt_s = prompts.makespan_s;
  const Executions executions = executions_of(scenario_);
  const double chunks = executions.prompts;
  const auto sum = [&](double of_tokens, double of_prompts) {
    return executions.tokens * of_tokens + (chunks > 0 ? of_prompts : 0);
  };
  const double busy = prompts.busiest_device_share * prompts.makespan_s;
  const double behind = (chunks - 1) * std::max(busy, prompts.busiest_link_share * prompts.makespan_s);
  const double busiest = sum(all.busiest_device_share * all.makespan_s, chunks * busy);
  all.latency_mean_s = sum(all.latency_mean_s, prompts.latency_mean_s + behind);
  all.makespan_s = sum(all.makespan_s, prompts.makespan_s + behind);
  all.busiest_device_share = all.makespan_s > 0 ? busiest / all.makespan_s : 0;
  all.largest_memory = std::max(all.largest_memory, prompts.largest_memory);
}

// Those quickest to the first token, and from one to the next, are judged whatever the objective.
void Ranker::choose_for_requirements() {
  if (!scenario_.generation || !scenario_.generation->require.any() || !prompts_matter()) return;
  for (double Candidate::*seconds : {&Candidate::prompt_s, &Candidate::token_s}) {
    std::vector<Candidate*> best;
    for (Candidate& candidate : candidates_) best.push_back(&candidate);
    std::ranges::stable_sort(best, {}, [&](const Candidate* candidate) { return candidate->*seconds; });
    for (size_t i = 0; i < std::min(best.size(), required_each); ++i) best[i]->must_judge = true;
  }
}

// Some at a time: sessions of a large model take tens of megabytes each.
Status Ranker::time_some_generations(size_t begin, size_t end) {
  const std::span<RankedPlan> plans(ranking_.judged.data() + begin, end - begin);
  std::vector<std::optional<Result<PlanSessions>>> compiled(plans.size());
  std::vector<GenerationTimes> all(plans.size());
  std::vector<Status> fits(plans.size(), ok_status());
  on_all_cores(
      plans.size(),
      [&](size_t i) {
        const GenerationModels& models = generations_.at(plans[i].plan.micro_batches);
        compiled[i] = sessions_of(scenario_, models, shorter_generations_.get(), plans[i].plan);
        fits[i] = compiled[i]->ok() ? ok_status() : Status(compiled[i]->error());
        if (!fits[i].ok()) return;
        std::vector<DeviceNeeds>& needed = needed_[begin + i];
        needed = needed_by(**compiled[i]);
        fits[i] = find_fullest(**compiled[i], needed, all[i]);
        if (fits[i].ok() && scenario_.generation->require.context)
          all[i].largest_context = largest_context(needed, scenario_, longer_, plans[i].plan);
      },
      workers());
  std::vector<TimedSession> sessions;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (!fits[i].ok()) {
      plans[i].why_not = fits[i].error().message;
      continue;
    }
    const bool alone = (*compiled[i])->sessions.size() == 1;
    for (const CompiledSession& one : (*compiled[i])->sessions) sessions.push_back({&one.session, alone});
  }
  ASSIGN_OR_RETURN(const std::vector<GenerationTimes> times,
                   time_generation(scenario_, sessions, *options_.tier, workers()));
  size_t next = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (!fits[i].ok()) continue;
    const std::vector<double>& weights = (*compiled[i])->weights;
    all[i].first_token_s = weighted_sum(weights, [&](size_t k) { return times[next + k].first_token_s; });
    all[i].next_token_s = weighted_sum(weights, [&](size_t k) { return times[next + k].next_token_s; });
    all[i].tokens_per_s = tokens_per_s(scenario_, all[i]);
    plans[i].misses = misses_of(scenario_, all[i]);
    plans[i].generation = all[i];
    next += weights.size();
  }
  return ok_status();
}

void Ranker::prepare_longer_contexts() {
  std::optional<Result<std::unique_ptr<LongerContext>>> made[std::size(long_contexts)];
  on_all_cores(
      std::size(made),
      [&](size_t i) {
        made[i] = with_context(scenario_, scenario_.generation->context * long_contexts[i], generations_,
                               shorter_generations_.get());
      },
      workers());
  if (!std::ranges::all_of(made, [](const auto& one) { return one->ok(); })) return;
  for (auto& one : made) longer_.push_back(*std::move(*one));
}

// Two more sessions for each plan are much of a ranking's work, so the plans that nobody is told of have none.
void Ranker::find_longest_contexts() {
  if (scenario_.generation->require.context) return;  // they are known
  const std::vector<size_t> plans = told(ranking_);
  std::set<size_t> wanted(plans.begin(), plans.end());
  for (size_t i = 0; i < ranking_.judged.size() && options_.baselines; ++i) {
    const RankedPlan& ranked = ranking_.judged[i];
    if (!ranked.own && std::ranges::find(rules_, ranked.plan, &RankedBaseline::plan) != rules_.end()) wanted.insert(i);
  }
  std::erase_if(wanted, [&](size_t i) { return !ranking_.judged[i].generation; });
  prepare_longer_contexts();
  const std::vector<size_t> all(wanted.begin(), wanted.end());
  on_all_cores(
      all.size(),
      [&](size_t i) {
        RankedPlan& ranked = ranking_.judged[all[i]];
        ranked.generation->largest_context = largest_context(needed_[all[i]], scenario_, longer_, ranked.plan);
      },
      workers());
}

// Of all that are judged. A plan whose prompts need more memory than its tokens do may fit no longer: it stays without
// times, behind the others.
Status Ranker::time_generations() {
  std::vector<RankedPlan>& plans = ranking_.judged;
  needed_.resize(plans.size());
  if (scenario_.generation->require.context) prepare_longer_contexts();
  for (size_t begin = 0; begin < plans.size();) {
    progress("timing prompts and tokens", begin, plans.size());
    const size_t end = std::min(plans.size(), begin + sessions_a_core * workers());
    RETURN_IF_ERROR(time_some_generations(begin, end));
    begin = end;
  }
  sort_judged_by(
      [&](size_t i) {
        const auto& times = plans[i].generation;
        return times ? cost_of(scenario_, *times) : never;
      },
      [&](size_t i) {
        const auto& times = plans[i].generation;
        if (!times) return 1.0;
        return times->fullest_memory /
               scenario_.cluster.device(scenario_.cluster.find_device(times->fullest_device)).memory;
      });
  // Those that miss something by how far; those that cannot run last.
  const auto miss = [&](size_t i) {
    double farthest = plans[i].generation ? 1 : never;
    for (const Miss& one : plans[i].misses) farthest = std::max(farthest, one.times);
    return farthest;
  };
  std::vector<size_t> order(plans.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, miss);
  arrange_judged(order);
  return ok_status();
}

}  // namespace nlsplit::inline ranking
