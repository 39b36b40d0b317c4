// Training steps in both tiers: they agree where nothing contends, and when messages are free the bubble is what the
// papers say.
#include "testing/training.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/without_kernel.h"
#include "program/data_movement.h"
#include "sim/cases.h"
#include "testing/compile_program.h"
#include "testing/layers.h"

namespace nlsplit {
namespace {

using testing::all_forward_first;
using testing::chain;
using testing::copies;
using testing::expect_same;
using ::testing::HasSubstr;
using testing::one_f_one_b;

Program lowered(int stages, int replicas, const Cluster& cluster, const SlotTable& table, int micro_batches,
                const TrainingOptions& options) {
  const auto kernels = choose_kernels(testing::layers(stages, 16, 32), {Isa::v3}, {}, options);
  EXPECT_TRUE(kernels.ok()) << kernels.error().message;
  Plan plan;
  plan.micro_batches = micro_batches;
  for (int s = 0; s < stages; ++s) {
    Stage& stage = plan.stages.emplace_back();
    stage.begin = static_cast<size_t>(2 * s);
    stage.end = stage.begin + 2;
    for (int r = 0; r < replicas; ++r) stage.devices.push_back(DeviceId(static_cast<size_t>(s * replicas + r)));
  }
  // The losses are wanted where they are made: no message of theirs is in the way of a gradient's.
  const HostId last = cluster.devices[plan.stages.back().devices.back().index()].host;
  auto program =
      compile_program(*kernels, plan, cluster, {HostId(0), last}, nullptr, &table, CollectiveAlgorithm::ring);
  EXPECT_TRUE(program.ok()) << program.error().message;
  const Status sound = verify(*program);
  EXPECT_TRUE(sound.ok()) << sound.error().message;
  return std::move(program).value();
}

testing::Case timed(Program program, Cluster cluster, const CostTable& costs) {
  testing::Case made;
  made.program = std::move(program);
  made.cluster = std::move(cluster);
  made.dependencies = dependencies(made.program).value();
  auto graph = build_timed_graph(made.program, made.dependencies, made.cluster, costs);
  EXPECT_TRUE(graph.ok()) << graph.error().to_string();
  made.graph = std::move(graph).value();
  return made;
}

CostTable rooflines(const Cluster& cluster) {
  const CostSourcePtr flat = roofline(flops_per_second(1e9), bytes_per_second(1e9));
  return CostTable(std::vector<CostSourcePtr>(cluster.devices.size(), flat), "test.yaml");
}

TEST(TrainingSimulation, TiersAgreeWhereNothingContends) {
  for (const bool recompute : {false, true}) {
    const TrainingOptions options{Optimizer::adam, recompute ? Recompute::full : Recompute::none};
    for (const int p : {1, 2, 3, 4}) {
      for (const int m : {1, 2, 4, 8}) {
        if (p == 4 && m == 8) continue;  // there labels meet activations on a link
        const Cluster cluster = chain(p, 20e-6, 100e6);
        for (const SlotTable& table : {one_f_one_b(p, m), all_forward_first(p, m)}) {
          const testing::Case one = timed(lowered(p, 1, cluster, table, m, options), cluster, rooflines(cluster));
          expect_same(testing::fast(one), testing::simgrid(one), 1e-9,
                      fmt::format("{} stages, {} micro-batches", p, m));
        }
      }
    }
    const Cluster two = chain(2, 20e-6, 100e6);
    const testing::Case ring = timed(lowered(1, 2, two, copies(2, 4), 4, options), two, rooflines(two));
    expect_same(testing::fast(ring), testing::simgrid(ring), 1e-9, "two copies and their ring");
  }
}

// Every stage takes f, i and w: they are measured for its Relu, for that one's gradient, and for the gradient by the
// weights (a Gemm whose first operand is turned); nothing else takes time.
CostTable measured(const Program& program, const Cluster& cluster, double f, double i, double w, double step = 0) {
  Profile profile;
  profile.file = "measured.json";
  const auto put = [&](const ComputeDesc& desc, double time) {
    profile.kernels[profile_key(desc, 1)] = {seconds(time), seconds(0), 1};
  };
  for (const ComputeDesc& desc : program.descs) {
    const bool by_weights = desc.op == Op::Gemm && attr_int(desc.attrs, "transA") == 1;
    put(desc, desc.op == Op::Relu           ? f
              : desc.op == Op::ReluGradient ? i
              : by_weights                  ? w
              : is_update(desc.op)          ? step
                                            : 0);
  }
  for (const DeviceProgram& device : program.devices) {
    for (const Segment& segment : device.segments) {
      for (const Instr& instr : segment.instrs) {
        if (instr.opcode != Opcode::compute && !is_transfer(instr.opcode)) put(movement_desc(device, instr), 0);
      }
    }
  }
  return CostTable(std::vector<CostSourcePtr>(cluster.devices.size(), measured(profile)), "test.yaml");
}

TEST(TrainingSimulation, TheBubbleIsWhatThePapersSayWhenMessagesAreFree) {
  // GPipe and 1F1B: (p - 1) / (m + p - 1) of the time (Huang et al. 2019, section 2.2; Narayanan et al. 2021, section
  // 2.2), where a backward pass is one piece: here all of it is I.
  for (const int p : {1, 2, 3, 4}) {
    for (const int m : {1, 2, 4, 8}) {
      const Cluster cluster = chain(p, 0, 1e30);
      for (const SlotTable& table : {one_f_one_b(p, m), all_forward_first(p, m)}) {
        const Program program = lowered(p, 1, cluster, table, m, {});
        constexpr double forward = 1, backward = 2;
        const testing::Case one = timed(program, cluster, measured(program, cluster, forward, backward, 0));
        const Timing timing = testing::fast(one);
        const double ideal = m * (forward + backward);
        EXPECT_NEAR(timing.makespan, (m + p - 1) * (forward + backward), 1e-9) << p << " stages, " << m;
        EXPECT_NEAR((timing.makespan - ideal) / timing.makespan, (p - 1.0) / (m + p - 1), 1e-9);
        EXPECT_NEAR(testing::simgrid(one).makespan, timing.makespan, 1e-9);
      }
    }
  }
}

TEST(TrainingSimulation, GradientsLeaveBeforeTheWeightsGradientsAreMade) {
  // With I and W apart the stage before can go on after I: of the last micro-batch only I is waited for at each of the
  // p - 1 others, so the bubble is (p - 1) (F + I).
  for (const int p : {2, 3, 4}) {
    const int m = 2 * p;
    const Cluster cluster = chain(p, 0, 1e30);
    const Program program = lowered(p, 1, cluster, all_forward_first(p, m), m, {});
    const testing::Case one = timed(program, cluster, measured(program, cluster, 1, 1, 1, 0.25));
    EXPECT_NEAR(testing::fast(one).makespan, m * 3 + (p - 1) * 2 + 0.25, 1e-9);  // and the update
  }
}

TEST(TrainingSimulation, AWholeBackwardsGradientIsReadyWithItsI) {
  // A message leaves when its data is written, also where the schedule has its send behind W: (p - 1) (F + I).
  for (const int p : {2, 3, 4}) {
    const int m = 2 * p;
    const Cluster cluster = chain(p, 0, 1e30);
    const Program program = lowered(p, 1, cluster, one_f_one_b(p, m, true), m, {});
    const testing::Case one = timed(program, cluster, measured(program, cluster, 1, 1, 1));
    EXPECT_NEAR(testing::fast(one).makespan, m * 3 + (p - 1) * 2, 1e-9);
    expect_same(testing::fast(one), testing::simgrid(one), 1e-9, "whole");
  }
}

TEST(TrainingSimulation, RecomputationTakesAnotherForwardPass) {
  const Cluster cluster = chain(2, 0, 1e30);
  const int m = 4;
  const Program plain = lowered(2, 1, cluster, all_forward_first(2, m), m, {});
  const Program again = lowered(2, 1, cluster, all_forward_first(2, m), m, {.recompute = Recompute::full});
  const auto makespan = [&](const Program& program) {
    return testing::fast(timed(program, cluster, measured(program, cluster, 1, 2, 0))).makespan;
  };
  // F 1, R 1, I 2: each backward takes 3, and the first of a stage can recompute while it waits for its gradient.
  EXPECT_NEAR(makespan(plain), (m + 1) * 3, 1e-9);
  EXPECT_NEAR(makespan(again), (m + 1) * 4 - 1, 1e-9);
}

TEST(TrainingSimulation, TheRingTakesTwiceAllButOneChunks) {
  // 2 copies of 1024 weights: 2 (2 - 1) messages of half of them, 2048 B each; a link of 1 MB/s takes 2.048 ms for one.
  const Cluster cluster = chain(2, 0, 1e6);
  const Program program = lowered(1, 2, cluster, copies(2, 2), 2, {});
  const testing::Case one = timed(program, cluster, measured(program, cluster, 0, 0, 0));
  const Timing timing = testing::fast(one);
  double moved = 0;
  for (const Activity& activity : one.graph.activities) {
    if (activity.is_transfer && activity.device == 0 && activity.bytes == 2048) moved += activity.duration;
  }
  // The input of the second copy, 16 x 32 floats, is as long as a chunk; it comes first.
  EXPECT_NEAR(moved, 3 * 2.048e-3, 1e-12);
  constexpr double labels = 16 * 8 * 1e-6;  // of the second copy: 16 integers of 8 bytes
  constexpr double loss = 4e-6;             // of the first copy, before its chunks
  EXPECT_NEAR(timing.makespan, 3 * 2.048e-3 + labels + loss, 1e-9);
}

TEST(TrainingSimulation, AnUpdateThatWasNotMeasuredIsAnErrorThatSaysSo) {
  const Cluster cluster = chain(1, 0, 1e30);
  const Program program = lowered(1, 1, cluster, one_f_one_b(1, 1), 1, {});
  Profile profile;
  profile.file = "without_updates.json";
  for (const ComputeDesc& desc : program.descs) {
    if (!is_update(desc.op)) profile.kernels[profile_key(desc, 1)] = {seconds(1), seconds(0), 1};
  }
  const CostTable costs({measured(profile)}, "test.yaml");
  const auto graph = build_timed_graph(program, dependencies(program).value(), cluster, costs);
  ASSERT_FALSE(graph.ok());
  EXPECT_THAT(graph.error().message, HasSubstr("without_updates.json has no measurement of"));
  EXPECT_THAT(graph.error().fragment,
              HasSubstr("update_v3 SgdUpdate(f32[32,32], f32[1024], f32[1]) {decay=0.0} -> f32[32,32]"));
}

}  // namespace
}  // namespace nlsplit
