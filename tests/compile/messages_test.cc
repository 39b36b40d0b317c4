// Messages in half precision and in blocks: what search counts is what Programs send.
#include "cost/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/index.h"
#include "compile/compile.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "partition/plan.h"
#include "partition/score.h"
#include "partition/split_load.h"
#include "program/verify.h"
#include "testing/layers.h"
#include "testing/star.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

constexpr std::array formats = {DType::f32, DType::f16, DType::bf16, DType::q8_0};

KernelGraph kernels_of_zoo(const std::string& name) {
  Model model = zoo_model(name).value();
  return choose_kernels(optimize(model.graph, model.weights).value(), {Isa::v3}).value();
}

double bytes_between(const Program& program, const std::string& from, const std::string& to) {
  double sum = 0;
  for (const DeviceProgram& device : program.devices) {
    if (device.name != from) continue;
    for (const Slot& slot : device.order) {
      for (const Instr& instr : device.segments[at(slot.segment)].instrs) {
        if (instr.opcode != Opcode::send || program.devices[at(instr.peer)].name != to) continue;
        TensorType type = device.buffer(instr.reads[0].buffer).type;
        type.block = 0;  // lanes past the last channel are no values
        sum += static_cast<double>(size_of(type).value());
      }
    }
  }
  return sum;
}

// Devices that compute in no time and one link without latency: a batch takes what its bytes take on the link.
TEST(Messages, AScoreCountsTheBytesThatTheProgramSends) {
  constexpr int micro_batches = 3;
  for (const std::string name : {"simple_cnn", "mlp", "mobilenet_v2", "gpt2"}) {
    const KernelGraph kernels = kernels_of_zoo(name);
    const size_t nodes = kernels.graph.nodes.size();
    for (const DType messages : formats) {
      Cluster cluster = star(2, bytes(int64_t{1} << 40));
      cluster.links = {{"ab", HostId(0), HostId(1), bytes_per_second(1), seconds(0), true}};
      cluster.messages = messages;
      SearchCosts costs;
      costs.micro_batches = micro_batches;
      costs.node_seconds.assign(2, std::vector<double>(nodes, 0));
      const Network routes = make_network(cluster, HostId(0), HostId(1));
      const Scorer scorer(cluster, routes, HostId(0), HostId(1), costs, find_crossings(kernels.graph, messages));
      for (size_t cut = 1; cut < nodes; cut += 1 + nodes / 10) {
        Plan plan;
        plan.stages = {{0, cut, {DeviceId(0)}}, {cut, nodes, {DeviceId(1)}}};
        plan.micro_batches = micro_batches;
        const auto compiled = compile(kernels, plan, cluster, {HostId(0), HostId(1)}, nullptr);
        if (!compiled.ok()) continue;  // a stage of views alone
        EXPECT_DOUBLE_EQ(scorer.bound(plan.stages), bytes_between(compiled->program, "A", "B"))
            << name << " cut at " << cut << ", messages " << name_of(messages);
      }
    }
  }
}

// A bound: no more than what shards send each other.
TEST(Messages, ASplitStageSendsNoLessThanItsLoadSays) {
  const KernelGraph kernels = kernels_of_zoo("simple_cnn");
  const Graph& graph = kernels.graph;
  for (const SplitAxis axis : {SplitAxis::channels, SplitAxis::tensor}) {
    std::array<double, formats.size()> said{}, sent{};
    for (size_t f = 0; f < formats.size(); ++f) {
      Cluster cluster = star(2, bytes(int64_t{1} << 40));
      cluster.messages = formats[f];
      SearchCosts costs;
      costs.node_seconds.assign(2, std::vector<double>(graph.nodes.size(), 1e-3));
      const Network routes = make_network(cluster, HostId(0), HostId(0));
      Plan plan;
      Stage stage{0, graph.nodes.size(), {DeviceId(0), DeviceId(1)}};
      stage.split = Split{axis, false, {1, 1}};
      plan.stages = {stage};
      SplitLoads loads(graph, cluster, routes, costs, exact_multiples(kernels));
      const auto of_plan = loads.of(plan.stages);
      ASSERT_TRUE(of_plan.has_value()) << name_of(axis);
      for (const double bytes : (*of_plan)[0][0].message_bytes) said[f] += bytes;
      const Compiled compiled = value_of(compile(kernels, plan, cluster, {HostId(0), HostId(0)}, nullptr));
      sent[f] = bytes_between(compiled.program, "A", "B") + bytes_between(compiled.program, "B", "A");
      EXPECT_LE(said[f], sent[f]) << name_of(axis) << ", messages " << name_of(formats[f]);
    }
    EXPECT_GT(said[0], 0) << name_of(axis);
    EXPECT_DOUBLE_EQ(2 * said[1], said[0]) << name_of(axis);
    EXPECT_LT(sent[1], sent[0]) << name_of(axis);
    EXPECT_EQ(sent[1], sent[2]) << name_of(axis);
    EXPECT_NEAR(said[3], said[0] * 34 / 128, 1e-9 * said[0]) << name_of(axis);
    EXPECT_LE(sent[3], sent[1]) << name_of(axis);
  }
}

