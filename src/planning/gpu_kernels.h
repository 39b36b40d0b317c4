// What a GPU has no kernel for (kernels/cuda/rows.cc): in an inference the host computes it by the reference loops, and
// a training is not run at all. A roofline costs it like everything else, which whoever reads a ranking should know.
#pragma once

#include <string>

#include "planning/load.h"

namespace nlsplit::inline planning {

// "note  2 of 66 computations have no GPU kernel here; the roofline assumes one …"; empty: no device of kind cuda is
// costed by a formula, or each computation has a kernel. Of the network, as one GPU computes it.
Result<std::string> gpu_kernels_note(const Loaded& loaded);
// Of a plan: what its GPUs compute.
std::string gpu_kernels_note(const Scenario& scenario, const Program& program);

}  // namespace nlsplit::inline planning
