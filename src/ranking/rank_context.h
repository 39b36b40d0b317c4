// What all phases of a ranking read and none changes: the scenario, its costs, and the network prepared for each
// micro-batch count.
//
//   ASSIGN_OR_RETURN(const RankContext context, rank_context(scenario, graph, options, own, wants_parts));
//   ASSIGN_OR_RETURN(const LoweredPlan lowered, lower(context, plan));
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ranking/evaluate.h"
#include "ranking/noise_runs.h"
#include "ranking/ranking.h"
#include "ranking/shorter.h"

namespace nlsplit::inline ranking {

struct RankContext {
  const Scenario& scenario;
  const Graph& graph;
  const RankOptions& options;
  CostTable costs;
  size_t workers = 1;                           // cores that share the work; results do not depend on them
  size_t finalists = 0;                         // how many of the best plans the judging tier simulates
  std::optional<NoiseBound> noise_bound = {};   // none: the scenario has no noise
  bool wants_parts = false;                     // LoweredPlan::parts of the judged plans: error bars are wanted
  std::vector<PreparedModel> prepared = {};     // one for each micro-batch count
  bool splits_layers = false;                   // search splits stages inside their layers
  std::string why_not_inside = {};              // Ranking's
  std::unique_ptr<ShorterModels> shorter = {};  // none: no repeated blocks, or others than times are wanted of plans
  // Of generation.
  std::map<int, GenerationModels> generations = {};  // by micro-batches
  std::unique_ptr<ShorterGenerations> shorter_generations = {};
  std::unique_ptr<ShorterModels> shorter_prompts = {};
};

// Borrows scenario, graph and options. own: the scenario's plans, whose micro-batch counts may be others.
Result<RankContext> rank_context(const Scenario& scenario, const Graph& graph, const RankOptions& options,
                                 const std::vector<RankedPlan>& own, bool wants_parts);

bool interrupted(const RankOptions& options);
void progress(const RankOptions& options, std::string_view phase, size_t done, size_t total);

// The host where results go: of training nothing goes to the sink.
HostId results_host(const Scenario& scenario);
// A lower bound of the objective, in seconds.
double bound_of(const Scenario& scenario, const ScoredPlan& scored);

bool wants_noise(const RankContext& context);
// Whether nothing is wanted of the plan's Program after verify() but a digest.
bool may_keep_digest(const RankContext& context, const Plan& plan);
// Of generation: whether prompts matter to the objective, or to what is required.
bool prompts_matter(const RankContext& context);

// On shorter networks where that is less work.
Result<LoweredPlan> lower(const RankContext& context, const Plan& plan);
// How many networks that lowers the plan on.
size_t networks_of(const RankContext& context, const Plan& plan);
// The same plan on the network for prompts.
Result<LoweredPlan> lower_prompts(const RankContext& context, const Plan& plan);

}  // namespace nlsplit::inline ranking
