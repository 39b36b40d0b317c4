// Messages in half precision and in blocks as they are run: the bits of Casts at the cut, and results as near to the
// unsplit network's as the plan promises.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "exec/programs.h"
#include "graph/builder.h"
#include "graph/elements.h"
#include "graph/half.h"
#include "graph/passes/passes.h"
#include "graph/zoo/families.h"
#include "graph/zoo/zoo.h"
#include "kernels/cpu.h"
#include "program/text.h"
#include "program/verify.h"
#include "testing/compile_program.h"
#include "testing/random_graph.h"
#include "testing/star.h"

namespace nlsplit {
namespace {

using namespace testing;

Cluster cluster_of(size_t devices, DType messages) {
  Cluster cluster = star(devices);
  for (Device& device : cluster.devices) {
    device.level = best_isa().value();
    device.memory = bytes(int64_t{1} << 40);
  }
  cluster.messages = messages;
  return cluster;
}

// Stages that end at these nodes, each on a device of its own.
Plan plan_of(const Graph& graph, const std::vector<size_t>& cuts, int micro_batches) {
  Plan plan;
  plan.micro_batches = micro_batches;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    plan.stages.push_back({begin, cut, {DeviceId(plan.stages.size())}});
    begin = cut;
  }
  plan.stages.push_back({begin, graph.nodes.size(), {DeviceId(plan.stages.size())}});
  return plan;
}

Compiled compiled(const KernelGraph& kernels, const Plan& plan, DType messages) {
  Compiled made = compile(kernels, plan, cluster_of(4, messages), {HostId(0), HostId(0)}, nullptr).value();
  EXPECT_TRUE(verify(made.program).ok()) << verify(made.program).error().to_string();
  EXPECT_EQ(parse_program(to_string(made.program), "text").value(), made.program);
  return made;
}

KernelGraph kernels_of(const Graph& graph) { return choose_kernels(graph, {best_isa().value()}).value(); }

std::vector<float> run(const Program& program, const WeightStore& weights) {
  const auto result = run_threads(program, job_of(program, weights), test_options());
  EXPECT_TRUE(result.ok()) << result.error().to_string();
  return result.ok() ? result->outputs[0].tensor.values : std::vector<float>();
}

// As `nlbench run --check` does it: relative to the largest value.
double difference(const std::vector<float>& got, const std::vector<float>& want) {
  EXPECT_EQ(got.size(), want.size());
  double most = 0, largest = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    EXPECT_EQ(std::isfinite(got[i]), std::isfinite(want[i]));
    most = std::max(most, static_cast<double>(std::abs(got[i] - want[i])));
    largest = std::max(largest, static_cast<double>(std::abs(want[i])));
  }
  return largest > 0 ? most / largest : most;
}

// Each value that nodes from `cut` on read of those before them goes through two Casts.
Graph with_casts_at(const Graph& graph, size_t cut, DType type) {
  Graph made = graph;
  made.nodes.resize(cut);
  std::map<ValueId, ValueId> back;
  const auto cast = [&](ValueId from, DType to) {
    Node node;
    node.op = Op::Cast;
    node.name = fmt::format("cast{}", made.nodes.size());
    node.attrs = {{"to", std::string(name_of(to))}};
    node.inputs = {from};
    Value value;
    value.name = node.name;
    value.type = {to, made.value(from).type.shape};
    value.kind = ValueKind::node;
    value.producer = NodeId(made.nodes.size());
    node.outputs = {ValueId(made.values.size())};
    made.values.push_back(value);
    made.nodes.push_back(node);
    return node.outputs[0];
  };
  const auto is_before = [&](ValueId value) {
    return value.valid() && graph.value(value).kind == ValueKind::node && graph.value(value).producer.index() < cut;
  };
  for (size_t n = cut; n < graph.nodes.size(); ++n) {
    for (const ValueId value : reads_of(graph.nodes[n])) {
      if (is_before(value) && !back.contains(value)) back[value] = cast(cast(value, type), DType::f32);
    }
  }
  for (size_t n = cut; n < graph.nodes.size(); ++n) {
    Node node = graph.nodes[n];
    for (ValueId& value : node.inputs) value = is_before(value) ? back.at(value) : value;
    for (EpilogueStep& step : node.epilogue)
      step.operand = is_before(step.operand) ? back.at(step.operand) : step.operand;
    for (const ValueId output : node.outputs) made.values[output.index()].producer = NodeId(made.nodes.size());
    made.nodes.push_back(node);
  }
  return made;
}

