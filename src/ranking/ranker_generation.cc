// The plans of the table again, as sessions that take prompts and make tokens.
#include "base/cores.h"
#include "ranking/generation.h"
#include "ranking/ranker.h"

namespace nlsplit::inline ranking {

// A plan whose prompts need more memory than its tokens do may fit no longer: it stays without times.
Status Ranker::time_generations() {
  const std::vector<size_t> plans = shown(ranking_);
  progress("timing prompts and tokens", 0, plans.size());
  ASSIGN_OR_RETURN(const GenerationModels models, prepare_generation(scenario_, graph_, nullptr));
  std::vector<std::optional<Result<CompiledSession>>> compiled(plans.size());
  on_all_cores(
      plans.size(),
      [&](size_t i) { compiled[i] = generation_session(scenario_, models, ranking_.judged[plans[i]].plan); },
      workers());
  std::vector<const Session*> sessions;
  std::vector<size_t> of_plan;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (!compiled[i]->ok()) {
      ranking_.judged[plans[i]].why_not = compiled[i]->error().message;
      continue;
    }
    sessions.push_back(&(*compiled[i])->session);
    of_plan.push_back(plans[i]);
  }
  ASSIGN_OR_RETURN(const std::vector<GenerationTimes> times, time_generation(scenario_, sessions, *options_.tier));
  for (size_t i = 0; i < times.size(); ++i) ranking_.judged[of_plan[i]].generation = times[i];
  return ok_status();
}

}  // namespace nlsplit::inline ranking
