// Whole networks, and random ones under random plans. A failure prints its seed; that one alone:
//   test_partition --gtest_filter=ExpandNetworks.OneRandomCase --gtest_random_seed=SEED
// More of them: NLSPLIT_EXPAND_CASES=10000 test_partition --gtest_filter=ExpandNetworks.RandomGraphsUnderRandomPlans
#include <algorithm>
#include <array>
#include <cstdlib>

#include "expand_cases.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "testing/random_graph.h"
#include "testing/random_sequence.h"

namespace nlsplit {
namespace {

using testing::Bits;
using testing::expect_expands;
using testing::split_plan;

// Sums in another order, behind one another.
constexpr Tolerance deep{1e-4, 1e-4};

Model optimised(std::string_view name) {
  Model model = zoo_model(name).value();
  model.graph = optimize(model.graph, model.weights).value();
  return model;
}

void expect_axes(const Model& model, const std::vector<SplitAxis>& axes, const std::vector<int64_t>& shares) {
  for (const SplitAxis axis : axes) {
    SCOPED_TRACE(fmt::format("{} {} {}", model.graph.name, name_of(axis), fmt::join(shares, ":")));
    expect_expands(model, split_plan(model.graph, {axis, axis == SplitAxis::width, shares}),
                   axis == SplitAxis::tensor ? Bits::close : Bits::equal, deep);
  }
}

// Experts are dealt out, and what chooses them is whole on every shard.
TEST(ExpandNetworks, ExpertsArePlacedOverShards) {
  const Model model = optimised(
      "qwen3_moe?layers=2&hidden=32&heads=4&kv_heads=2&head=8&ffn=16&experts=7&experts_used=3&vocab=40&length=5");
  for (const std::vector<int64_t>& shares : {std::vector<int64_t>{1, 1}, {2, 5}, {1, 1, 1}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(shares, ":")));
    const Plan plan = split_plan(model.graph, {SplitAxis::tensor, false, shares});
    expect_expands(model, plan, Bits::close, deep);
    const Expanded expanded = expand_splits(model.graph, plan).value();
    std::vector<int64_t> first, count;
    for (const Node& node : expanded.graph.nodes) {
      if (node.name.find("layers.0.mlp") == node.name.npos) continue;
      const bool chooses = node.op == Op::MatMul || node.op == Op::TopK || node.op == Op::Softmax;
      if (chooses) {
        EXPECT_EQ(expanded.graph.value(node.outputs[0]).type.shape.back(), node.op == Op::MatMul ? 7 : 3);
      }
      if (node.op != Op::Experts) continue;
      EXPECT_EQ(attr_int(node.attrs, "all"), 7);
      first.push_back(attr_int(node.attrs, "first"));
      count.push_back(expanded.graph.value(node.inputs[3]).type.shape[0]);
      EXPECT_EQ(expanded.graph.value(node.inputs[5]).type.shape, (Shape{count.back(), 32, 16}));
    }
    ASSERT_EQ(first.size(), shares.size());
    EXPECT_EQ(first[0], 0);
    for (size_t k = 1; k < first.size(); ++k) EXPECT_EQ(first[k], first[k - 1] + count[k - 1]);
    EXPECT_EQ(first.back() + count.back(), 7);
  }
  // As many machines as one expert each, and one more.
  const auto sums = [&](size_t shards) {
    const Plan plan = split_plan(model.graph, {SplitAxis::tensor, false, std::vector<int64_t>(shards, 1)});
    const Expanded expanded = expand_splits(model.graph, plan).value();
    return std::ranges::count(expanded.graph.nodes, Op::Experts, &Node::op);
  };
  EXPECT_EQ(sums(7), 14);
  EXPECT_EQ(sums(8), 16) << "whole on each";
}

// Every axis of every network of the zoo, on the kernels: scripts/check_splits. Here the reference evaluator has time
// for some.
TEST(ExpandNetworks, ImageNetworks) {
  expect_axes(optimised("simple_cnn"), {SplitAxis::height, SplitAxis::width, SplitAxis::channels, SplitAxis::tensor},
              {1, 1, 1});
  expect_axes(optimised("resnet18?image=32"), {SplitAxis::height, SplitAxis::tensor}, {1, 1});
  expect_axes(optimised("mobilenet_v2?image=32"), {SplitAxis::width, SplitAxis::channels}, {2, 1});
  expect_axes(optimised("densenet121?image=32"), {SplitAxis::channels}, {1, 1});
  expect_axes(optimised("efficientnet_b0?image=32"), {SplitAxis::height}, {1, 1, 1});
}

TEST(ExpandNetworks, InceptionsBranches) {
  const Model model = zoo_model("inception_v3?image=75").value();
  expect_axes(model, {SplitAxis::height}, {1, 1});
}

TEST(ExpandNetworks, Transformers) {
  const std::vector<SplitAxis> axes = {SplitAxis::channels, SplitAxis::tensor, SplitAxis::sequence};
  expect_axes(optimised("bert_base?layers=2&hidden=24&heads=4&ffn=48&vocab=50&length=10"), axes, {1, 1});
  expect_axes(optimised("gpt2?layers=2&hidden=24&heads=4&vocab=50&length=9"), axes, {1, 2, 1});
  expect_axes(optimised("vit_b16?layers=2&hidden=24&heads=4&ffn=48&image=32&patch=8"), axes, {1, 1});
  expect_axes(optimised("llama?layers=2&hidden=32&heads=4&kv_heads=2&ffn=48&vocab=50&length=8"), axes, {1, 1});
}

// Every stage on devices of its own, or not split; batch where there is one.
struct ExpandCase {
  Model model;
  Plan plan;
  bool sums = false;
};

ExpandCase random_expand_case(uint64_t seed) {
  Random random(seed);
  const int size = static_cast<int>(2 + random.below(12));
  ExpandCase made{random.below(3) == 0 ? random_sequence(seed, size) : random_graph(seed, size), {}};
  if (random.below(2) == 0) made.model.graph = optimize(made.model.graph, made.model.weights).value();
  made.model.graph = with_batch(made.model.graph, static_cast<int64_t>(1 + random.below(4))).value();
  const size_t nodes = made.model.graph.nodes.size();
  size_t devices = 0;
  for (size_t begin = 0; begin < nodes;) {
    Stage& stage = made.plan.stages.emplace_back();
    stage.begin = begin;
    stage.end = made.plan.stages.size() == 4 ? nodes : begin + 1 + random.below(nodes - begin);
    const size_t shards = 1 + random.below(4);
    for (size_t k = 0; k < shards; ++k) stage.devices.push_back(DeviceId(devices++));
    if (shards > 1) {
      Split& split = stage.split.emplace();
      split.axis = static_cast<SplitAxis>(random.below(split_axis_count));
      split.recompute_halo = random.below(2) == 0;
      for (size_t k = 0; k < shards; ++k) split.shares.push_back(static_cast<int64_t>(1 + random.below(3)));
    }
    begin = stage.end;
  }
  return made;
}

// Splits that a stage refuses are left out of the plan; returns how many stages stay split.
size_t drop_refused(ExpandCase& made) {
  size_t kept = 0;
  for (size_t s = 0; s < made.plan.stages.size(); ++s) {
    Stage& stage = made.plan.stages[s];
    if (!stage.split) continue;
    Plan alone;  // only this stage is split
    alone.stages = made.plan.stages;
    for (size_t other = 0; other < alone.stages.size(); ++other) {
      if (other != s) alone.stages[other].split.reset();
    }
    if (expand_splits(made.model.graph, alone).ok()) {
      ++kept;
      made.sums = made.sums || stage.split->axis == SplitAxis::tensor;
    } else {
      stage.split.reset();
    }
  }
  return kept;
}

void check_random(uint64_t seed, size_t& split_stages) {
  ExpandCase made = random_expand_case(seed);
  split_stages += drop_refused(made);
  expect_expands(made.model, made.plan, made.sums ? Bits::close : Bits::equal, deep);
}

TEST(ExpandNetworks, RandomGraphsUnderRandomPlans) {
  const char* wanted = std::getenv("NLSPLIT_EXPAND_CASES");
  const uint64_t cases = wanted == nullptr ? 300 : std::strtoull(wanted, nullptr, 10);
  size_t split_stages = 0;
  for (uint64_t seed = 1; seed <= cases && !HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("--gtest_filter=ExpandNetworks.OneRandomCase --gtest_random_seed={}", seed));
    check_random(seed, split_stages);
  }
  EXPECT_GE(split_stages, cases / 2) << "the plans hardly split anything";
}

TEST(ExpandNetworks, OneRandomCase) {
  size_t split_stages = 0;
  check_random(static_cast<uint64_t>(std::max(1, GTEST_FLAG_GET(random_seed))), split_stages);
}

}  // namespace
}  // namespace nlsplit
