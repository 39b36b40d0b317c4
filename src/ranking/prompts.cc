#include "ranking/prompts.h"

#include <algorithm>

#include "ranking/generation.h"

namespace nlsplit::inline ranking {

// Of the executions that the cost is made of. Chunks of a prompt follow each other through the stages.
ScoredPlan with_prompts(const Scenario& scenario, const ScoredPlan& tokens, const ScoredPlan& prompts) {
  const Executions executions = executions_of(scenario);
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

Estimate with_prompts(const Scenario& scenario, const Estimate& tokens, const Estimate& prompts) {
  const Executions executions = executions_of(scenario);
  const double chunks = executions.prompts;
  const auto sum = [&](double of_tokens, double of_prompts) {
    return executions.tokens * of_tokens + (chunks > 0 ? of_prompts : 0);
  };
  const double busy = prompts.busiest_device_share * prompts.makespan_s;
  const double behind = (chunks - 1) * std::max(busy, prompts.busiest_link_share * prompts.makespan_s);
  const double busiest = sum(tokens.busiest_device_share * tokens.makespan_s, chunks * busy);
  Estimate both = tokens;
  both.latency_mean_s = sum(tokens.latency_mean_s, prompts.latency_mean_s + behind);
  both.makespan_s = sum(tokens.makespan_s, prompts.makespan_s + behind);
  both.busiest_device_share = both.makespan_s > 0 ? busiest / both.makespan_s : 0;
  both.largest_memory = std::max(tokens.largest_memory, prompts.largest_memory);
  return both;
}

}  // namespace nlsplit::inline ranking
