// All reorders and conversions that messages between a plan's stages can need, for those who need the cost of each.
#pragma once

#include "compile/kernel_graph.h"
#include "scenario/scenario.h"

namespace nlsplit::inline planning {

// Between devices of unlike levels every value travels row-major, and messages may have a type of their own. Here each
// layer is a stage of its own on one device, so that all reorders and conversions happen that any cut can need.
Result<Program> messages_program(const Scenario& scenario, const KernelGraph& kernels, int micro_batches,
                                 const Device& like, bool row_major);

}  // namespace nlsplit::inline planning
