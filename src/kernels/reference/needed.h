// Which computations no kernel of a family takes.
#pragma once

#include "kernels/catalogue.h"

namespace nlsplit::inline kernels {

// Whatever the values: they are left to generated code, and what that cannot do to the reference loops.
bool only_by_reference(const ComputeDesc& desc);

}  // namespace nlsplit::inline kernels
