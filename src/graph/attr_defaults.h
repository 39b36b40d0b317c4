// Attributes that a text may leave out because they have their usual values: what ONNX means by leaving them out, and
// the extents of a convolution's window, which its weights have. A Graph always has them all.
#pragma once

#include "graph/ops.h"

namespace nlsplit {

// Those with a usual value, given the types of the node's inputs (of as many as there are: whoever reads a text asks
// before anything is checked).
Attrs default_attrs(Op op, Types inputs);

// Without those that have exactly their usual value; and with those that are missing. The second undoes the first.
Attrs without_defaults(Op op, const Attrs& attrs, Types inputs);
void add_defaults(Op op, Types inputs, Attrs& attrs);

}  // namespace nlsplit
