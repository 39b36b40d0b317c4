// For tests of splits inside layers: plans that split, and the proof that an expanded graph is sound and computes what
// the unsplit one does.
//
//   expect_expands(model, split_plan(model.graph, {SplitAxis::height, false, {2, 1}}), Bits::equal);
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/operators/operator.h"
#include "partition/expand.h"
#include "testing/tensors.h"

namespace nlsplit::testing {

// All of the graph on as many devices as there are shares.
inline Plan split_plan(const Graph& graph, Split split) {
  Plan plan;
  Stage& stage = plan.stages.emplace_back();
  stage.end = graph.nodes.size();
  for (size_t k = 0; k < split.shares.size(); ++k) stage.devices.push_back(DeviceId(k));
  stage.split = std::move(split);
  return plan;
}

enum class Bits { equal, close };  // close: where partial sums are added

// The first nodes cut inputs, and no others do so on devices that are sent no more of them. The stages cover the rest
// in order; each has work on one device a group; nothing is read before it is made (verify), and by a later stage only.
inline void expect_sound(const Expanded& expanded, const Graph& unsplit) {
  const auto verified = verify(expanded.graph);
  ASSERT_TRUE(verified.ok()) << verified.error().to_string() << "\n" << to_string(expanded.graph);
  ASSERT_EQ(expanded.origin.size(), expanded.graph.nodes.size());
  ASSERT_EQ(expanded.regions.size(), expanded.graph.nodes.size());
  EXPECT_FALSE(has_splits(expanded.plan));
  size_t next = expanded.input_parts;
  for (size_t n = 0; n < next; ++n) {
    const Node& node = expanded.graph.nodes[n];
    EXPECT_EQ(node.op, Op::Slice) << node.name;
    EXPECT_EQ(expanded.graph.value(node.inputs[0]).kind, ValueKind::input) << node.name;
    EXPECT_EQ(attr_ints(node.attrs, "axes").size(), 1u) << node.name;
    EXPECT_EQ(attr_ints(node.attrs, "steps"), std::vector<int64_t>{1}) << node.name;
    EXPECT_EQ(expanded.origin[n], -1) << node.name;
  }
  for (const Stage& stage : expanded.plan.stages) {
    ASSERT_EQ(stage.begin, next);
    ASSERT_LT(stage.begin, stage.end);
    ASSERT_FALSE(stage.devices.empty());
    bool works = false;
    for (size_t n = stage.begin; n < stage.end; ++n) works = works || !is_view(expanded.graph.nodes[n].op);
    EXPECT_TRUE(works) << "a stage of views";
    next = stage.end;
  }
  ASSERT_EQ(next, expanded.graph.nodes.size());
  for (size_t n = 0; n < expanded.graph.nodes.size(); ++n) {
    const int origin = expanded.origin[n];
    if (origin >= 0) {
      ASSERT_LT(static_cast<size_t>(origin), unsplit.nodes.size());
      if (const Region& made = expanded.regions[n]; made.axis >= 0) {  // of its origin's result
        Shape shape = unsplit.value(unsplit.nodes[static_cast<size_t>(origin)].outputs[0]).type.shape;
        ASSERT_LE(made.end, shape[static_cast<size_t>(made.axis)]) << expanded.graph.nodes[n].name;
        shape[static_cast<size_t>(made.axis)] = made.end - made.begin;
        EXPECT_EQ(expanded.graph.value(expanded.graph.nodes[n].outputs[0]).type.shape, shape)
            << expanded.graph.nodes[n].name;
      }
    } else {
      const Op op = expanded.graph.nodes[n].op;
      EXPECT_TRUE(op == Op::Slice || op == Op::Concat || op == Op::Sum) << expanded.graph.nodes[n].name;
    }
  }
  ASSERT_EQ(expanded.graph.inputs.size(), unsplit.inputs.size());
  ASSERT_EQ(expanded.graph.outputs.size(), unsplit.outputs.size());
  for (size_t i = 0; i < unsplit.outputs.size(); ++i) {
    EXPECT_EQ(expanded.graph.value(expanded.graph.outputs[i]).type, unsplit.value(unsplit.outputs[i]).type);
  }
}

inline void expect_computes(const Expanded& expanded, const Model& model, Bits bits, Tolerance tolerance = {}) {
  WeightStore weights = model.weights;
  add_slices(expanded.slices, weights);
  const std::vector<Tensor> inputs = random_inputs(model.graph, 7);
  const auto whole = evaluate(model.graph, weights, inputs), split = evaluate(expanded.graph, weights, inputs);
  ASSERT_TRUE(whole.ok()) << whole.error().to_string();
  ASSERT_TRUE(split.ok()) << split.error().to_string();
  if (bits == Bits::equal) {
    expect_same_bits(*split, *whole);
  } else {
    expect_close(*split, *whole, tolerance);
  }
}

inline void expect_expands(const Model& model, const Plan& plan, Bits bits, Tolerance tolerance = {}) {
  const auto expanded = expand_splits(model.graph, plan);
  ASSERT_TRUE(expanded.ok()) << expanded.error().to_string();
  expect_sound(*expanded, model.graph);
  if (::testing::Test::HasFatalFailure()) return;
  expect_computes(*expanded, model, bits, tolerance);
}

struct Window {
  int64_t kernel, stride, dilation, pad_begin, pad_end, group;
};

// Networks of a few nodes, by hand.
class SmallNet {
 public:
  explicit SmallNet(const std::string& name) : builder_(name) {}

