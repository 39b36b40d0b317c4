// Prefill here, decode there: prompts are computed by one plan and tokens by another one, and what the network goes on
// with, keys and values, moves from where prompts leave it to where tokens read it (Patel et al., "Splitwise", ISCA
// 2024; Zhong et al., "DistServe", OSDI 2024).
//
//   ASSIGN_OR_RETURN(HandOver moved, hand_over_states({&prompts, prefill}, {&tokens, decode}));
//   compile(moved.graph, moved.plan, …)
//
// A chunk of a prompt writes some rows of each cache. So the network of prompts computes on: behind its own nodes
// stands a second one for each that changes a state which tokens have elsewhere. It has the same operands, is a stage
// of the device with the tokens' state, and changes that. The new rows are thus a message like any other between two
// stages, sent once they are made, and on both devices the state holds the same bits.
#pragma once

#include <span>

#include "compile/kernel_graph.h"
#include "partition/plan.h"

namespace nlsplit::inline compiler {

// Of the stages of prompts, or of tokens. Error: one has replicas, or is split inside its layers.
Status check_hand_over(std::span<const Stage> stages);

struct PlannedGraph {
  const KernelGraph* graph = nullptr;
  const Plan* plan = nullptr;
};

struct HandOver {
  KernelGraph graph;  // of prompts, with those nodes
  Plan plan;          // of prompts, with their stages
};

// Errors: check_hand_over's; states that only one of both has.
Result<HandOver> hand_over_states(const PlannedGraph& prompts, const PlannedGraph& tokens);

}  // namespace nlsplit::inline compiler
