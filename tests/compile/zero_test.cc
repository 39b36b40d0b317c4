// ZeRO: what replicas keep of their optimizer's tensors, gradients and weights, and what they send each other for that.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "compile/training_steps.h"
#include "graph/builder.h"
#include "graph/memory.h"
#include "graph/optimizer.h"
#include "program/text.h"
#include "program/verify.h"
#include "testing/star.h"
#include "testing/training.h"

namespace nlsplit {
namespace {

using testing::all_forward_first;
using testing::copies;
using ::testing::HasSubstr;
using testing::one_f_one_b;

// ZeRO, stage 1: of n replicas each keeps the optimizer's tensors of its share of the weights, and all of them all
// weights.
TEST(LowerZero, ReplicasKeepTheOptimizersTensorsOfTheirShares) {
  constexpr int64_t matrix = layer_width * layer_width * 4;
  constexpr size_t layer_count = 6;
  const KernelGraph kernels = kernels_of(layers(layer_count), {.optimizer = Optimizer::adam});
  for (const size_t replicas : {size_t{2}, size_t{3}}) {
    Plan plan;
    plan.stages.push_back({0, kernels.graph.nodes.size(), {}});
    for (size_t r = 0; r < replicas; ++r) plan.stages[0].devices.push_back(DeviceId(r));
    plan.micro_batches = static_cast<int>(replicas);
    const SlotTable table = copies(static_cast<int>(replicas), plan.micro_batches);
    const Cluster cluster = star(replicas, device_memory);
    for (const int buckets : {1, 2}) {
      const auto made = compile_program(kernels, plan, cluster, {HostId(0), HostId(0)}, nullptr, &table,
                                        CollectiveAlgorithm::ring, buckets, 1);
      ASSERT_TRUE(made.ok()) << made.error().message;
      ASSERT_TRUE(verify(*made).ok()) << verify(*made).error().message << to_string(*made);
      const auto share = static_cast<int64_t>(layer_count / replicas);  // of each bucket, and so of all
      for (const DeviceProgram& device : made->devices) {
        EXPECT_EQ(bytes_of_kind(device, BufferKind::state), (layer_count + 2 * share) * matrix + count_bytes)
            << replicas << " replicas, " << buckets << " buckets";
      }
    }
  }
}

// ZeRO, stage 2: the sums of gradients too. Beside its share a replica has the places of two buckets, each of one layer
// here, and what arrives of them.
TEST(LowerZero, ReplicasKeepSharesOfTheirGradients) {
  constexpr int64_t matrix = layer_width * layer_width * 4;
  constexpr size_t layer_count = 6;
  const KernelGraph kernels = kernels_of(layers(layer_count), {.optimizer = Optimizer::adam});
  for (const size_t replicas : {size_t{2}, size_t{3}}) {
    Plan plan;
    plan.stages.push_back({0, kernels.graph.nodes.size(), {}});
    for (size_t r = 0; r < replicas; ++r) plan.stages[0].devices.push_back(DeviceId(r));
    constexpr int each = 3;
    plan.micro_batches = static_cast<int>(replicas) * each;
    const SlotTable table = copies(static_cast<int>(replicas), plan.micro_batches);
    const auto made = compile_program(kernels, plan, star(replicas, device_memory), {HostId(0), HostId(0)}, nullptr,
                                      &table, CollectiveAlgorithm::ring, {}, 2);
    ASSERT_TRUE(made.ok()) << made.error().message;
    ASSERT_TRUE(verify(*made).ok()) << verify(*made).error().message << to_string(*made);
    const auto again = parse_program(to_string(*made), "again.nlp");
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(*again, *made);
    const auto share = static_cast<int64_t>(layer_count / replicas);
    int64_t reduced = 0, gathered = 0;  // bytes sent
    for (const DeviceProgram& device : made->devices) {
      EXPECT_EQ(bytes_of_kind(device, BufferKind::state), (layer_count + 2 * share) * matrix + count_bytes);
      ASSERT_NE(find(device, "gradients_0"), nullptr);
      EXPECT_EQ(find(device, "gradients_0")->bytes.value(), share * matrix);
      for (const char* room : {"bucket_0_0", "bucket_0_1"})
        EXPECT_EQ(find(device, room)->bytes.value(), matrix) << room;
      for (const char* received : {"received_0_0", "received_0_1"}) {
        const Buffer* buffer = find(device, received);
        EXPECT_TRUE(buffer == nullptr || buffer->bytes.value() <= matrix) << received;
      }
      for (const Slot& slot : device.order) {
        const Segment& segment = device.segments[static_cast<size_t>(slot.segment)];
        for (const Instr& instr : segment.instrs) {
          if (instr.opcode != Opcode::send || instr.collective < 0) continue;
          (segment.phase == Phase::step ? gathered : reduced) += bytes_of(device, instr.reads[0]).value();
        }
      }
    }
    // What an all-reduce sends to add up once a step; here it is sent once for every micro-batch of a replica.
    const int64_t once = static_cast<int64_t>(replicas - 1) * static_cast<int64_t>(layer_count) * matrix;
    EXPECT_EQ(reduced, each * once);
    EXPECT_EQ(gathered, once);
  }
}

// The bytes that a device sends in collectives, by phase.
std::map<Phase, int64_t> sent_in_collectives(const DeviceProgram& device) {
  std::map<Phase, int64_t> sent;
  for (const Slot& slot : device.order) {
    const Segment& segment = device.segments[static_cast<size_t>(slot.segment)];
    for (const Instr& instr : segment.instrs) {
      if (instr.opcode == Opcode::send && instr.collective >= 0)
        sent[segment.phase] += bytes_of(device, instr.reads[0]).value();
    }
  }
  return sent;
}

TEST(LowerZero, ReplicasKeepSharesOfTheirWeights) {
  constexpr int64_t matrix = layer_width * layer_width * 4;
  constexpr size_t layer_count = 6;
  const KernelGraph kernels = kernels_of(layers(layer_count), {.optimizer = Optimizer::adam});
  for (const size_t replicas : {size_t{2}, size_t{3}}) {
    Plan plan;
    plan.stages.push_back({0, kernels.graph.nodes.size(), {}});
    for (size_t r = 0; r < replicas; ++r) plan.stages[0].devices.push_back(DeviceId(r));
    constexpr int each = 3;
    plan.micro_batches = static_cast<int>(replicas) * each;
    const SlotTable table = copies(static_cast<int>(replicas), plan.micro_batches);
    const auto with = [&](int zero) {
      auto made = compile_program(kernels, plan, star(replicas, device_memory), {HostId(0), HostId(0)}, nullptr, &table,
                                  CollectiveAlgorithm::direct, {}, zero);
      EXPECT_TRUE(made.ok()) << made.error().message;
      return std::move(made).value();
    };
    const Program made = with(3), gradients_alone = with(2);
    ASSERT_TRUE(verify(made).ok()) << verify(made).error().message << to_string(made);
    const auto again = parse_program(to_string(made), "again.nlp");
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(*again, made);
    const auto share = static_cast<int64_t>(layer_count / replicas);
    std::map<Phase, int64_t> sent, sent_before;
    for (size_t d = 0; d < replicas; ++d) {
      const DeviceProgram& device = made.devices[d];
      EXPECT_EQ(bytes_of_kind(device, BufferKind::state), 3 * share * matrix + count_bytes);
      // Of two layers that follow each other, what others keep: two replicas take turns.
      const int64_t gathered = replicas == 2 ? 1 : 2;
      ASSERT_NE(find(device, "gathered"), nullptr);
      EXPECT_EQ(find(device, "gathered")->bytes.value(), gathered * matrix);
      const int64_t saved = (static_cast<int64_t>(layer_count) - share - gathered) * matrix;
      EXPECT_EQ(gradients_alone.devices[d].arena.value() - device.arena.value(), saved);
      for (const auto& [phase, bytes] : sent_in_collectives(device)) sent[phase] += bytes;
      for (const auto& [phase, bytes] : sent_in_collectives(gradients_alone.devices[d])) sent_before[phase] += bytes;
    }
    // Every micro-batch's forward pass gathers all weights, its backward pass those that give input gradients: all but
    // the first. The step gathers none.
    const int64_t once = static_cast<int64_t>(replicas - 1) * matrix * plan.micro_batches / static_cast<int>(replicas);
    EXPECT_EQ(sent[Phase::forward], once * static_cast<int64_t>(layer_count));
    EXPECT_EQ(sent[Phase::weight_gradient],
              sent_before[Phase::weight_gradient] + once * static_cast<int64_t>(layer_count - 1));
    EXPECT_FALSE(sent.contains(Phase::step));
    EXPECT_TRUE(sent_before.contains(Phase::step));
  }
}

// Up to where the next one may begin.
int64_t room_of(const Graph& graph, ValueId weight) {
  return (size_of(graph.value(weight).type).value() + 63) / 64 * 64;
}

int64_t bytes_of_named(const DeviceProgram& device, const std::string& begin) {
  int64_t sum = 0;
  for (const Buffer& buffer : device.buffers) sum += buffer.name.starts_with(begin) ? buffer.bytes.value() : 0;
  return sum;
}

// The arena against the formula of docs/training.md, of networks whose weights are of unlike sizes.
TEST(LowerZero, MemoryWithSharesOfWeightsIsThatOfTheFormula) {
  for (const char* name : {"resnet18?image=32", "gpt2?layers=4&hidden=64&heads=4&length=16&vocab=512"}) {
    SCOPED_TRACE(name);
    const KernelGraph kernels = zoo_training(name, 1, {.optimizer = Optimizer::adam});
    int64_t largest = 0;
    for (const ValueId weight : kernels.training->nodes.trained)
      largest = std::max(largest, room_of(kernels.graph, weight));
    const auto with = [&](size_t replicas, int each, int zero) {
      Plan plan;
      plan.stages.push_back({0, kernels.graph.nodes.size(), {}});
      for (size_t r = 0; r < replicas; ++r) plan.stages[0].devices.push_back(DeviceId(r));
      plan.micro_batches = static_cast<int>(replicas) * each;
      plan.schedule = "1f1b";
      auto made = compile_program(kernels, plan, star(replicas, device_memory), {HostId(0), HostId(0)}, nullptr,
                                  nullptr, CollectiveAlgorithm::direct, {}, zero);
      EXPECT_TRUE(made.ok()) << made.error().message;
      return std::move(made).value();
    };
    const auto kept = [](const DeviceProgram& device) {
      return bytes_of_kind(device, BufferKind::state) + bytes_of_named(device, "gradients_0");
    };
    const Program alone = with(1, 1, 0);
    const int64_t activations = alone.devices[0].arena.value() - kept(alone.devices[0]);
    const int64_t all = kept(alone.devices[0]);
    for (const size_t replicas : {2, 3, 4}) {
      const Program made = with(replicas, 2, 3);
      ASSERT_TRUE(verify(made).ok()) << verify(made).error().message;
      int64_t sum = 0;
      for (const DeviceProgram& device : made.devices) {
        const int64_t gathered = bytes_of_named(device, "gathered"), buckets = bytes_of_named(device, "bucket_0_"),
                      received = bytes_of_named(device, "received_0_");
        EXPECT_LE(gathered, 2 * largest);
        EXPECT_LE(buckets, 2 * largest);
        EXPECT_LE(received, static_cast<int64_t>(replicas - 1) * 2 * largest);
        const auto formula = static_cast<double>(kept(device) + gathered + buckets + received + activations);
        EXPECT_NEAR(static_cast<double>(device.arena.value()), formula, 0.05 * formula) << replicas;
        sum += kept(device);
      }
      EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(all), 0.01 * static_cast<double>(all)) << replicas;
    }
  }
}

TEST(LowerZero, WeightsThatSeveralNodesReadAreNotShared) {
  GraphBuilder b("twice");
  const ValueId x = b.input("x", {DType::f32, {4, 8}}), w = b.weight("both", {DType::f32, {8, 8}}, {1});
  const ValueId first = b.add(Op::MatMul, "first", {x, w}, {}).value();
  b.output(b.add(Op::MatMul, "second", {first, w}, {}).value());
  const KernelGraph kernels = kernels_of(std::move(b).finish());
  Plan plan;
  plan.stages.push_back({0, kernels.graph.nodes.size(), {DeviceId(0), DeviceId(1)}});
  plan.micro_batches = 2;
  plan.schedule = "1f1b";
  CompileOptions options;
  options.zero = 3;
  const auto made = compile(kernels, plan, star(2, device_memory), {HostId(0), HostId(0)}, nullptr, options);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().kind, ErrorKind::unsupported);
  EXPECT_THAT(made.error().message, HasSubstr("zero: 3: weight both is read by several nodes"));
  plan.stages[0].devices = {DeviceId(0)};  // there is nobody to share with
  EXPECT_TRUE(compile(kernels, plan, star(2, device_memory), {HostId(0), HostId(0)}, nullptr, options).ok());
}

