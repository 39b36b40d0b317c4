// Which levels the CPU that runs this program has.
//
//   if (cpu_supports(Isa::v4)) …
#pragma once

#include <vector>

#include "kernels/catalogue.h"

namespace nlsplit::inline kernels {

// Does this machine's CPU (and its operating system) have all instructions of the level? Another architecture's: no.
bool cpu_supports(Isa isa);
std::vector<Isa> supported_levels();  // the lowest first
// The highest of them. Error: there is none.
Result<Isa> best_isa();

}  // namespace nlsplit::inline kernels
