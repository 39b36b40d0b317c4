// What training keeps in memory, before anything is lowered: for policies that mind memory.
#pragma once

#include "compile/kernel_graph.h"
#include "partition/plan.h"

namespace nlsplit::inline compiler {

// What training needs of a device's memory whatever the schedule (weights, their gradients, the optimizer's state), and
// what one micro-batch keeps there.
struct StageMemory {
  Bytes weights;             // trained or not, with gradients and state
  Bytes kept_until_input;    // of one micro-batch, from F until I
  Bytes kept_until_weights;  // and from then until W, output gradients too
};
// recompute: the stage keeps only what it was given.
StageMemory stage_memory(const KernelGraph& graph, const Stage& stage, bool recompute);

}  // namespace nlsplit::inline compiler
