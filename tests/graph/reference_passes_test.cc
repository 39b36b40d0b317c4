// Transformations of graphs keep what they compute: the reference evaluator before and after.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/passes.h"
#include "graph/reference/evaluate.h"
#include "graph/zoo_families.h"
#include "testing/random_graph.h"
#include "testing/tensors.h"

namespace nlsplit {
namespace {

std::vector<Tensor> outputs_of(const Graph& graph, const WeightStore& weights, const std::vector<Tensor>& inputs) {
  auto outputs = evaluate(graph, weights, inputs);
  if (!outputs) ADD_FAILURE() << outputs.error().to_string();
  return outputs.ok() ? std::move(outputs).value() : std::vector<Tensor>{};
}

void expect_optimize_keeps(Model model, uint64_t seed, Tolerance tolerance) {
  const auto fused = optimize(model.graph, model.weights);
  ASSERT_TRUE(fused.ok()) << fused.error().to_string();
  EXPECT_LE(fused->nodes.size(), model.graph.nodes.size());
  const std::vector<Tensor> inputs = random_inputs(model.graph, seed);
  expect_close(outputs_of(*fused, model.weights, inputs), outputs_of(model.graph, model.weights, inputs), tolerance);
}

// Folded weights are rounded once more than the plain ones, so activations of magnitude 1 differ by a few 1e-7 a layer.
TEST(ReferencePasses, OptimizeKeepsSimpleCnn) { expect_optimize_keeps(build_simple_cnn(1), 1, {1e-5, 1e-5}); }
TEST(ReferencePasses, OptimizeKeepsResnet18) { expect_optimize_keeps(build_resnet(18, 1, 64), 1, {1e-5, 1e-5}); }
TEST(ReferencePasses, OptimizeKeepsResnet50) { expect_optimize_keeps(build_resnet(50, 1, 64), 1, {1e-5, 1e-5}); }
TEST(ReferencePasses, OptimizeKeepsMobilenetV2) { expect_optimize_keeps(build_mobilenet_v2(1, 64), 1, {1e-5, 1e-5}); }

TEST(ReferencePasses, OptimizeLeavesNoNormalisationInResnet) {
  Model model = build_resnet(18, 1, 64);
  const Graph fused = optimize(model.graph, model.weights).value();
  // 20 convolutions, each with what follows it; maxpool, avgpool, flatten, fc.
  EXPECT_EQ(fused.nodes.size(), 24u);
  EXPECT_TRUE(std::ranges::none_of(fused.nodes, [](const Node& node) { return node.op == Op::BatchNormalization; }));
}

TEST(ReferencePasses, OptimizeKeepsRandomGraphs) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    expect_optimize_keeps(random_graph(seed, static_cast<int>(1 + seed % 16)), seed, {1e-5, 1e-5});
  }
}

// with_batch: sample i of a batch gives, bit for bit, what it gives alone.
TEST(ReferencePasses, SamplesOfABatchDoNotMeet) {
  constexpr int64_t batch = 3;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const Model model = random_graph(seed, static_cast<int>(1 + seed % 12));
    const auto batched = with_batch(model.graph, batch);
    ASSERT_TRUE(batched.ok()) << batched.error().to_string();
    const Tensor all = random_tensor(batched->value(batched->inputs[0]).type, seed);
    const std::vector<Tensor> together = outputs_of(*batched, model.weights, {all});
    ASSERT_EQ(together.size(), 1u);
    for (int64_t i = 0; i < batch; ++i) {
      Tensor one{model.graph.value(model.graph.inputs[0]).type, {}};
      const int64_t size = element_count(one.type.shape);
      one.values.assign(all.values.begin() + i * size, all.values.begin() + (i + 1) * size);
      const std::vector<Tensor> alone = outputs_of(model.graph, model.weights, {one});
      ASSERT_EQ(alone.size(), 1u);
      Tensor slice{alone[0].type, {}};
      const int64_t out = element_count(slice.type.shape);
      ASSERT_EQ(static_cast<int64_t>(together[0].values.size()), batch * out);
      slice.values.assign(together[0].values.begin() + i * out, together[0].values.begin() + (i + 1) * out);
      expect_same_bits(slice, alone[0]);
    }
  }
}

}  // namespace
}  // namespace nlsplit