// Replicas: stage 1 has a value from its own device for one micro-batch, from another one for the next. What was not
// sent is not converted.
TEST(Messages, WhatStaysOnItsDeviceIsNotConverted) {
  const KernelGraph kernels = kernels_of_zoo("simple_cnn");
  Cluster cluster = star(2, bytes(int64_t{1} << 40));
  cluster.messages = DType::f16;
  Plan plan;
  plan.micro_batches = 4;
  plan.stages = {{0, 3, {DeviceId(0)}}, {3, kernels.graph.nodes.size(), {DeviceId(0), DeviceId(1)}}};
  const Compiled compiled = value_of(compile(kernels, plan, cluster, {HostId(0), HostId(0)}, nullptr));
  size_t runs = 0, casts = 0, messages = 0;
  for (const Slot& slot : compiled.program.devices[0].order) {
    const Segment& segment = compiled.program.devices[0].segments[at(slot.segment)];
    runs += segment.stage == 0 ? 1 : 0;
    for (const Instr& instr : segment.instrs) {
      casts += instr.opcode == Opcode::compute && compiled.program.descs[at(instr.desc)].op == Op::Cast ? 1 : 0;
      messages += instr.opcode == Opcode::send ? 1 : 0;
    }
  }
  EXPECT_EQ(runs, 4u);
  EXPECT_GT(messages, 0u);
  EXPECT_EQ(casts, messages);
  EXPECT_LT(casts, runs);
  EXPECT_EQ(compiled.promise.tolerance, rounding_tolerance(DType::f16));
}

// f32[1,32,8,8] has rows of 8; f32[1,128] is four blocks.
TEST(Messages, WhatHasNoWholeBlocksTravelsAsF16) {
  const KernelGraph kernels = kernels_of_zoo("simple_cnn");
  Cluster cluster = star(3, bytes(int64_t{1} << 40));
  cluster.messages = DType::q8_0;
  Plan plan;
  plan.stages = parse_stages({"..relu2@A", "..relu3@B", "rest@C"}, kernels.graph, cluster, nullptr).value();
  const Compiled compiled = value_of(compile(kernels, plan, cluster, {HostId(0), HostId(2)}, nullptr));
  EXPECT_EQ(bytes_between(compiled.program, "A", "B"), 32 * 8 * 8 * 2);
  EXPECT_EQ(bytes_between(compiled.program, "B", "C"), 128 / 32 * 34);
  EXPECT_EQ(compiled.promise, (Promise{rounding_tolerance(DType::bf16), "values travel between devices as q8_0"}));
  const Value& relu2 = *std::ranges::find(kernels.graph.values, "relu2", &Value::name);
  EXPECT_EQ(least_message_bytes(relu2.type, DType::q8_0), 32 * 8 * 8 / 32 * 34);
  EXPECT_EQ(least_message_bytes({DType::i64, {3}}, DType::q8_0), 24);
  EXPECT_EQ(least_message_bytes({DType::f32, {3}}, DType::bf16), 6);
}

