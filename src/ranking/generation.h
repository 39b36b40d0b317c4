// How fast a plan generates text, by simulation of the session that would (ranking/session.h).
#pragma once

#include "program/saved.h"
#include "ranking/session.h"
#include "serving/simulate.h"
#include "sim/tier.h"

namespace nlsplit::inline ranking {

// What generation_session has made.
struct TimedSession {
  const Session* session = nullptr;
  // Chunks of a prompt follow each other through the stages, as they run. false: each waits for the end of the one
  // before, so that times of networks with fewer blocks may be added (ranking/shorter.h); an upper bound.
  bool chunks_overlap = true;
};
// [session]. The times grow in a straight line with the positions that attention sees, so those at the middle are the
// means. workers: cores that share the work. Errors: those of in_sequence and of the tier.
Result<std::vector<GenerationTimes>> time_generation(const Scenario& scenario,
                                                     const std::vector<TimedSession>& sessions, const Tier& tier,
                                                     size_t workers = 1);

// What each execution of a server's session takes, whose sequences stand anywhere in the context. A position that is
// copied takes in each cache what the kernel that writes new positions takes for one; devices copy at the same time.
// Errors: as above.
Result<ServerTimes> time_server(const Scenario& scenario, const Session& session, const Tier& tier);

// Tokens of all sequences in a second, from their prompts on.
double tokens_per_s(const Scenario& scenario, const GenerationTimes& times);

// What plans are ordered by: seconds of a token, to the first one, or of all the workload's tokens.
double cost_of(const Scenario& scenario, const GenerationTimes& times);

// What is required and not reached.
std::vector<Miss> misses_of(const Scenario& scenario, const GenerationTimes& times);

// Executions that the cost is made of: of `prefill` and of `decode`.
struct Executions {
  double prompts = 0, tokens = 0;
};
Executions executions_of(const Scenario& scenario);

SavedGeneration saved_generation(const Scenario& scenario, const GenerationTimes& times);

}  // namespace nlsplit::inline ranking
