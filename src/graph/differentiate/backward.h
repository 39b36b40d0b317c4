// Backward: what an operator's gradient rule writes its nodes with. The graph grows behind the forward nodes; a rule
// reads the node's inputs, its result and the gradient of its result, and gives the gradients of the inputs.
//
//   void mul(Backward& b) {                              // y = x0 x1, with broadcasting
//     if (b.wants(0)) b.give(0, b.sum_to(b.add(Op::Mul, {b.dy(), b.x(1)}), b.shape(b.x(0))));
//     …
//   }
//
// After the first failure every call does nothing, and `status` says why.
#pragma once

#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/weights.h"

namespace nlsplit::inline graph {

class Backward {
 public:
  Backward(GraphBuilder& graph, WeightStore& weights) : graph_(graph), weights_(weights) {}

  // The node whose gradients come next. `wanted`: bit i: that by input i.
  void begin(const Node& node, ValueId dy, uint64_t wanted);
  // [input]: what the rule gave; ValueId() where it gave nothing.
  const std::vector<ValueId>& given() const { return given_; }
  const Status& status() const { return status_; }

  // ---- of the node
  const Attrs& attrs() const { return node_->attrs; }
  size_t inputs() const { return node_->inputs.size(); }
  ValueId x(size_t input) const { return node_->inputs[input]; }
  ValueId y() const { return node_->outputs[0]; }
  ValueId dy() const { return dy_; }
  bool wants(size_t input) const { return input < given_.size() && (wanted_ >> input & 1) != 0; }
  // By value: the graph's own move when it grows.
  TensorType type(ValueId value) const { return graph_.type(value); }
  Shape shape(ValueId value) const { return graph_.type(value).shape; }

  // ---- what the rule makes
  ValueId add(Op op, std::vector<ValueId> inputs, Attrs attrs = {});  // a node of one result
  void give(size_t input, ValueId gradient);
  void fail(Error why);

  ValueId constant(Shape shape, double fill);  // of the type of dy
  ValueId scaled(ValueId value, double factor);
  ValueId reshaped(ValueId value, Shape shape);              // as it is, if it has that shape
  ValueId summed(ValueId value, std::vector<int64_t> axes);  // which are gone then
  // The sum over all places that an operand of this shape was broadcast to.
  ValueId sum_to(ValueId value, const Shape& shape);
  ValueId transposed(ValueId value);  // its last two axes; of such a Transpose what that has turned

 private:
  GraphBuilder& graph_;
  WeightStore& weights_;
  const Node* node_ = nullptr;
  ValueId dy_;
  uint64_t wanted_ = 0;
  std::vector<ValueId> given_;
  std::string prefix_;
  int made_ = 0;
  Status status_;
};

}  // namespace nlsplit::inline graph
