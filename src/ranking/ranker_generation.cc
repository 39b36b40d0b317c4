// Plans that generate: prompts beside tokens in the search, and the best of them as sessions that take prompts and make
// tokens.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
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

// A plan on its network, or one of those on shorter networks that it is made of.
struct PlanPart {
  double weight = 1;
  const GenerationModels* models = nullptr;
  Plan plan;
};

Result<std::vector<PlanPart>> parts_of(const GenerationModels& models, ShorterGenerations* shorter, const Plan& plan) {
  const std::vector<ShorterPlan> plans =
      shorter == nullptr ? std::vector<ShorterPlan>() : shorter_plans(plan, shorter->repeat());
  if (plans.empty()) return std::vector<PlanPart>{{1, &models, plan}};
  std::vector<PlanPart> parts;
  for (const ShorterPlan& one : plans) {
    ASSIGN_OR_RETURN(const GenerationModels* fewer, shorter->without(one.fewer));
    parts.push_back({one.weight, fewer, one.plan});
  }
  return parts;
}

// What `work` makes of all parts of these plans, on all cores, the largest first: the last ones to end are small.
template <class Made>
std::vector<std::vector<Made>> of_all_parts(const std::vector<std::vector<PlanPart>>& plans, size_t workers,
                                            const std::function<Made(size_t plan, const PlanPart& part)>& work) {
  struct Job {
    size_t plan, part, layers;
  };
  std::vector<Job> jobs;
  for (size_t i = 0; i < plans.size(); ++i) {
    for (size_t k = 0; k < plans[i].size(); ++k) jobs.push_back({i, k, layers_lowered(plans[i][k].plan)});
  }
  std::ranges::stable_sort(jobs, std::greater(), &Job::layers);
  std::vector<std::optional<Made>> results(jobs.size());
  on_all_cores(
      jobs.size(), [&](size_t j) { results[j].emplace(work(jobs[j].plan, plans[jobs[j].plan][jobs[j].part])); },
      workers);
  std::vector<std::vector<std::optional<Made>>> by_part(plans.size());
  for (size_t i = 0; i < plans.size(); ++i) by_part[i].resize(plans[i].size());
  for (size_t j = 0; j < jobs.size(); ++j) by_part[jobs[j].plan][jobs[j].part] = std::move(results[j]);
  std::vector<std::vector<Made>> made(plans.size());
  for (size_t i = 0; i < plans.size(); ++i) {
    for (std::optional<Made>& one : by_part[i]) made[i].push_back(*std::move(one));
  }
  return made;
}

template <class Of>
double weighted_sum(const std::vector<PlanPart>& parts, const Of& of) {
  double sum = 0;
  for (size_t i = 0; i < parts.size(); ++i) sum += parts[i].weight * of(i);
  return sum;
}

// [device of the Programs]
std::vector<DeviceNeeds> needs_of(const Session& session) {
  std::vector<DeviceNeeds> needs;
  const std::vector<DeviceProgram>& devices = session.programs[0].devices;
  for (size_t d = 0; d < devices.size(); ++d) {
    DeviceNeeds& of = needs.emplace_back(DeviceNeeds{devices[d].kind, devices[d].memory, {}, {}});
    std::set<std::string_view> known;  // of the states: Programs share them
    for (const Program& program : session.programs) {
      of.arena = std::max(of.arena, program.devices[d].arena);
      for (const Buffer& buffer : program.devices[d].buffers) {
        if (buffer.kind == BufferKind::state && known.insert(buffer.name).second)
          of.caches = of.caches + bytes(buffer.stride());
      }
    }
  }
  return needs;
}

// Of a plan, from its parts'.
std::vector<DeviceNeeds> whole_needs(const std::vector<PlanPart>& parts,
                                     const std::vector<std::vector<DeviceNeeds>>& of_parts) {
  std::vector<DeviceNeeds> whole = of_parts[0];
  for (size_t d = 0; d < whole.size(); ++d) {
    for (Bytes DeviceNeeds::*what : {&DeviceNeeds::arena, &DeviceNeeds::caches}) {
      const auto of = [&](size_t i) { return static_cast<double>((of_parts[i][d].*what).value()); };
      whole[d].*what = bytes(std::llround(weighted_sum(parts, of)));
    }
  }
  return whole;
}

