// How long a context each plan of a scenario that generates could keep: from its sessions with longer contexts.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "ranking/rank_context.h"
#include "ranking/session_needs.h"

namespace nlsplit::inline ranking {

// Both networks with another context, on devices with memory enough.
struct LongerContext {
  Scenario scenario;
  std::map<int, GenerationModels> models;  // by micro-batches
  std::unique_ptr<ShorterGenerations> shorter;
};

// Empty: the network has no longer contexts.
std::vector<std::unique_ptr<LongerContext>> longer_contexts(const RankContext& context);

// Sets GenerationTimes::largest_context of these plans, which have times. needs: of all of `judged`, with the
// scenario's context.
void find_largest_contexts(const RankContext& context, const std::vector<std::unique_ptr<LongerContext>>& longer,
                           const std::vector<std::vector<DeviceNeeds>>& needs, const std::vector<size_t>& plans,
                           std::vector<RankedPlan>& judged);

// The same of the plans of told(), and of the baselines if they are asked for: two more sessions for each plan are much
// of a ranking's work. Does nothing where `require` has a context: all have theirs then.
void find_contexts_of_told(const RankContext& context, const std::vector<std::vector<DeviceNeeds>>& needs,
                           const std::vector<RankedBaseline>& baselines, Ranking& ranking);

}  // namespace nlsplit::inline ranking
