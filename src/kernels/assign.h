// Which kernel computes each node of a graph, in which layouts: the one place that decides it, for planning, lowering
// and profiling alike. It depends on the graph, the instruction level and what was measured of kernels only, so a node
// has the same kernel, and its results the same bits, however the graph is cut.
//
//   ASSIGN_OR_RETURN(Assignment chosen, assign_kernels(graph, Isa::v3));
//   to_string(chosen.descs[n].kernel);           // "conv_winograd_v3"
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "graph/graph.h"
#include "kernels/catalogue.h"

namespace nlsplit::inline kernels {

// A value that some of its readers want in another layout than it is made in: stored once more, before the first of
// them.
struct Reorder {
  ValueId value;      // never a view
  int block = 0;      // the layout it is wanted in
  size_t before = 0;  // node; as many as there are nodes: it is an output of the graph
};

struct Assignment {
  std::vector<ComputeDesc> descs;  // [node]; those of views have none
  std::vector<int> made_in;        // [value]: the block it is made in; of a view: 0
  std::vector<Reorder> reorders;   // by `before`
};

// The same computation in blocks of channels and its kernel, if the operator has such a thing and a kernel accepts it.
// wanted: taken where it accepts the computation in blocks. Unchosen: none is.
std::optional<ComputeDesc> in_blocks(const ComputeDesc& desc, Level level, const KernelPreference& prefer = {},
                                     KernelId wanted = {});

// Convolutions work on blocks of channels. All else is laid out so that the fewest bytes are reordered: a minimum cut.
// Outputs of the graph, and what views read, are row-major.
// trained: weights that change, states among them: no kernel may take them for constants. Where there are some, the
// graph is laid out row-major; a node that changes a state of the graph gets a kernel that works where it lies. Where
// any is no state of the graph, it is a training step: a node that no kernel computes is planned without one
// (kernels/without_kernel.h).
// wanted: [node], the kernel of this level that a node shall have; unchosen: any. It is taken, and with it a layout
// that it has, wherever it accepts the node, and before a preference is asked: so a part of a layer has the kernel, and
// the bits, of the whole. Where it does not, the node is as free as the others. Empty: all are. Error: a node that no
// kernel accepts, but in training; names the layer.
Result<Assignment> assign_kernels(const Graph& graph, Level level, const KernelPreference& prefer = {},
                                  std::span<const ValueId> trained = {}, std::span<const KernelId> wanted = {});

}  // namespace nlsplit::inline kernels
