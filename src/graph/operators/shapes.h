// Shapes and axes, as the operators have them.
#pragma once

#include <string>
#include <vector>

#include "graph/operators/operator.h"

namespace nlsplit::inline graph {

// -1 is the last axis. Error: outside.
Result<size_t> axis_of(int64_t axis, size_t rank);

// Extents come from files. Beyond this sums and products of them could overflow, and no tensor is as large.
inline constexpr int64_t largest_extent = int64_t{1} << 40;

// Where a Slice begins along each axis, in which steps, and how many elements it takes.
struct SlicedAxis {
  int64_t start = 0, step = 1, count = 0;
};
Result<std::vector<SlicedAxis>> sliced_axes(const Shape& shape, const Attrs& attrs);

// An Einsum's equation, taken apart. Labels are letters; an ellipsis stands for as many axes as are left, each with a
// label of its own below 0 (the last axis -1).
struct EinsumTerms {
  std::vector<std::vector<int>> inputs;  // [operand][axis]
  std::vector<int> output;
};
Result<EinsumTerms> einsum_terms(Types inputs, const std::string& equation);

inline constexpr int64_t most_samples = 1 << 15;  // of RoiAlign along one side of a bin

// What formulas of work count in.
inline double count(const TensorType& type) { return static_cast<double>(element_count(type.shape)); }
inline double taps_of(const TensorType& weights) {  // of one output channel's window
  return static_cast<double>(element_count(Shape(weights.shape.begin() + 1, weights.shape.end())));
}

}  // namespace nlsplit::inline graph
