// One ONNX node, of whatever opset, as canonical nodes of a Graph (graph/operators/operators.def).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/onnx/constants.h"

namespace nlsplit::inline graph {

// What a node's input is: a constant, a value of the graph, or (neither) left out.
struct OnnxOperand {
  const Constant* constant = nullptr;
  ValueId value;
  std::string name;
  bool given() const { return constant != nullptr || value.valid(); }
};

struct ConvertContext {
  const OnnxNode& node;
  int64_t opset;
  std::string name;  // unique: the node's own, else its output's
  const std::vector<OnnxOperand>& inputs;
  GraphBuilder& graph;
  WeightStore& weights;
  std::function<ValueId(const OnnxOperand&)> weight;  // a constant as a weight of the graph, made once for each name
  std::function<Status(double)> spend;  // before elements are made at import. Error: more than a file may ask for

  // The input as a value of the graph. Error: left out.
  Result<ValueId> value(size_t i) const;
  const TensorType& type(size_t i) const;  // of a given input
  bool given(size_t i) const { return i < inputs.size() && inputs[i].given(); }
};

// The values that stand for the node's outputs; those of ONNX that we do not have are missing at the end. Errors name
// what is not supported; import adds the node's name.
Result<std::vector<ValueId>> convert_node(const ConvertContext& context);

}  // namespace nlsplit::inline graph