TEST(HalfMessages, HaveTheBitsOfCastsAtTheCut) {
  Model model = build_simple_cnn(1);
  const Graph graph = with_batch(optimize(model.graph, model.weights).value(), 2).value();
  size_t other = 0;
  for (const DType type : {DType::f16, DType::bf16}) {
    const std::vector<float> plain =
        run(compiled(kernels_of(graph), plan_of(graph, {}, 2), type).program, model.weights);
    for (size_t cut = 1; cut < graph.nodes.size(); ++cut) {
      const Graph rounded = with_casts_at(graph, cut, type);
      const std::vector<float> want =
          run(compiled(kernels_of(rounded), plan_of(rounded, {}, 2), DType::f32).program, model.weights);
      const Compiled split = compiled(kernels_of(graph), plan_of(graph, {cut}, 2), type);
      EXPECT_EQ(run(split.program, model.weights), want) << "cut at " << cut;
      other += want == plain ? 0 : 1;
    }
  }
  EXPECT_GT(other, graph.nodes.size());  // so that it is no comparison of the network with itself
}

TEST(HalfMessages, RandomNetworksAreAsNearAsPromised) {
  size_t differ = 0, plans = 0;
  for (uint64_t seed = 0; seed < 40 && !HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Model model = random_graph(seed, 10);
    const Graph graph = with_batch(optimize(model.graph, model.weights).value(), 2).value();
    const KernelGraph kernels = kernels_of(graph);
    Random random(seed + 1);
    std::set<size_t> cuts;
    for (size_t i = 0; i <= random.below(3) && graph.nodes.size() > 1; ++i)
      cuts.insert(1 + random.below(graph.nodes.size() - 1));
    const Plan plan = plan_of(graph, {cuts.begin(), cuts.end()}, 2);
    const std::vector<float> want = run(compiled(kernels, plan_of(graph, {}, 2), DType::f16).program, model.weights);
    const Compiled usual = compiled(kernels, plan, DType::f32);
    EXPECT_EQ(usual.promise, Promise{});
    EXPECT_EQ(run(usual.program, model.weights), want);
    for (const DType type : {DType::f16, DType::bf16, DType::q8_0}) {
      const Compiled half = compiled(kernels, plan, type);
      const double found = difference(run(half.program, model.weights), want);
      EXPECT_LE(found, half.promise.tolerance) << name_of(type);
      differ += found > 0 ? 1 : 0;
      plans += half.promise.tolerance > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(plans, 60u);
  EXPECT_GT(differ, plans / 2);
}

// x -> same = x -> y = same: what comes out is what travelled.
TEST(BlockMessages, HaveTheBitsOfBlocks) {
  Model model;
  GraphBuilder builder("blocks");
  const auto same = [&](const std::string& name, ValueId of) {
    const ContentId content = model.weights.add_fill({DType::f32, {1}}, 1);
    return builder.add(Op::Mul, name, {of, builder.weight("w" + name, {DType::f32, {1}}, content)}, {}).value();
  };
  const ValueId x = builder.input("x", {DType::f32, {3, 5, 96}});
  builder.output(same("y", same("same", x)));
  model.graph = std::move(builder).finish();
  const KernelGraph kernels = kernels_of(model.graph);
  const std::vector<float> plain =
      run(compiled(kernels, plan_of(model.graph, {}, 2), DType::q8_0).program, model.weights);
  const Compiled split = compiled(kernels, plan_of(model.graph, {1}, 2), DType::q8_0);
  EXPECT_EQ(split.promise.why, "values travel between devices as q8_0");
  const std::vector<double> numbers(plain.begin(), plain.end());
  const std::vector<double> held = reals_of(DType::q8_0, raw_of(DType::q8_0, std::span<const double>(numbers)));
  const std::vector<float> got = run(split.program, model.weights);
  EXPECT_EQ(got, std::vector<float>(held.begin(), held.end()));
  EXPECT_NE(got, plain);
  EXPECT_LE(difference(got, plain), 1.0 / 250);
}

// x -> big = x * 1e6 -> small = big * 1e-6
TEST(HalfMessages, WhatIsBeyondFloat16IsInfinite) {
  Model model;
  GraphBuilder builder("overflow");
  const TensorType type{DType::f32, {2, 3}};
  const auto scaled = [&](const std::string& name, ValueId of, double by) {
    const ContentId content = model.weights.add_fill({DType::f32, {1}}, by);
    return builder.add(Op::Mul, name, {of, builder.weight("w" + name, {DType::f32, {1}}, content)}, {}).value();
  };
  const ValueId x = builder.input("x", type);
  const ValueId big = scaled("big", x, 1e6);
  builder.output(scaled("small", big, 1e-6));
  model.graph = std::move(builder).finish();
  const KernelGraph kernels = kernels_of(model.graph);
  const auto result = [&](DType messages) {
    return run(compiled(kernels, plan_of(model.graph, {1}, 1), messages).program, model.weights);
  };
  for (const float value : result(DType::f32)) EXPECT_TRUE(std::isfinite(value));
  for (const float value : result(DType::bf16)) EXPECT_TRUE(std::isfinite(value));
  for (const float value : result(DType::f16)) EXPECT_TRUE(std::isinf(value));
}

}  // namespace
}  // namespace nlsplit
