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
// Sums of four products of bytes in one instruction, vpdpbusd: AVX512-VNNI beside level v4, AVX-VNNI beside v3. The
// level has the registers.
bool cpu_has_dot_product(Isa isa);
// Sums of two products of bfloat16 in one instruction, vdpbf16ps: AVX512-BF16 beside level v4.
bool cpu_has_bf16_pairs(Isa isa);

}  // namespace nlsplit::inline kernels
