// Loops as bytes: equal where the loops are, to the bit, and only there.
#pragma once

#include <string>

#include "kernels/generated/loops.h"

namespace nlsplit::inline kernels {

std::string encode(const Loops& loops);

}  // namespace nlsplit::inline kernels
