// Backward: the interface with which an operator's gradient rule adds its nodes, after the forward nodes. A rule reads
// the node's inputs, its results and their gradients, and gives the gradients of the inputs.
//
//   void mul(Backward& b) {                              // y = x0 x1, with broadcasting
//     if (b.wants(0)) b.give(0, b.sum_to(b.add(Op::Mul, {b.dy(), b.x(1)}), b.shape(b.x(0))));
//     …
//   }
//
// After the first failure every call does nothing, and `status` says why.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/operators/op.h"
#include "graph/weights.h"

namespace nlsplit::inline graph {

class Backward {
 public:
  Backward(GraphBuilder& graph, WeightStore& weights) : graph_(graph), weights_(weights) {}

  // The node whose gradients come next. dy: of each result; ValueId(): the loss does not depend on it. wanted: [input].
  void begin(const Node& node, std::vector<ValueId> dy, std::vector<bool> wanted);
  // [input]: what the rule gave; ValueId() where it gave nothing.
  const std::vector<ValueId>& given() const { return given_; }
  const Status& status() const { return status_; }

  // ---- of the node
  Op op() const { return node_->op; }
  const Attrs& attrs() const { return node_->attrs; }
  size_t inputs() const { return node_->inputs.size(); }
  ValueId x(size_t input) const { return node_->inputs[input]; }
  ValueId y(size_t output = 0) const { return node_->outputs[output]; }
  bool has_dy(size_t output) const { return dy_[output].valid(); }  // the loss depends on that result
  ValueId dy(size_t output = 0);  // zeros, where the loss does not depend on that result
  bool wants(size_t input) const { return input < wanted_.size() && wanted_[input]; }
  // By value: the graph's own move when it grows. Of what could not be made: none.
  TensorType type(ValueId value) const { return value.valid() ? graph_.type(value) : TensorType(); }
  Shape shape(ValueId value) const { return type(value).shape; }
  std::optional<double> number(ValueId value) const;  // of a constant of one element

  // ---- what the rule makes
  ValueId add(Op op, std::vector<ValueId> inputs, Attrs attrs = {});  // the first result
  std::vector<ValueId> add_all(Op op, std::vector<ValueId> inputs, Attrs attrs, size_t outputs);
  void give(size_t input, ValueId gradient);
  void fail(Error why);

  ValueId constant(Shape shape, double fill);  // of the floats that the gradient is of
  ValueId constant(TensorType type, const std::vector<double>& elements);
  ValueId integers(TensorType type, const std::vector<int64_t>& elements);
  // [queries, keys]: 0, and -inf where key j is behind query i: j > i + keys - queries.
  ValueId later_places(int64_t queries, int64_t keys);
  ValueId scaled(ValueId value, double factor);
  ValueId plus(ValueId value, double addend);
  ValueId square(ValueId value) { return add(Op::Mul, {value, value}); }
  ValueId as_floats(ValueId value);                          // as it is, if it is of the gradient's type
  ValueId reshaped(ValueId value, Shape shape);              // as it is, if it has that shape
  ValueId summed(ValueId value, std::vector<int64_t> axes);  // which are gone then
  // The sum over all places that an operand of this shape was broadcast to.
  ValueId sum_to(ValueId value, const Shape& shape);
  ValueId transposed(ValueId value);  // its last two axes; of such a Transpose what that has turned

 private:
  ValueId weight(TensorType type, ContentId content);

  GraphBuilder& graph_;
  WeightStore& weights_;
  const Node* node_ = nullptr;
  std::vector<ValueId> dy_, given_;
  std::vector<bool> wanted_;
  DType floats_{};
  std::string prefix_;
  int made_ = 0;
  Status status_;
};

}  // namespace nlsplit::inline graph