// A first and a last layer larger than all else, as the embeddings of a language model: two replicas get one each, and
// what is left goes to the third.
TEST(LowerZero, LargeGradientsAreDealtOutFirst) {
  const KernelGraph kernels = zoo_training("gpt2?layers=2&hidden=64&heads=4&length=16&vocab=4096", 1);
  Plan plan;
  plan.stages.push_back({0, kernels.graph.nodes.size(), {DeviceId(0), DeviceId(1), DeviceId(2)}});
  plan.micro_batches = 3;
  const SlotTable table = copies(3, 3);
  const auto made = compile_program(kernels, plan, star(3, device_memory), {HostId(0), HostId(0)}, nullptr, &table,
                                    CollectiveAlgorithm::direct, {}, 2);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_TRUE(verify(*made).ok()) << verify(*made).error().message;
  constexpr int64_t embedding = 4096 * 64 * 4;
  int64_t sum = 0, most = 0;
  for (const DeviceProgram& device : made->devices) {
    ASSERT_NE(find(device, "gradients_0"), nullptr);
    sum += find(device, "gradients_0")->bytes.value();
    most = std::max(most, find(device, "gradients_0")->bytes.value());
  }
  EXPECT_GE(most, embedding);
  EXPECT_LE(most, std::max(embedding, sum - 2 * embedding));
}

TEST(LowerZero, SharesOfGradientsNeedAsManyMicroBatchesEverywhere) {
  const KernelGraph kernels = kernels_of(layers(2));
  Plan plan;
  plan.stages.push_back({0, kernels.graph.nodes.size(), {DeviceId(0), DeviceId(1)}});
  plan.schedule = "1f1b";
  const auto refused = [&](int micro_batches, bool exact) {
    plan.micro_batches = micro_batches;
    CompileOptions options;
    options.zero = 2;
    options.exact = exact;
    const auto made = compile(kernels, plan, star(2, device_memory), {HostId(0), HostId(0)}, nullptr, options);
    return made.ok() ? std::string() : made.error().message;
  };
  EXPECT_THAT(refused(3, false), HasSubstr("all replicas need the same number of them, and"));
  EXPECT_EQ(refused(4, false), "");
  EXPECT_EQ(refused(2, true), "");
  EXPECT_THAT(refused(4, true), HasSubstr("not exact with several micro-batches a replica"));
}

}  // namespace
}  // namespace nlsplit