  ValueId input(Shape shape) { return builder_.input(next("x"), {DType::f32, std::move(shape)}); }
  ValueId weight(Shape shape) {
    const TensorType type{DType::f32, std::move(shape)};
    const std::string name = next("w");
    return builder_.weight(name, type, weights_.add_random(type, count_, 0.3f));
  }
  // Near 1, so that it can be a variance.
  ValueId positive(Shape shape) {
    const TensorType type{DType::f32, std::move(shape)};
    const std::string name = next("w");
    return builder_.weight(name, type, weights_.add_random(type, count_, 0.05f, 1.0f));
  }
  ValueId node(Op op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    auto made = builder_.add(op, next(std::string(name_of(op))), std::move(inputs), std::move(attrs));
    CHECK(made.ok(), made.ok() ? "" : made.error().to_string());
    return *made;
  }
  ValueId conv(ValueId x, int64_t filters, const Window& w = {3, 1, 1, 1, 1, 1}) {
    const ValueId weights = weight({filters, shape(x)[1] / w.group, w.kernel, w.kernel});
    return node(Op::Conv, {x, weights, weight({filters})}, window_attrs(w));
  }
  ValueId relu(ValueId x) { return node(Op::Relu, {x}); }
  ValueId concat(std::vector<ValueId> parts, int64_t axis = 1) {
    return node(Op::Concat, std::move(parts), {{"axis", axis}});
  }
  ValueId project(ValueId x, int64_t columns) {
    return node(Op::MatMul, {x, weight({shape(x).back(), columns}), weight({columns})});
  }
  const Shape& shape(ValueId x) const { return builder_.type(x).shape; }

  static Attrs window_attrs(const Window& w) {
    return {{"dilations", std::vector<int64_t>{w.dilation, w.dilation}},
            {"group", w.group},
            {"kernel_shape", std::vector<int64_t>{w.kernel, w.kernel}},
            {"pads", std::vector<int64_t>{w.pad_begin, w.pad_begin, w.pad_end, w.pad_end}},
            {"strides", std::vector<int64_t>{w.stride, w.stride}}};
  }

  Model finish(const std::vector<ValueId>& outputs) {
    for (const ValueId output : outputs) builder_.output(output);
    return {std::move(builder_).finish(), std::move(weights_)};
  }

 private:
  std::string next(const std::string& kind) { return fmt::format("{}{}", kind, ++count_); }

  GraphBuilder builder_;
  WeightStore weights_;
  uint64_t count_ = 0;
};

inline const std::vector<std::vector<int64_t>>& shares_of_tests() {
  static const std::vector<std::vector<int64_t>> shares = {{1, 1}, {1, 1, 1}, {1, 1, 1, 1}, {3, 1}, {1, 2, 1}};
  return shares;
}

}  // namespace nlsplit::testing
