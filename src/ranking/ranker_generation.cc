// The plans of the table again, as sessions that take prompts and make tokens.
#include <fmt/format.h>

#include <map>

#include "base/cores.h"
#include "ranking/generation.h"
#include "ranking/ranker.h"
#include "ranking/shorter.h"

namespace nlsplit::inline ranking {

namespace {

// A plan's session, or those of the shorter networks it is made of.
struct PlanSessions {
  std::vector<double> weights;
  std::vector<CompiledSession> sessions;
};

Result<PlanSessions> sessions_of(const Scenario& scenario, const GenerationModels& models, ShorterGenerations* shorter,
                                 const Plan& plan) {
  PlanSessions made;
  const std::vector<ShorterPlan> plans =
      shorter == nullptr ? std::vector<ShorterPlan>() : shorter_plans(plan, shorter->repeat());
  if (plans.empty()) {
    ASSIGN_OR_RETURN(CompiledSession session, generation_session(scenario, models, plan));
    made.weights = {1};
    made.sessions.push_back(std::move(session));
  }
  for (const ShorterPlan& one : plans) {
    ASSIGN_OR_RETURN(const GenerationModels* fewer, shorter->without(one.fewer));
    ASSIGN_OR_RETURN(CompiledSession session, generation_session(scenario, *fewer, one.plan));
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

// The device that needs the most. Error: it is more than a device has.
Status find_fullest(const PlanSessions& plan, GenerationTimes& times) {
  const std::vector<DeviceProgram>& devices = plan.sessions[0].session.programs[0].devices;
  for (size_t d = 0; d < devices.size(); ++d) {
    if (devices[d].kind == DeviceKind::host) continue;
    const Bytes needed = bytes(static_cast<int64_t>(weighted_sum(plan.weights, [&](size_t i) {
      int64_t most = 0;
      for (const Program& program : plan.sessions[i].session.programs)
        most = std::max(most, program.devices[d].arena.value());
      return static_cast<double>(most);
    })));
    if (needed > devices[d].memory)
      return invalid_input(fmt::format("device {} has {} of memory, and this needs {}", devices[d].name,
                                       to_string(devices[d].memory), to_string(needed)));
    if (needed <= times.fullest_memory) continue;
    times.fullest_device = devices[d].name;
    times.fullest_memory = needed;
  }
  return ok_status();
}

}  // namespace

// A plan whose prompts need more memory than its tokens do may fit no longer: it stays without times.
Status Ranker::time_generations() {
  const std::vector<size_t> plans = shown(ranking_);
  progress("timing prompts and tokens", 0, plans.size());
  std::map<int, GenerationModels> models;  // by micro-batches
  for (const size_t i : plans) {
    const int count = ranking_.judged[i].plan.micro_batches;
    if (models.contains(count)) continue;
    ASSIGN_OR_RETURN(models[count], prepare_generation(scenario_, graph_, count, nullptr));
  }
  std::unique_ptr<ShorterGenerations> shorter;
  if (shorter_ && models.contains(1))
    shorter = std::make_unique<ShorterGenerations>(scenario_, models.at(1), shorter_->repeat());
  if (shorter && !shorter->exist()) shorter.reset();
  std::vector<std::optional<Result<PlanSessions>>> compiled(plans.size());
  on_all_cores(
      plans.size(),
      [&](size_t i) {
        const Plan& plan = ranking_.judged[plans[i]].plan;
        compiled[i] = sessions_of(scenario_, models.at(plan.micro_batches), shorter.get(), plan);
      },
      workers());
  std::vector<TimedSession> sessions;
  for (size_t i = 0; i < plans.size(); ++i) {
    RankedPlan& ranked = ranking_.judged[plans[i]];
    GenerationTimes times;
    const Status fits = compiled[i]->ok() ? find_fullest(**compiled[i], times) : Status(compiled[i]->error());
    if (!fits.ok()) {
      ranked.why_not = fits.error().message;
      continue;
    }
    ranked.generation = times;
    const bool whole = (*compiled[i])->sessions.size() == 1;
    for (const CompiledSession& one : (*compiled[i])->sessions) sessions.push_back({&one.session, whole});
  }
  ASSIGN_OR_RETURN(const std::vector<GenerationTimes> times, time_generation(scenario_, sessions, *options_.tier));
  auto next = times.begin();
  for (size_t i = 0; i < plans.size(); ++i) {
    std::optional<GenerationTimes>& all = ranking_.judged[plans[i]].generation;
    if (!all) continue;
    const std::vector<double>& weights = (*compiled[i])->weights;
    const auto of = next;
    all->first_token_s =
        weighted_sum(weights, [&](size_t k) { return of[static_cast<std::ptrdiff_t>(k)].first_token_s; });
    all->next_token_s =
        weighted_sum(weights, [&](size_t k) { return of[static_cast<std::ptrdiff_t>(k)].next_token_s; });
    next += std::ssize(weights);
  }
  return ok_status();
}

}  // namespace nlsplit::inline ranking
