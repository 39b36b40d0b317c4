// Loops without a compiler: the same bits, one operation after the other, each for some hundred points at once.
//
//   interpret(loops, inputs, output, 0, rows_of(loops));
#pragma once

#include "kernels/generated/loops.h"

namespace nlsplit::inline kernels {

int64_t rows_of(const Loops& loops);  // points of the first `rows` axes
// Those of them from begin to end. Different ones write to different places. The loops must be verified.
void interpret(const Loops& loops, const void* const* inputs, void* output, int64_t begin, int64_t end);

}  // namespace nlsplit::inline kernels
