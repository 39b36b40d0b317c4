// A graph with a kernel for every node: what compile() takes. One graph serves all plans of a ranking.
//
//   ASSIGN_OR_RETURN(KernelGraph graph, choose_kernels(std::move(at_micro_batch), {Isa::v3}));
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "graph/differentiate/step_graph.h"
#include "kernels/assign.h"
#include "program/program.h"

namespace nlsplit::inline compiler {

// What the catalogue says of a node's chosen kernel.
struct NodeKernel {
  size_t same_as = 0;         // the first node with the same desc: one entry of Program::descs
  std::vector<Bytes> packed;  // by input of the desc; 0: taken as it is
  Bytes workspace;            // on one core
  uint64_t in_place = 0;      // reads that the result may overwrite (in_place_inputs)
};

struct Training;

// Of a weight that a step changes, or of an optimizer's tensor: a part of that of the unsplit network
// (Buffer::part).
using StateParts = std::map<std::string, StatePart, std::less<>>;  // by what the part is called

// A graph at its micro-batch size with a kernel chosen for every node, at every level the cluster has. Made by
// choose_kernels.
struct KernelGraph {
  Graph graph;  // optimized, axis 0 is the micro-batch
  std::map<Level, Assignment> chosen;
  // Found once, because a ranking lowers one graph a thousand times:
  std::map<Level, std::vector<NodeKernel>> kernels;  // [node]
  std::vector<ValueId> root;                         // [value]: what it is a view of, in the end; else itself
  std::vector<bool> computed;                // [node]: not a view; of a training step also: something depends on it
  std::vector<std::vector<size_t>> readers;  // [root value]: the nodes that compute with it or its views, ascending
  std::unordered_set<std::string> names;     // of values
  std::vector<std::string> labels;           // [node]: "conv1, relu1"
  // Nodes [0, input_parts) are in no stage: Slices of inputs by one axis, made where the inputs are, so that a device
  // is sent the part it needs. Set by who has made them (Expanded::input_parts).
  size_t input_parts = 0;
  bool is_input_part(ValueId value) const {
    return graph.value(value).kind == ValueKind::node && graph.value(value).producer.index() < input_parts;
  }
  std::vector<ValueId> states;               // weights that a Program changes, this one's or another one's of a session
  std::vector<StateUpdate> updates;          // of the graph's own states
  StateParts state_parts;                    // of a graph that expand_plan made, those that are no whole tensors
  std::shared_ptr<const Training> training;  // none: inference
};
// The graph of a training step with a kernel for every node that has one; row-major. Its nodes begin with those of the
// network, which plans cut.
struct Training {
  TrainingOptions options;
  StepNodes nodes;
  KernelGraph step;  // readers: of nodes that are computed
};
int64_t samples_of(const Graph& at_micro_batch);  // of a micro-batch

// [node], at each level that there is one for: the kernel that a node shall have where that accepts it; unchosen: any.
using WantedKernels = std::map<Level, std::vector<KernelId>>;
// Those of the nodes that the parts are of. origin: [part], a node of `whole`, or -1: of none.
WantedKernels wanted_kernels(const KernelGraph& whole, std::span<const int> origin);

// Of the same network for another length: kernels that have weights in a form of their own; the other nodes are free.
WantedKernels wanted_weight_forms(const KernelGraph& like);

// training: lower a training step instead of inference. Errors then also: what step_graph says. states: besides the
// graph's own, weights that another Program of a session trains: no kernel may take them for constants. wanted: of the
// graph's nodes, also in training. input_parts: KernelGraph::input_parts.
Result<KernelGraph> choose_kernels(Graph at_micro_batch, const std::vector<Level>& levels,
                                   const KernelPreference& prefer = {},
                                   const std::optional<TrainingOptions>& training = std::nullopt,
                                   const WantedKernels& wanted = {}, std::vector<ValueId> states = {},
                                   size_t input_parts = 0);

}  // namespace nlsplit::inline compiler
