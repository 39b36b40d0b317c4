// GraphBuilder: makes a Graph node by node, inferring types as it goes. Used by the zoo, the importer and tests.
//
//   GraphBuilder g("toy");
//   ValueId x = g.input("x", {DType::f32, {1, 3, 8, 8}});
//   ASSIGN_OR_RETURN(ValueId y, g.add(Op::Relu, "relu1", {x}, {}));
//   g.output(y);
//   Graph graph = std::move(g).finish();
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"
#include "graph/operators/operator.h"

namespace nlsplit::inline graph {

class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name);

  ValueId input(std::string name, TensorType type);
  ValueId weight(std::string name, TensorType type, ContentId content);
  ValueId state(std::string name, TensorType type);
  // The first output. It is called like the node unless `output_name` is given. Errors: op table's, naming the node;
  // duplicate names.
  Result<ValueId> add(Op op, std::string name, std::vector<ValueId> inputs, Attrs attrs, std::string output_name = {});
  // All outputs. Those without a name, or with an empty one, are called like the node, from the second one on with
  // ".1", ".2", … behind it.
  Result<std::vector<ValueId>> add_all(Op op, std::string name, std::vector<ValueId> inputs, Attrs attrs,
                                       const std::vector<std::string>& output_names = {});
  void output(ValueId value);

  const TensorType& type(ValueId value) const { return graph_.value(value).type; }
  const Graph& graph() const { return graph_; }
  Graph finish() &&;

 private:
  Graph graph_;
  std::unordered_set<std::string> value_names_, node_names_;
};

// The graph again, so that nodes can be added behind: every value keeps its id. Error: a node with an epilogue.
Result<GraphBuilder> reopen(const Graph& graph);

}  // namespace nlsplit::inline graph
