// A network with weights of q8_0 and q4_0 as it is run: the reference evaluator's bits, wherever it is cut.
#include <gtest/gtest.h>

#include "exec/programs.h"
#include "graph/builder.h"
#include "graph/passes/passes.h"
#include "graph/reference/evaluate.h"
#include "kernels/cpu.h"
#include "program/verify.h"
#include "testing/compile_program.h"
#include "testing/scaled_weight.h"
#include "testing/star.h"
#include "testing/tensors.h"

namespace nlsplit {
namespace {

using namespace testing;

Model scaled_network() {
  GraphBuilder builder("scaled");
  WeightStore weights;
  const auto weight = [&](const std::string& name, const TensorType& type, uint64_t seed) {
    return scaled_weight(builder, weights, name, type, seed);
  };
  const ValueId x = builder.input("x", {DType::f32, {2, 64}});
  const ValueId h = builder.add(Op::MatMul, "h", {x, weight("w8", {DType::q8_0, {64, 96}}, 1)}, {}).value();
  const ValueId r = builder.add(Op::Relu, "r", {h}, {}).value();
  const Attrs turned = {{"alpha", 1.0}, {"beta", 1.0}, {"transA", int64_t{0}}, {"transB", int64_t{1}}};
  const ValueId y = builder.add(Op::Gemm, "y", {r, weight("w4", {DType::q4_0, {32, 96}}, 2)}, turned).value();
  const ValueId wide =
      builder.add(Op::Cast, "wide", {weight("b", {DType::q8_0, {1, 32}}, 3)}, {{"to", std::string("f32")}}).value();
  builder.output(builder.add(Op::Add, "z", {y, wide}, {}).value());
  return {std::move(builder).finish(), std::move(weights)};
}

int64_t bytes_of_weight(const Program& program, const std::string& name) {
  int64_t bytes = 0;
  for (const DeviceProgram& device : program.devices) {
    for (const Buffer& buffer : device.buffers) bytes += buffer.name == name ? buffer.bytes.value() : 0;
  }
  return bytes;
}

TEST(ScaledNetworks, EveryCutGivesTheReferencesBits) {
  const Model model = scaled_network();
  const Isa isa = best_isa().value();
  const KernelGraph kernels = choose_kernels(model.graph, {isa}).value();
  Cluster cluster = star(2);
  for (Device& device : cluster.devices) device.level = isa;
  for (size_t cut = 1; cut < model.graph.nodes.size(); ++cut) {
    SCOPED_TRACE(cut);
    Plan plan;
    plan.micro_batches = 2;
    plan.stages = {{0, cut, {DeviceId(0)}}, {cut, model.graph.nodes.size(), {DeviceId(1)}}};
    const auto program = compile_program(kernels, plan, cluster, {HostId(0), HostId(1)}, nullptr);
    ASSERT_TRUE(program.ok()) << program.error().to_string();
    ASSERT_TRUE(verify(*program).ok()) << verify(*program).error().to_string();
    EXPECT_EQ(value_of(parse_program(to_string(*program), "scaled")), *program);
    EXPECT_EQ(bytes_of_weight(*program, "w8"), 64 * 96 / 32 * 34);
    EXPECT_EQ(bytes_of_weight(*program, "w4"), 32 * 96 / 32 * 18);
    const Job job = job_of(*program, model.weights);
    const auto got = run_threads(*program, job, test_options());
    ASSERT_TRUE(got.ok()) << got.error().to_string();
    const Graph whole = with_batch(model.graph, 4).value();
    const auto want = evaluate(whole, model.weights, {{job.inputs[0].type, job.inputs[0].values}});
    ASSERT_TRUE(want.ok()) << want.error().to_string();
    EXPECT_EQ(got->outputs[0].tensor.values, (*want)[0].values);
  }
}

TEST(ScaledNetworks, AreNotTrained) {
  const Model model = scaled_network();
  const auto step = choose_kernels(model.graph, {best_isa().value()}, {}, TrainingOptions());
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.error().message.substr(0, step.error().message.find(';')),
            "weight w8 is q8_0[64,96]: training needs f32");
}

}  // namespace
}  // namespace nlsplit