TEST(Messages, GpusConvertThemByTheirOwnKernel) {
  Model model = zoo_model("simple_cnn").value();
  const KernelGraph kernels =
      value_of(choose_kernels(optimize(model.graph, model.weights).value(), {Isa::cuda, Isa::v3}));
  Cluster cluster = star(2, bytes(int64_t{1} << 40));
  cluster.devices[0].kind = DeviceKind::cuda;
  cluster.devices[0].level = Isa::cuda;
  cluster.messages = DType::f16;
  Plan plan;
  plan.stages = {{0, 3, {DeviceId(0)}}, {3, kernels.graph.nodes.size(), {DeviceId(1)}}};
  const Compiled compiled = value_of(compile(kernels, plan, cluster, {HostId(0), HostId(0)}, nullptr));
  const Status sound = verify(compiled.program);
  EXPECT_TRUE(sound.ok()) << sound.error().to_string();
  std::vector<KernelId> casts;
  for (const ComputeDesc& desc : compiled.program.descs) {
    if (desc.op == Op::Cast) casts.push_back(desc.kernel);
  }
  EXPECT_THAT(casts, ::testing::UnorderedElementsAre(KernelId(KernelName::gpu_cast, Isa::cuda),
                                                     KernelId(KernelName::cast, Isa::v3)));
}

struct TrainingCase {
  KernelGraph kernels = value_of(choose_kernels(testing::layers(2, 2, 8), {Isa::v3}, {}, TrainingOptions{}));
  Cluster cluster = star(2);
  Plan plan;
  CompileOptions options;

  explicit TrainingCase(DType messages) {
    cluster.messages = messages;
    plan.micro_batches = 2;
    plan.schedule = "1f1b";
    const size_t nodes = kernels.graph.nodes.size();
    plan.stages = {{0, nodes / 2, {DeviceId(0)}}, {nodes / 2, nodes, {DeviceId(1)}}};
  }
  void replicate() { plan.stages = {{0, kernels.graph.nodes.size(), {DeviceId(0), DeviceId(1)}}}; }
  Result<Compiled> compiled() const {
    return compile(kernels, plan, cluster, {HostId(0), HostId(0)}, nullptr, options);
  }
};

TEST(Messages, TrainingTakesNoFormatOfAShorterRange) {
  for (const DType messages : {DType::f16, DType::q8_0}) {
    const auto compiled = TrainingCase(messages).compiled();
    ASSERT_FALSE(compiled.ok());
    EXPECT_THAT(compiled.error().message, HasSubstr("are for inference"));
  }
}

// A gradient of a layer's weights crosses between replicas with 2 B an element each way, whatever the padding.
TEST(Messages, ReplicasReduceInBfloat16) {
  TrainingCase plain(DType::f32), half(DType::bf16);
  plain.replicate();
  half.replicate();
  const Compiled in_f32 = value_of(plain.compiled()), in_bf16 = value_of(half.compiled());
  const auto sent = [](const Program& program, size_t d) {
    int64_t sum = 0;
    for (const Segment& segment : program.devices[d].segments) {
      for (const Instr& instr : segment.instrs) {
        if (instr.opcode == Opcode::send && instr.collective >= 0)
          sum += bytes_of(program.devices[d], instr.reads[0]).value();
      }
    }
    return sum;
  };
  for (const size_t d : {size_t{0}, size_t{1}}) {
    EXPECT_GT(sent(in_f32.program, d), 0);
    EXPECT_EQ(2 * sent(in_bf16.program, d), sent(in_f32.program, d));
  }
  EXPECT_EQ(in_f32.promise.tolerance, 0);
  EXPECT_GT(in_bf16.promise.tolerance, 0);
  EXPECT_EQ(in_bf16.promise.why, "gradients travel between replicas as bf16");
}

TEST(Messages, ReplicasThatReduceInBfloat16HaveNeitherExactNorNativeSums) {
  TrainingCase exact(DType::bf16), native(DType::bf16);
  exact.replicate();
  exact.options.exact = true;
  native.replicate();
  native.options.native = true;
  EXPECT_THAT(exact.compiled().error().message, HasSubstr("messages in bf16: sums of gradients are not exact"));
  EXPECT_THAT(native.compiled().error().message, HasSubstr("messages in bf16: the transport's own collectives"));
}

}  // namespace
}  // namespace nlsplit
