// Numbers to blocks of elements that share scales: what graph/ggml.h reads.
#pragma once

#include <span>
#include <string>

#include "graph/graph.h"

namespace nlsplit::inline graph {

// is_scaled(type); whole blocks of finite numbers, of q8_0 of any (graph/q8_0.h). Each scale is the one with which the
// number of the largest magnitude is the last step (q8_0, q4_0, q5_0, q6_k), or with which the least and the largest
// number are the first and the last step (q4_1, q4_k); every number is then the nearest step.
std::string blocks_of(DType type, std::span<const double> values);

}  // namespace nlsplit::inline graph
