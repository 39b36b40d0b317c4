// Lowering of training steps: every Program verifies and survives its text; memory against sums done by hand; what
// cannot be lowered says why.
#include "testing/training.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "compile/training_steps.h"
#include "graph/builder.h"
#include "graph/memory.h"
#include "graph/optimizer.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "kernels/without_kernel.h"
#include "program/text.h"
#include "program/verify.h"
#include "testing/layers.h"
#include "testing/star.h"

namespace nlsplit {
namespace {

using testing::all_forward_first;
using testing::copies;
using ::testing::HasSubstr;
using testing::one_f_one_b;

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
    const KernelGraph kernels = kernels_of(layers(4), {.recompute = recompute ? Recompute::full : Recompute::none});
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

TEST(LowerTraining, APlanSaysWhichStagesRecompute) {
  const KernelGraph kernels = kernels_of(layers(4), {});
  Plan plan = layer_each(kernels, 2, 4);
  const Program kept = lowered(kernels, plan, 2, all_forward_first(2, 4));
  plan.stages[0].recompute = true;
  const Program program = lowered(kernels, plan, 2, all_forward_first(2, 4));
  EXPECT_LT(program.devices[0].arena, kept.devices[0].arena);
  EXPECT_EQ(program.devices[1].arena, kept.devices[1].arena);
  const auto repeats = [](const DeviceProgram& device) {
    return std::ranges::count_if(device.order, [&](const Slot& slot) {
      return device.segments[static_cast<size_t>(slot.segment)].phase == Phase::recompute;
    });
  };
  EXPECT_EQ(repeats(program.devices[0]), 4);
  EXPECT_EQ(repeats(program.devices[1]), 0);
}

TEST(LowerTraining, SchedulesAreToldTimesAndMemory) {
  // Of a stage's micro-batch: until I what it was given and relu's result; until W what it was given and the product's
  // gradient. Left for them: the memory without the weights, their gradients and Adam's two numbers and count. I does
  // not know the first layer's input gradient: nobody wants one.
  for (const bool recompute : {false, true}) {
    const KernelGraph kernels = kernels_of(layers(2), {Optimizer::adam, recompute ? Recompute::full : Recompute::none});
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
              HasSubstr("the plan keeps all activations of stage"));
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
