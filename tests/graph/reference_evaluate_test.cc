// Whole graphs on the reference evaluator: order, fan-out, epilogues, weights, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/builder.h"
#include "graph/reference/evaluate.h"
#include "testing/random_graph.h"
#include "testing/tensors.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

TensorType floats(Shape shape) { return {DType::f32, std::move(shape)}; }

TEST(ReferenceEvaluate, UsesValuesManyTimesAndWeights) {
  GraphBuilder g("toy");
  WeightStore weights;
  const ValueId x = g.input("x", floats({3}));
  const ValueId two = g.weight("two", floats({3}), weights.add_fill(floats({3}), 2));
  const ValueId doubled = g.add(Op::Mul, "double", {x, two}, {}).value();
  const ValueId positive = g.add(Op::Relu, "relu", {doubled}, {}).value();
  g.output(g.add(Op::Add, "add", {positive, doubled}, {}).value());
  g.output(positive);
  const auto outputs = evaluate(std::move(g).finish(), weights, {tensor({3}, {-1, 0.5, 3})});
  ASSERT_TRUE(outputs.ok()) << outputs.error().to_string();
  expect_close(*outputs, {tensor({3}, {-2, 2, 12}), tensor({3}, {0, 1, 6})});
}

TEST(ReferenceEvaluate, AppliesEpilogues) {
  const auto graph = parse_graph(R"(graph "fused"
input %x f32[2]
input %skip f32[2]
%y f32[2] = Neg(%x) as "neg" + Add(%skip) as "add" + Relu as "relu"
output %y
)",
                                 "fused");
  ASSERT_TRUE(graph.ok()) << graph.error().to_string();
  const auto outputs = evaluate(*graph, WeightStore(), {tensor({2}, {1, 5}), tensor({2}, {3, 4})});
  ASSERT_TRUE(outputs.ok()) << outputs.error().to_string();
  expect_close(*outputs, {tensor({2}, {2, 0})});
}

TEST(ReferenceEvaluate, RefusesWhatDoesNotFit) {
  GraphBuilder g("toy");
  const ValueId x = g.input("x", floats({2}));
  const ValueId w = g.weight("w", floats({2}), ContentId{42});
  g.output(g.add(Op::Add, "add", {x, w}, {}).value());
  const Graph graph = std::move(g).finish();
  const WeightStore empty;
  EXPECT_THAT(evaluate(graph, empty, {}).error().message, HasSubstr("takes 1 inputs, not 0"));
  EXPECT_THAT(evaluate(graph, empty, {tensor({3}, {1, 2, 3})}).error().message,
              HasSubstr("input x is f32[2], not f32[3]"));
  EXPECT_THAT(evaluate(graph, empty, {tensor({2}, {1})}).error().message, HasSubstr("with 1 values"));
  EXPECT_FALSE(evaluate(graph, empty, {tensor({2}, {1, 2})}).ok());  // the weight is not in the store
}

TEST(RandomGraph, IsValidAndItsOutputsAreSane) {
  std::vector<bool> seen(static_cast<size_t>(op_count), false);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const Model model = random_graph(seed, static_cast<int>(1 + seed % 15));
    ASSERT_TRUE(verify(model.graph).ok()) << verify(model.graph).error().to_string();
    ASSERT_EQ(model.graph.inputs.size(), 1u);
    ASSERT_EQ(model.graph.outputs.size(), 1u);
    for (const Node& node : model.graph.nodes) seen[static_cast<size_t>(node.op)] = true;

    // Every node contributes: walking from the end, what is read is needed.
    std::vector<bool> needed(model.graph.values.size(), false);
    needed[model.graph.outputs[0].index()] = true;
    for (auto node = model.graph.nodes.rbegin(); node != model.graph.nodes.rend(); ++node) {
      EXPECT_TRUE(needed[node->outputs[0].index()]) << node->name;
      for (ValueId id : reads_of(*node)) needed[id.index()] = true;
    }

    const auto outputs = evaluate(model.graph, model.weights, random_inputs(model.graph, seed));
    ASSERT_TRUE(outputs.ok()) << outputs.error().to_string();
    for (float v : (*outputs)[0].values) ASSERT_LT(std::abs(v), 1000) << "also fails for NaN";
  }
  for (Op op : {Op::Conv,
                Op::Gemm,
                Op::MatMul,
                Op::Add,
                Op::Sub,
                Op::Sum,
                Op::Mul,
                Op::Concat,
                Op::MaxPool,
                Op::AveragePool,
                Op::GlobalAveragePool,
                Op::ReduceMean,
                Op::BatchNormalization,
                Op::LRN,
                Op::Softmax,
                Op::Pad,
                Op::Flatten,
                Op::Reshape,
                Op::Relu,
                Op::Clip,
                Op::HardSwish,
                Op::Sigmoid,
                Op::Tanh,
                Op::HardSigmoid,
                Op::LeakyRelu}) {
    EXPECT_TRUE(seen[static_cast<size_t>(op)]) << name_of(op);
  }
}

TEST(RandomGraph, IsMadeFromItsSeed) {
  EXPECT_EQ(to_string(random_graph(3, 9).graph), to_string(random_graph(3, 9).graph));
  EXPECT_NE(to_string(random_graph(3, 9).graph), to_string(random_graph(4, 9).graph));
}

}  // namespace
}  // namespace nlsplit
