// Transformations of graphs keep what they compute: the reference evaluator before and after.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "graph/reference/evaluate.h"
#include "graph/zoo/families.h"
#include "testing/random_graph.h"
#include "testing/random_sequence.h"
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

// All passes, none, and each left out: what is computed stays.
void expect_each_can_be_left_out(const Model& model, uint64_t seed, Tolerance tolerance) {
  const std::vector<Tensor> inputs = random_inputs(model.graph, seed);
  const std::vector<Tensor> want = outputs_of(model.graph, model.weights, inputs);
  std::vector<std::string> lists{"none", "all"};
  for (const Pass& pass : all_passes()) lists.push_back("all,-" + std::string(pass.name));
  for (const std::string& list : lists) {
    SCOPED_TRACE(list);
    WeightStore weights = model.weights;
    const auto passed = run_passes(model.graph, weights, select_passes(list).value());
    ASSERT_TRUE(passed.ok()) << passed.error().to_string();
    expect_close(outputs_of(*passed, weights, inputs), want, tolerance);
  }
}

TEST(ReferencePasses, AnyOneCanBeLeftOut) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    expect_each_can_be_left_out(random_graph(seed, static_cast<int>(1 + seed % 16)), seed, {1e-5, 1e-5});
    expect_each_can_be_left_out(random_sequence(seed, static_cast<int>(1 + seed % 12)), seed, {1e-5, 1e-5});
  }
}

TEST(ReferencePasses, AnyOneCanBeLeftOutOfTheZoos) {
  expect_each_can_be_left_out(build_simple_cnn(1), 1, {1e-5, 1e-5});
  expect_each_can_be_left_out(build_resnet(18, 1, 32), 1, {1e-5, 1e-5});
  expect_each_can_be_left_out(build_mobilenet_v2(1, 32), 1, {1e-5, 1e-5});
}

// The order decides what is found, not what is computed.
TEST(ReferencePasses, AnyOrderWillDo) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    Model model = seed % 2 == 0 ? random_sequence(seed, 10) : random_graph(seed, 10);
    std::vector<Pass> passes(all_passes().begin(), all_passes().end());
    passes.insert(passes.end(), all_passes().begin(), all_passes().end());
    Random random(seed);
    for (size_t i = passes.size(); i > 1; --i) std::swap(passes[i - 1], passes[random.below(i)]);
    const auto passed = run_passes(model.graph, model.weights, passes);
    ASSERT_TRUE(passed.ok()) << passed.error().to_string();
    const std::vector<Tensor> inputs = random_inputs(model.graph, seed);
    expect_close(outputs_of(*passed, model.weights, inputs), outputs_of(model.graph, model.weights, inputs),
                 {1e-5, 1e-5});
  }
}

// Whatever a sequence's parts were written like, nothing of them is left.
TEST(ReferencePasses, OptimizeFindsEveryOperatorOfSequences) {
  size_t before = 0, after = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Model model = random_sequence(seed, 10);
    const Graph fused = optimize(model.graph, model.weights).value();
    before += model.graph.nodes.size();
    after += fused.nodes.size();
    const std::vector<bool> is_output = output_flags(fused);
    for (const Node& node : fused.nodes) {
      // Two transposes in front of an output are gone but for its name.
      if (node.op == Op::Identity && is_output[node.outputs[0].index()]) continue;
      for (const Op part : {Op::ReduceMean, Op::ReduceMax, Op::ReduceSum, Op::Sqrt, Op::Erf, Op::Exp, Op::Pow, Op::Cast,
                            Op::Identity, Op::Slice, Op::BatchNormalization})
        EXPECT_NE(node.op, part) << node.name;
    }
    EXPECT_EQ(to_string(optimize(fused, model.weights).value()), to_string(fused)) << "there is more to be found";
  }
  EXPECT_LT(after * 5, before * 2) << before << " nodes became " << after;
}

// A sample of a batch gives after the passes, bit for bit, what it gives alone.
TEST(ReferencePasses, OptimizedSequencesTakeAnyBatch) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Model model = random_sequence(seed, static_cast<int>(1 + seed % 12));
    const Graph fused = optimize(model.graph, model.weights).value();
    const auto batched = with_batch(fused, 2);
    ASSERT_TRUE(batched.ok()) << batched.error().to_string();
    const std::vector<Tensor> one = random_inputs(model.graph, seed), other = random_inputs(model.graph, seed + 1000);
    Tensor both{batched->value(batched->inputs[0]).type, one[0].values};
    both.values.insert(both.values.end(), other[0].values.begin(), other[0].values.end());
    std::vector<Tensor> together = outputs_of(*batched, model.weights, {both});
    const std::vector<Tensor> first = outputs_of(fused, model.weights, one),
                              second = outputs_of(fused, model.weights, other);
    ASSERT_EQ(together[0].values.size(), 2 * first[0].values.size());
    std::vector<float> apart = first[0].values;
    apart.insert(apart.end(), second[0].values.begin(), second[0].values.end());
    EXPECT_EQ(together[0].values, apart);
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
