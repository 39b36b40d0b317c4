// Tables that are functions of an element's position: masks and rotary factors of transformers. A WeightStore keeps
// their recipe (graph/weights.h), this computes their values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "graph/graph.h"

namespace nlsplit::inline graph {

enum class Formula : uint8_t {
  // [rows, columns]: 0 where column <= row and, given a factor, row - column < it; the parameter elsewhere.
  causal_mask,
  // [positions, …, d], the same for all axes between: cos and sin of p base^(-2 i / d) at position p and columns i and
  // i + d / 2, the parameter being the base (Su et al., "RoFormer: enhanced transformer with rotary position
  // embedding", 2021). The sine is negative in the first half of the columns: it meets x's halves exchanged.
  // With factors, d / 2 of them, the angles of columns i and i + d / 2 are divided by factor i.
  rotary_cos,
  rotary_sin,
};

std::string_view name_of(Formula formula);
// Row-major f32 bytes. `factors`: of rotary tables only.
std::string values_of(Formula formula, const Shape& shape, double parameter, std::span<const float> factors = {});

}  // namespace nlsplit::inline graph