// Of the device that needs the most. Error: it is more than a device has.
Status find_fullest(const Session& session, const std::vector<DeviceNeeds>& needed, GenerationTimes& times) {
  const std::vector<DeviceProgram>& devices = session.programs[0].devices;
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
  made->scenario.generation->cache *= context / scenario.generation->context;  // more of the same requests
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
// contexts. there: what is needed with each of them.
int64_t largest_context(const std::vector<DeviceNeeds>& now, const Scenario& scenario,
                        const std::vector<std::unique_ptr<LongerContext>>& longer,
                        const std::vector<std::vector<DeviceNeeds>>& there) {
  std::vector<double> context = {static_cast<double>(scenario.generation->context)};
  for (const auto& one : longer) context.push_back(static_cast<double>(one->scenario.generation->context));
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

Result<Ranker::Searched> Ranker::with_prompts(Searched searched) const {
  const int count = searched.costs.micro_batches;
  const PreparedModel& prompts = *generations_.at(count).prefill;
  const PreparedModel& tokens = nlsplit::prepared_for(prepared_, count);
  const HostId source = scenario_.endpoints.source, sink = scenario_.endpoints.sink;
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
  if (same) searched.prompt_scorer = std::move(scorer);
  std::ranges::stable_sort(plans, {}, [&](const ScoredPlan& scored) { return bound_of(scored); });
  return searched;
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
  std::vector<std::vector<PlanPart>> parts(plans.size());
  std::vector<Status> fits(plans.size(), ok_status());
  on_all_cores(
      plans.size(),
      [&](size_t i) {
        const Plan& plan = plans[i].plan;
        auto made = parts_of(generations_.at(plan.micro_batches), shorter_generations_.get(), plan);
        if (made)
          parts[i] = *std::move(made);
        else
          fits[i] = Status(made.error());
      },
      workers());
  const auto compiled = of_all_parts<Result<CompiledSession>>(parts, workers(), [&](size_t, const PlanPart& part) {
    return generation_session(scenario_, *part.models, part.plan);
  });
  std::vector<GenerationTimes> all(plans.size());
  std::vector<TimedSession> sessions;
  for (size_t i = 0; i < plans.size(); ++i) {
    std::vector<std::vector<DeviceNeeds>> needs;
    for (const Result<CompiledSession>& one : compiled[i]) {
      if (one.ok())
        needs.push_back(needs_of(one.value().session));
      else if (fits[i].ok())
        fits[i] = Status(one.error());
    }
    if (fits[i].ok()) {
      needed_[begin + i] = whole_needs(parts[i], needs);
      fits[i] = find_fullest(compiled[i][0].value().session, needed_[begin + i], all[i]);
    }
    if (!fits[i].ok()) {
      plans[i].why_not = fits[i].error().message;
      continue;
    }
    const bool alone = compiled[i].size() == 1;
    for (const Result<CompiledSession>& one : compiled[i]) sessions.push_back({&one.value().session, alone});
  }
  ASSIGN_OR_RETURN(const std::vector<GenerationTimes> times,
                   time_generation(scenario_, sessions, *options_.tier, workers()));
  size_t next = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (!fits[i].ok()) continue;
    all[i].first_token_s = weighted_sum(parts[i], [&](size_t k) { return times[next + k].first_token_s; });
    all[i].next_token_s = weighted_sum(parts[i], [&](size_t k) { return times[next + k].next_token_s; });
    all[i].tokens_per_s = tokens_per_s(scenario_, all[i]);
    plans[i].generation = all[i];
    next += parts[i].size();
  }
  return ok_status();
}

// [plan]; as far as they have times.
void Ranker::find_contexts_of(const std::vector<size_t>& plans) {
  const size_t contexts = longer_.size();
  if (contexts == 0) return;
  std::vector<std::vector<PlanPart>> parts(plans.size() * contexts);  // by plan, then by context
  on_all_cores(
      parts.size(),
      [&](size_t i) {
        const LongerContext& one = *longer_[i % contexts];
        const Plan& plan = ranking_.judged[plans[i / contexts]].plan;
        auto made = parts_of(one.models.at(plan.micro_batches), one.shorter.get(), plan);
        if (made) parts[i] = *std::move(made);
      },
      workers());
  const auto needs = of_all_parts<std::vector<DeviceNeeds>>(parts, workers(), [&](size_t i, const PlanPart& part) {
    const auto session = generation_session(longer_[i % contexts]->scenario, *part.models, part.plan, false);
    return session.ok() ? needs_of(session.value().session) : std::vector<DeviceNeeds>();
  });
  for (size_t p = 0; p < plans.size(); ++p) {
    std::vector<std::vector<DeviceNeeds>> there;
    for (size_t i = p * contexts; i < (p + 1) * contexts; ++i) {
      const bool known = !needs[i].empty() && std::ranges::none_of(needs[i], &std::vector<DeviceNeeds>::empty);
      if (known) there.push_back(whole_needs(parts[i], needs[i]));
    }
    GenerationTimes& times = ranking_.judged[plans[p]].generation.value();
    if (there.size() == contexts) times.largest_context = largest_context(needed_[plans[p]], scenario_, longer_, there);
  }
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

// Two more sessions for each plan are much of a ranking's work, so only plans of told() get a longest context.
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
  find_contexts_of({wanted.begin(), wanted.end()});
}

// Those from `begin` on.
Status Ranker::time_judged(size_t begin) {
  const size_t all = ranking_.judged.size();
  needed_.resize(all);
  while (begin < all) {
    progress("timing prompts and tokens", begin, all);
    const size_t end = std::min(all, begin + sessions_a_core * workers());
    RETURN_IF_ERROR(time_some_generations(begin, end));
    begin = end;
  }
  return ok_status();
}

// Of all that are judged. A plan whose prompts need more memory than its tokens do may fit no longer: it stays without
// times, behind the others.
Status Ranker::time_generations() {
  if (scenario_.generation->require.context) prepare_longer_contexts();
  RETURN_IF_ERROR(time_judged(0));
  RETURN_IF_ERROR(judge_plans_with_prefill());
  std::vector<RankedPlan>& plans = ranking_.judged;
  if (scenario_.generation->require.context) {
    std::vector<size_t> timed;
    for (size_t i = 0; i < plans.size(); ++i) {
      if (plans[i].generation) timed.push_back(i);
    }
    find_contexts_of(timed);
  }
  for (RankedPlan& plan : plans) {
    if (plan.generation) plan.misses = misses_of(scenario_, *plan.generation);
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
