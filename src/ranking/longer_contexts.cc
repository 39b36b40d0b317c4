#include "ranking/longer_contexts.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

#include "base/cores.h"
#include "graph/memory.h"

namespace nlsplit::inline ranking {
namespace {

constexpr int64_t long_contexts[] = {64, 128};  // times the workload's: what grows with it is then larger than the rest

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

std::vector<std::unique_ptr<LongerContext>> longer_contexts(const RankContext& context) {
  std::optional<Result<std::unique_ptr<LongerContext>>> made[std::size(long_contexts)];
  on_all_cores(
      std::size(made),
      [&](size_t i) {
        made[i] = with_context(context.scenario, context.scenario.generation->context * long_contexts[i],
                               context.generations, context.shorter_generations.get());
      },
      context.workers);
  std::vector<std::unique_ptr<LongerContext>> longer;
  if (!std::ranges::all_of(made, [](const auto& one) { return one->ok(); })) return longer;
  for (auto& one : made) longer.push_back(*std::move(*one));
  return longer;
}

void find_largest_contexts(const RankContext& context, const std::vector<std::unique_ptr<LongerContext>>& longer,
                           const std::vector<std::vector<DeviceNeeds>>& needs, const std::vector<size_t>& plans,
                           std::vector<RankedPlan>& judged) {
  const size_t contexts = longer.size();
  if (contexts == 0) return;
  std::vector<std::vector<PlanPart>> parts(plans.size() * contexts);  // by plan, then by context
  on_all_cores(
      parts.size(),
      [&](size_t i) {
        const LongerContext& one = *longer[i % contexts];
        const Plan& plan = judged[plans[i / contexts]].plan;
        auto made = parts_of(one.models.at(plan.micro_batches), one.shorter.get(), plan);
        if (made) parts[i] = *std::move(made);
      },
      context.workers);
  const auto longer_needs =
      of_all_parts<std::vector<DeviceNeeds>>(parts, context.workers, [&](size_t i, const PlanPart& part) {
        const auto session = generation_session(longer[i % contexts]->scenario, *part.models, part.plan, false);
        return session.ok() ? needs_of(session.value().session) : std::vector<DeviceNeeds>();
      });
  for (size_t p = 0; p < plans.size(); ++p) {
    std::vector<std::vector<DeviceNeeds>> there;
    for (size_t i = p * contexts; i < (p + 1) * contexts; ++i) {
      const bool known =
          !longer_needs[i].empty() && std::ranges::none_of(longer_needs[i], &std::vector<DeviceNeeds>::empty);
      if (known) there.push_back(whole_needs(parts[i], longer_needs[i]));
    }
    GenerationTimes& times = judged[plans[p]].generation.value();
    if (there.size() == contexts)
      times.largest_context = largest_context(needs[plans[p]], context.scenario, longer, there);
  }
}

void find_contexts_of_told(const RankContext& context, const std::vector<std::vector<DeviceNeeds>>& needs,
                           const std::vector<RankedBaseline>& baselines, Ranking& ranking) {
  if (context.scenario.generation->require.context) return;
  const std::vector<size_t> plans = told(ranking);
  std::set<size_t> wanted(plans.begin(), plans.end());
  for (size_t i = 0; i < ranking.judged.size() && context.options.baselines; ++i) {
    const RankedPlan& ranked = ranking.judged[i];
    if (!ranked.own && std::ranges::find(baselines, ranked.plan, &RankedBaseline::plan) != baselines.end())
      wanted.insert(i);
  }
  std::erase_if(wanted, [&](size_t i) { return !ranking.judged[i].generation; });
  find_largest_contexts(context, longer_contexts(context), needs, {wanted.begin(), wanted.end()}, ranking.judged);
}

}  // namespace nlsplit::inline ranking
