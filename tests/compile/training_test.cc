// Lowering of training steps: every Program verifies and survives its text; memory against sums done by hand; what
// cannot be lowered says why.
#include "testing/training.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "graph/builder.h"
#include "graph/memory.h"
#include "graph/optimizer.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "kernels/without_kernel.h"
#include "program/text.h"
#include "program/verify.h"
#include "testing/compile_program.h"
#include "testing/layers.h"
#include "testing/star.h"

namespace nlsplit {
namespace {

using testing::all_forward_first;
using testing::copies;
using ::testing::HasSubstr;
using testing::one_f_one_b;

const Bytes device_memory = bytes(int64_t{1} << 36);

KernelGraph kernels_of(Graph graph, const TrainingOptions& options = {}) {
  auto kernels = choose_kernels(std::move(graph), {Isa::v3}, {}, options);
  EXPECT_TRUE(kernels.ok()) << kernels.error().message;
  return std::move(kernels).value();
}

KernelGraph zoo_training(std::string_view name, int64_t batch, const TrainingOptions& options = {}) {
  Model model = zoo_model(name).value();
  return kernels_of(with_batch(optimize(model.graph, model.weights, Purpose::training).value(), batch).value(),
                    options);
}

// y_i = relu(y_{i-1} w_i), square matrices, so that every tensor of a kind has the same size: 64 samples of 64 numbers
// are 16 KiB, and so is a matrix.
constexpr int64_t layer_width = 64;
constexpr int64_t tensor_bytes = layer_width * layer_width * 4;
constexpr int64_t label_bytes = layer_width * 8;    // an integer a sample
constexpr int64_t count_bytes = 8, rate_bytes = 4;  // of a step
Graph layers(int count) { return testing::layers(count, layer_width, layer_width); }

// A layer a device.
Plan layer_each(const KernelGraph& kernels, int stages, int micro_batches) {
  Plan plan;
  const size_t nodes = kernels.graph.nodes.size();
  for (int s = 0; s < stages; ++s) {
    const auto at = [&](int i) { return nodes * static_cast<size_t>(i) / static_cast<size_t>(stages); };
    plan.stages.push_back({at(s), at(s + 1), {DeviceId(static_cast<size_t>(s))}});
  }
  plan.micro_batches = micro_batches;
  plan.schedule = "test";
  return plan;
}

Program lowered(const KernelGraph& kernels, const Plan& plan, size_t devices, const SlotTable& table) {
  auto program = compile_program(kernels, plan, star(devices, device_memory), {HostId(0), HostId(0)}, nullptr, &table,
                                 CollectiveAlgorithm::ring);
  EXPECT_TRUE(program.ok()) << program.error().message;
  const Status sound = verify(*program);
  EXPECT_TRUE(sound.ok()) << sound.error().message << "\n" << to_string(*program);
  const std::string text = to_string(*program);
  const auto again = parse_program(text, "again.nls");
  EXPECT_TRUE(again.ok()) << again.error().to_string();
  if (again.ok()) {
    EXPECT_EQ(to_string(*again), text);
    EXPECT_TRUE(*again == *program);
  }
  return std::move(program).value();
}

Error refusal(const KernelGraph& kernels, const Plan& plan, size_t devices, const SlotTable& table) {
  const auto program = compile_program(kernels, plan, star(devices, device_memory), {HostId(0), HostId(0)}, nullptr,
                                       &table, CollectiveAlgorithm::ring);
  EXPECT_FALSE(program.ok());
  return program.ok() ? Error{} : program.error();
}

const Buffer* find(const DeviceProgram& device, const std::string& name) {
  const auto at = std::ranges::find(device.buffers, name, &Buffer::name);
  return at == device.buffers.end() ? nullptr : &*at;
}

int64_t bytes_of_kind(const DeviceProgram& device, BufferKind kind) {
  int64_t sum = 0;
  for (const Buffer& buffer : device.buffers) {
    if (buffer.kind == kind) sum += buffer.instances * buffer.bytes.value();
  }
  return sum;
}

TEST(LowerTraining, OneForwardOneBackwardKeepsAtMostSoManyMicroBatches) {
  // Stage s of p holds p - s micro-batches (Narayanan et al. 2021, section 2.2). Of each it keeps what it was given
  // (the matrix's gradient needs it) and relu's result (relu's needs it).
  for (const int p : {1, 2, 3, 4}) {
    for (const int m : {1, 2, 4, 8}) {
      const KernelGraph kernels = kernels_of(layers(p));
      const Program program = lowered(kernels, layer_each(kernels, p, m), static_cast<size_t>(p), one_f_one_b(p, m));
      for (int s = 0; s < p; ++s) {
        const DeviceProgram& device = program.devices[static_cast<size_t>(s)];
        const int held = std::min(p - s, m);
        const Buffer* result = find(device, fmt::format("relu{}", s));
        ASSERT_NE(result, nullptr);
        // One that is sent has room for the next to be made meanwhile.
        const int room = s + 1 < p ? std::min(m, std::max(2, held)) : held;
        EXPECT_EQ(result->instances, room) << "p " << p << " m " << m << " stage " << s;
        const Buffer* product = find(device, fmt::format("fc{}", s));
        ASSERT_NE(product, nullptr);
        EXPECT_EQ(product->kind, BufferKind::scratch);  // nobody's gradient needs it
        if (s == 0) continue;
        // What comes from the stage before may be there before it is needed: at most one more.
        const Buffer* given = find(device, fmt::format("relu{}", s - 1));
        ASSERT_NE(given, nullptr);
        EXPECT_GE(given->instances, held);
        EXPECT_LE(given->instances, std::min(m, held + 1));
      }
    }
  }
}

TEST(LowerTraining, MemoryIsTheSumOfWhatIsHeld) {
  // The last of 3 stages under 1F1B, 6 micro-batches: one in flight. Everything is `tensor_bytes` large.
  //   state    w, momentum                                   2, and the count of steps
  //   stash    gradient of w; relu (kept for I: 1 instance);
  //            d_fc (made by I for W: 1 instance)                3, and the step's rate
  //   comm     given (2 instances: the next may come), the gradient that leaves (2)   4
  //   scratch  F: the product before relu                    1
  //            I: the loss's gradient (d_relu); d_fc is a stash   1 -> they share one region
  //            W: part                                       1
  // The loss adds labels (2 instances), two constants, two losses that are sent and the gradients of 64 rows' losses.
  const KernelGraph kernels = kernels_of(layers(3), {.optimizer = Optimizer::momentum});
  const Program program = lowered(kernels, layer_each(kernels, 3, 6), 3, one_f_one_b(3, 6));
  const DeviceProgram& last = program.devices[2];
  EXPECT_EQ(bytes_of_kind(last, BufferKind::state), 2 * tensor_bytes + count_bytes);
  EXPECT_EQ(bytes_of_kind(last, BufferKind::stash), 3 * tensor_bytes + rate_bytes);
  const Buffer* given = find(last, "relu1");
  ASSERT_NE(given, nullptr);
  EXPECT_EQ(given->instances, 2);
  constexpr int64_t losses = 2;  // sent to the source's host
  EXPECT_EQ(bytes_of_kind(last, BufferKind::comm), (2 + 2) * tensor_bytes + 2 * label_bytes + losses * 4);
  const Buffer* workspace = find(last, "workspace");
  const int64_t scratch = workspace == nullptr ? 0 : workspace->stride();
  const int64_t loss = 2 * label_bytes + (2 + losses) * arena_alignment + layer_width * 4;
  const int64_t count_and_rate = 2 * arena_alignment;
  EXPECT_EQ(last.arena.value(), (2 + 3 + 4 + 1) * tensor_bytes + scratch + loss + count_and_rate);
  // GPipe keeps all six of everything that F leaves for I and W.
  const Program gpipe = lowered(kernels, layer_each(kernels, 3, 6), 3, all_forward_first(3, 6));
  const DeviceProgram& same = gpipe.devices[2];
  EXPECT_EQ(find(same, "relu2")->instances, 6);
  EXPECT_EQ(find(same, "relu1")->instances, 6);
  EXPECT_EQ(same.arena.value() - last.arena.value(), (5 + 4) * tensor_bytes + 4 * label_bytes);
}

// The first micro-batch's gradient is computed where the sum lies; later ones are added to it there, and the update
// reads it there.
TEST(LowerTraining, GradientsAreAddedUpInPlace) {
  const KernelGraph kernels = kernels_of(layers(2));
  const DeviceProgram device = lowered(kernels, layer_each(kernels, 2, 3), 2, one_f_one_b(2, 3)).devices[1];
  const auto segment = [&](std::string_view name) { return std::ranges::find(device.segments, name, &Segment::name); };
  const auto first = segment("W1_first"), later = segment("W1"), step = segment("step1");
  ASSERT_TRUE(first != device.segments.end() && later != device.segments.end() && step != device.segments.end());
  ASSERT_EQ(first->instrs.size(), 1u);
  ASSERT_EQ(later->instrs.size(), 2u);
  const Operand sum = first->instrs[0].writes[0];
  EXPECT_EQ(device.buffer(sum.buffer).name, "gradients_1");
  EXPECT_EQ(later->instrs[1].label, "accumulate w1");
  EXPECT_EQ(later->instrs[1].reads, (std::vector<Operand>{sum, later->instrs[0].writes[0]}));
  EXPECT_EQ(later->instrs[1].writes, std::vector<Operand>{sum});
  ASSERT_EQ(step->instrs.size(), 3u);  // the rate, the update, the count of steps
  EXPECT_EQ(step->instrs[1].reads[1], sum);
}

TEST(LowerTraining, OptimizersKeepTheirState) {
  for (const Optimizer optimizer : all_optimizers()) {
    const KernelGraph kernels = kernels_of(layers(2), {.optimizer = optimizer});
    const Program program = lowered(kernels, layer_each(kernels, 2, 2), 2, one_f_one_b(2, 2));
    int64_t state = tensor_bytes + count_bytes;  // the weight, the number of steps
    for (const TensorType& kept : update_states(optimizer, {DType::f32, {layer_width, layer_width}}))
      state += size_of(kept).value();
    EXPECT_EQ(bytes_of_kind(program.devices[0], BufferKind::state), state);
  }
}

TEST(LowerTraining, RecomputationKeepsWhatAStageWasGiven) {
  // Three layers in one stage behind another one: without recomputation 3 results are kept of each micro-batch in
  // flight, with it what came in; the rest is made again by R, for one micro-batch at a time.
  const auto last_stage = [](bool recompute) {
    const KernelGraph kernels = kernels_of(layers(4), {.recompute = recompute});
    Plan plan = layer_each(kernels, 2, 4);
    plan.stages[0].end = plan.stages[1].begin = 2;
    return lowered(kernels, plan, 2, all_forward_first(2, 4)).devices[1];
  };
  const DeviceProgram plain = last_stage(false), again = last_stage(true);
  for (const std::string name : {"relu1", "relu2", "relu3"}) {
    EXPECT_EQ(find(plain, name)->instances, 4) << name;
    EXPECT_EQ(find(plain, name)->kind, BufferKind::stash) << name;
    EXPECT_EQ(find(again, name)->kind, BufferKind::scratch) << name;  // of the forward pass
    EXPECT_EQ(find(again, name + "_2")->kind, BufferKind::stash) << name;
    EXPECT_EQ(find(again, name + "_2")->instances, 1) << name;
  }
  EXPECT_EQ(find(again, "relu0")->instances, 4);  // what it was given
  EXPECT_LT(again.arena, plain.arena);
  int repeats = 0;
  for (const Slot& slot : again.order) {
    if (again.segments[static_cast<size_t>(slot.segment)].phase == Phase::recompute) ++repeats;
  }
  EXPECT_EQ(repeats, 4);
}

TEST(LowerTraining, SchedulesAreToldTimesAndMemory) {
  // Of a stage's micro-batch: until I what it was given and relu's result; until W what it was given and the product's
  // gradient. Left for them: the memory without the weights, their gradients and Adam's two numbers and count. I does
  // not know the first layer's input gradient: nobody wants one.
  for (const bool recompute : {false, true}) {
    const KernelGraph kernels = kernels_of(layers(2), {Optimizer::adam, recompute});
    const Plan plan = layer_each(kernels, 2, 2);
    const Cluster cluster = star(2, device_memory);
    const auto input = schedule_input(kernels, plan, cluster, nullptr);
    ASSERT_TRUE(input.ok()) << input.error().message;
    EXPECT_TRUE(input->training());
    for (size_t s = 0; s < 2; ++s) {
      // For the loss the last stage keeps its result, which is relu's and counted once, and the labels; its gradient
      // needs two constants.
      const int64_t labels = s == 1 ? label_bytes : 0, constants = s == 1 ? 2 * 4 : 0;
      EXPECT_EQ(input->kept_until_input_gradient[s].value(), (recompute ? 1 : 2) * tensor_bytes + labels);
      EXPECT_EQ(input->kept_until_weight_gradient[s].value(), 2 * tensor_bytes);
      EXPECT_EQ(input->device_memory[s].value(), cluster.devices[s].memory.value() - 4 * tensor_bytes - constants - 8);
    }
    // Arithmetic takes all the time: 1 second for the operations of one product, 2 x 64^3.
    const double product = 2.0 * layer_width * layer_width * layer_width;
    const CostTable costs(std::vector<CostSourcePtr>(2, roofline(flops_per_second(product), bytes_per_second(1e30))),
                          "t");
    const auto timed = schedule_input(kernels, plan, cluster, &costs);
    ASSERT_TRUE(timed.ok()) << timed.error().message;
    const double relu = layer_width * layer_width / product;
    const double forward = 1 + relu;
    // 5 operations an element, forth and back; the mean of 64 rows, and the share of each.
    const double losses = 5 * relu, mean = layer_width / product, share = 1 / product;
    const double last = forward + losses + mean;
    EXPECT_DOUBLE_EQ(timed->stage_seconds[1][0], last);
    EXPECT_DOUBLE_EQ(timed->input_gradient_seconds[0][0], relu + (recompute ? forward : 0));
    EXPECT_DOUBLE_EQ(timed->input_gradient_seconds[1][0], 1 + relu + losses + share + (recompute ? last : 0));
    EXPECT_DOUBLE_EQ(timed->weight_gradient_seconds[1][0], 1 + relu);  // and an addition an element, to the sum
  }
}

TEST(LowerTraining, CopiesReduceTheirGradientsInARing) {
  // 3 copies, 2 layers of 4096 weights: chunks of 2730 and 2731; each copy sends 2 x 2 of them (Patarasuk and Yuan
  // 2009: 2 (p - 1) messages, 2 (p - 1) / p of the bytes).
  const KernelGraph kernels = kernels_of(layers(2));
  Plan plan;
  plan.stages.push_back({0, kernels.graph.nodes.size(), {DeviceId(0), DeviceId(1), DeviceId(2)}});
  plan.micro_batches = 6;
  const Program program = lowered(kernels, plan, 3, copies(3, 6));
  constexpr int64_t weights = 2 * layer_width * layer_width;
  int64_t sent = 0;
  for (const DeviceProgram& device : program.devices) {
    int messages = 0;
    for (const Segment& segment : device.segments) {
      if (segment.phase != Phase::step) continue;
      EXPECT_EQ(
          segment.collectives,
          (std::vector<Collective>{{CollectiveKind::all_reduce, CollectiveAlgorithm::ring, {0, 1, 2}, {weights}}}));
      for (const Instr& instr : segment.instrs) {
        if (instr.opcode != Opcode::send) continue;
        EXPECT_EQ(instr.collective, 0);
        ++messages;
        sent += bytes_of(device, instr.reads[0]).value();
      }
    }
    EXPECT_EQ(messages, 4);
  }
  EXPECT_EQ(sent, 4 * weights * 4);  // every element passes p - 1 = 2 links twice
}

// Two replicas, four layers in two buckets: the first one is under way when the layers before are computed, and is
// added before the update.
TEST(LowerTraining, BucketsAreReducedWhileTheBackwardPassGoesOn) {
  const KernelGraph kernels = kernels_of(layers(4));
  Plan plan;
  plan.stages.push_back({0, kernels.graph.nodes.size(), {DeviceId(0), DeviceId(1)}});
  plan.micro_batches = 4;
  const SlotTable table = copies(2, 4);
  const Cluster cluster = star(2, device_memory);
  const auto made =
      compile_program(kernels, plan, cluster, {HostId(0), HostId(0)}, nullptr, &table, CollectiveAlgorithm::ring, 2);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_TRUE(verify(*made).ok()) << verify(*made).error().message << to_string(*made);
  const auto again = parse_program(to_string(*made), "again.nlp");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(*again, *made);
  constexpr int64_t bucket = 2 * layer_width * layer_width;
  for (const DeviceProgram& device : made->devices) {
    const auto last = std::ranges::find(device.segments, std::string("B0_last"), &Segment::name);
    ASSERT_NE(last, device.segments.end());
    const Collective collective{CollectiveKind::all_reduce, CollectiveAlgorithm::ring, {0, 1}, {bucket}};
    EXPECT_EQ(last->collectives, (std::vector<Collective>{collective, collective}));
    const auto first_of = [&](Opcode opcode, int of) {
      return std::ranges::find_if(last->instrs,
                                  [&](const Instr& instr) { return instr.opcode == opcode && instr.collective == of; });
    };
    const auto computes = [](const Instr& instr) { return instr.opcode == Opcode::compute; };
    EXPECT_GT(std::count_if(first_of(Opcode::send, 0), first_of(Opcode::send, 1), computes), 0);
    EXPECT_GT(std::count_if(first_of(Opcode::send, 0), first_of(Opcode::reduce, 0), computes), 0);
    for (const Segment& segment : device.segments) {
      EXPECT_TRUE(segment.phase != Phase::step || segment.collectives.empty());
    }
  }
}

// ZeRO, stage 1: of n replicas each keeps the optimizer's tensors of its share of the weights, and all of them all
// weights.
TEST(LowerTraining, ReplicasKeepTheOptimizersTensorsOfTheirShares) {
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
TEST(LowerTraining, ReplicasKeepSharesOfTheirGradients) {
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

TEST(LowerTraining, ReplicasKeepSharesOfTheirWeights) {
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
TEST(LowerTraining, MemoryWithSharesOfWeightsIsThatOfTheFormula) {
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

TEST(LowerTraining, WeightsThatSeveralNodesReadAreNotShared) {
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
TEST(LowerTraining, LargeGradientsAreDealtOutFirst) {
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

TEST(LowerTraining, SharesOfGradientsNeedAsManyMicroBatchesEverywhere) {
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
  EXPECT_THAT(refused(3, false), HasSubstr("replicas need as many of them as each other, and"));
  EXPECT_EQ(refused(4, false), "");
  EXPECT_EQ(refused(2, true), "");
  EXPECT_THAT(refused(4, true), HasSubstr("not exact with several micro-batches a replica"));
}

TEST(LowerTraining, ResidualNetworksAddTheirGradients) {
  const KernelGraph kernels = zoo_training("resnet18", 2);
  const size_t nodes = kernels.graph.nodes.size();
  for (const int p : {1, 2, 4}) {
    const int m = 2 * p;
    Plan plan;
    for (int s = 0; s < p; ++s) {
      const auto at = [&](int i) { return nodes * static_cast<size_t>(i) / static_cast<size_t>(p); };
      plan.stages.push_back({at(s), at(s + 1), {DeviceId(static_cast<size_t>(s))}});
    }
    plan.micro_batches = m;
    const Program program = lowered(kernels, plan, static_cast<size_t>(p), one_f_one_b(p, m));
    // Every trained weight is updated exactly once.
    size_t updates = 0;
    for (const DeviceProgram& device : program.devices) {
      for (const Segment& segment : device.segments) {
        for (const Instr& instr : segment.instrs) {
          if (instr.opcode == Opcode::compute && is_update(program.descs[static_cast<size_t>(instr.desc)].op))
            ++updates;
        }
      }
    }
    EXPECT_EQ(updates, kernels.training->nodes.trained.size());
  }
}

TEST(LowerTraining, EveryNetworkOfTheZooTrains) {
  for (const ZooEntry& entry : zoo()) {
    if (entry.name == "qwen3_moe") continue;  // experts have no gradient yet
    const KernelGraph kernels = zoo_training(entry.name, 1);
    Plan plan;
    const size_t half = kernels.graph.nodes.size() / 2;
    plan.stages = {{0, half, {DeviceId(0)}}, {half, kernels.graph.nodes.size(), {DeviceId(1)}}};
    plan.micro_batches = 3;
    lowered(kernels, plan, 2, one_f_one_b(2, 3));
  }
}

TEST(LowerTraining, AStagePerDeviceMayBeInterleaved) {
  // Stages 0 and 2 on A, 1 and 3 on B; all forward, then all backward.
  const KernelGraph kernels = kernels_of(layers(4));
  Plan plan = layer_each(kernels, 4, 3);
  for (size_t s = 0; s < 4; ++s) plan.stages[s].devices = {DeviceId(s % 2)};
  SlotTable table;
  table.devices.resize(2);
  for (int s = 0; s < 4; ++s) {
    for (int m = 0; m < 3; ++m) table.devices[static_cast<size_t>(s % 2)].push_back({s, Phase::forward, m});
  }
  for (int s = 4; s-- > 0;) {
    for (int m = 0; m < 3; ++m) testing::backward(table.devices[static_cast<size_t>(s % 2)], s, m);
    table.devices[static_cast<size_t>(s % 2)].push_back({s, Phase::step, 0});
  }
  lowered(kernels, plan, 2, table);
}

TEST(LowerTraining, WeightGradientsMayComeLate) {
  // All W behind all I, as zero-bubble schedules do: what W needs is kept until then, output gradients too.
  const KernelGraph kernels = kernels_of(layers(2));
  SlotTable table = one_f_one_b(2, 4);
  for (std::vector<ScheduledSlot>& order : table.devices) {
    std::stable_partition(order.begin(), order.end(), [](const ScheduledSlot& slot) {
      return slot.phase != Phase::weight_gradient && slot.phase != Phase::step;
    });
  }
  const Program program = lowered(kernels, layer_each(kernels, 2, 4), 2, table);
  EXPECT_EQ(find(program.devices[0], "relu0")->instances, 2);      // relu's result is over with I
  EXPECT_EQ(find(program.devices[1], "relu0")->instances, 4);      // what comes in waits for W
  const Buffer* gradient = find(program.devices[1], "d.relu1.0");  // by the product's result
  ASSERT_NE(gradient, nullptr);
  EXPECT_EQ(gradient->instances, 4);
}

TEST(LowerTraining, TablesThatAreNotOfThisPlanAreRefused) {
  const KernelGraph kernels = kernels_of(layers(2));
  const Plan plan = layer_each(kernels, 2, 2);
  const auto broken = [&](auto change) {
    SlotTable table = one_f_one_b(2, 2);
    change(table.devices);
    return refusal(kernels, plan, 2, table).message;
  };
  using Devices = std::vector<std::vector<ScheduledSlot>>;
  EXPECT_THAT(broken([](Devices& d) { d[0].erase(d[0].begin()); }),
              HasSubstr("micro-batch 0 never runs through stage 0 F"));
  EXPECT_THAT(broken([](Devices& d) { d[0].push_back(d[0].front()); }),
              HasSubstr("stage 0 F of micro-batch 0 runs twice"));
  EXPECT_THAT(broken([](Devices& d) {
                d[1].push_back({0, Phase::forward, 0});
              }),
              HasSubstr("does not have that stage"));
  EXPECT_THAT(broken([](Devices& d) { d[1].pop_back(); }), HasSubstr("device 1 never steps stage 1"));
  EXPECT_THAT(broken([](Devices& d) { d[0].front().micro_batch = 7; }), HasSubstr("there are 2"));
  EXPECT_THAT(broken([](Devices& d) { std::swap(d[1][0], d[1][1]); }), HasSubstr("wait for each other"));
  EXPECT_THAT(broken([](Devices& d) {
                d[0].insert(d[0].begin(), {0, Phase::recompute, 0});
              }),
              HasSubstr("recomputes, but the workload keeps all activations"));
}

TEST(LowerTraining, AnInferenceScheduleIsNoTrainingSchedule) {
  const KernelGraph kernels = kernels_of(layers(2));
  SlotTable table;
  table.devices = {{{0, Phase::forward, 0}}, {{1, Phase::forward, 0}}};
  const Error error = refusal(kernels, layer_each(kernels, 2, 1), 2, table);
  EXPECT_EQ(error.kind, ErrorKind::unsupported);
  EXPECT_THAT(error.message, HasSubstr("is for inference"));
}

TEST(LowerTraining, StagesThatShareAWeightTellEachOtherTheirSums) {
  GraphBuilder builder("tied");
  const TensorType type{DType::f32, {layer_width, layer_width}};
  const ValueId w = builder.weight("tied_w", type, {1});
  ValueId value = builder.input("x", type);
  value = builder.add(Op::MatMul, "in", {value, w}, {}).value();
  value = builder.add(Op::MatMul, "out", {value, w}, {}).value();
  builder.output(value);
  const KernelGraph kernels = kernels_of(std::move(builder).finish());
  const Program two = lowered(kernels, layer_each(kernels, 2, 1), 2, one_f_one_b(2, 1));
  for (const DeviceProgram& device : two.devices) {
    int sums = 0, updates = 0;
    for (const Segment& segment : device.segments) {
      for (const Instr& instr : segment.instrs) {
        if (segment.phase != Phase::step) continue;
        sums += instr.opcode == Opcode::send && bytes_of(device, instr.reads[0]).value() == tensor_bytes ? 1 : 0;
        updates += instr.opcode == Opcode::compute && is_update(two.descs[static_cast<size_t>(instr.desc)].op) ? 1 : 0;
      }
    }
    EXPECT_EQ(sums, 1) << device.name;
    EXPECT_EQ(updates, 1) << device.name;
  }
  // In one stage both gradients are added.
  Plan plan;
  plan.stages.push_back({0, 2, {DeviceId(0)}});
  lowered(kernels, plan, 1, one_f_one_b(1, 1));
}

TEST(LowerTraining, RecurrentLayersAreTrained) {
  GraphBuilder builder("recurrent");
  const ValueId x = builder.input("x", {DType::f32, {1, 3, 4}});
  const ValueId w = builder.weight("w", {DType::f32, {1, 5, 4}}, {1});
  const ValueId r = builder.weight("r", {DType::f32, {1, 5, 5}}, {2});
  const ValueId b = builder.weight("b", {DType::f32, {1, 10}}, {3});
  const auto y = builder.add_all(Op::RNN, "cell", {x, w, r, b}, {{"direction", std::string("forward")}});
  ASSERT_TRUE(y.ok()) << y.error().message;
  builder.output((*y)[0]);
  const KernelGraph kernels = kernels_of(std::move(builder).finish());
  Plan plan;
  plan.stages.push_back({0, 1, {DeviceId(0)}});
  const Program program = lowered(kernels, plan, 1, one_f_one_b(1, 1));
  int updates = 0;
  for (const ComputeDesc& desc : program.descs) updates += is_update(desc.op) ? 1 : 0;
  EXPECT_EQ(updates, 3);  // w, r and b, of different shapes
}

TEST(LowerTraining, WhatCannotBeTrainedIsNamed) {
  GraphBuilder nothing("nothing");
  nothing.output(nothing.add(Op::Relu, "r", {nothing.input("x", {DType::f32, {1, 3}})}, {}).value());
  const auto untrained = choose_kernels(std::move(nothing).finish(), {Isa::v3}, {}, TrainingOptions{});
  ASSERT_FALSE(untrained.ok());
  EXPECT_THAT(untrained.error().message, HasSubstr("nothing to train"));
}

}  // namespace
}  // namespace nlsplit
