// Transposes on their way through an import: recurrent operators bring them along (ONNX's layout has the steps first),
// and networks turn them back. Seen together they cancel, which leaves axis 0 to the samples.
#pragma once

#include <vector>

#include "graph/builder.h"

namespace nlsplit::inline graph {

struct Transposed {
  ValueId of;
  std::vector<int64_t> perm;  // as Transpose's
};

std::vector<int64_t> order_of(size_t axes);  // 0, 1, 2, …
bool changes_nothing(const std::vector<int64_t>& perm);

// The same tensor as a transposition of what no Transpose has made.
Transposed seen_through(const GraphBuilder& graph, Transposed x);

// The permutation that is left when the marked axes of its result are dropped before it.
std::vector<int64_t> without_axes(const std::vector<int64_t>& perm, const std::vector<bool>& dropped);

}  // namespace nlsplit::inline graph
