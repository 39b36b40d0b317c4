// Every schedule, in every shape that the literature draws it in: lowered, verified, dry-run, and timed by both tiers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "program/verify.h"
#include "schedule/placement.h"
#include "sim/cases.h"
#include "testing/compile_program.h"
#include "testing/layers.h"
#include "testing/training.h"

namespace nlsplit {
namespace {

// Everybody has a cable to everybody.
Cluster mesh(int devices) {
  Cluster cluster = testing::chain(devices, 20e-6, 100e6);
  for (size_t a = 0; a < cluster.hosts.size(); ++a) {
    for (size_t b = a + 2; b < cluster.hosts.size(); ++b) {
      Link link = cluster.links[0];
      link.name = fmt::format("{}-{}", a, b);
      link.a = HostId(a), link.b = HostId(b);
      cluster.links.push_back(link);
    }
  }
  return cluster;
}

struct DrawnShape {
  int devices, stages, micro_batches;
};

std::vector<DrawnShape> shapes_for(const SchedulePolicy& policy) {
  std::vector<DrawnShape> shapes;
#if defined(__SANITIZE_ADDRESS__)
  const std::vector<int> devices = {2, 3};  // the others take minutes
#else
  const std::vector<int> devices = {2, 3, 4, 8};
#endif
  for (const int p : devices) {
    for (const int m : std::set{1, 2, p, 4 * p}) {
      if (policy.name == "search" && (p > 3 || m > p)) continue;  // half a second each
      for (const int v : {1, 2, 4}) shapes.push_back({p, v * p, m});
    }
  }
  return shapes;
}

class EverySchedule : public ::testing::TestWithParam<bool> {};

TEST_P(EverySchedule, IsVerifiedAndTimedAlikeByBothTiers) {
  const bool training = GetParam();
  std::map<int, std::optional<KernelGraph>> networks;
  std::map<int, std::vector<testing::Case>> cases;  // by number of devices
  std::map<std::string_view, int> made;
  for (const SchedulePolicy& policy : all_schedules()) {
    if (policy.mode == (training ? ScheduleMode::inference : ScheduleMode::training)) continue;
    for (const auto& [p, stages, m] : shapes_for(policy)) {
      SCOPED_TRACE(fmt::format("{}: {} devices, {} stages, {} micro-batches", policy.name, p, stages, m));
      const auto placement =
          make_placement(policy.placement == StagePlacement::any ? StagePlacement::loop : policy.placement, p, stages);
      if (!placement.ok()) continue;
      std::optional<KernelGraph>& network = networks[stages];
      if (!network) {
        auto chosen =
            training ? choose_kernels(testing::layers(stages, 2, 8), {Isa::v3}, {}, TrainingOptions{Optimizer::adam})
                     : choose_kernels(testing::layers(stages, 2, 8), {Isa::v3});
        ASSERT_TRUE(chosen.ok()) << chosen.error().message;
        network = std::move(chosen).value();
      }
      Plan plan;
      plan.micro_batches = m;
      plan.schedule = policy.name;
      for (int s = 0; s < stages; ++s) {
        Stage& stage = plan.stages.emplace_back();
        stage.begin = static_cast<size_t>(2 * s);
        stage.end = stage.begin + 2;
        for (const int d : (*placement)[static_cast<size_t>(s)])
          stage.devices.push_back(DeviceId(static_cast<size_t>(d)));
      }
      const Cluster cluster = mesh(p);
      const CostTable costs(
          std::vector<CostSourcePtr>(cluster.devices.size(), roofline(flops_per_second(1e9), bytes_per_second(1e9))),
          "test.yaml");
      auto program = compile_program(*network, plan, cluster, {HostId(0), HostId(0)}, &costs);
      if (!program.ok()) {
        EXPECT_EQ(program.error().kind, ErrorKind::unsupported) << program.error().message;
        EXPECT_NE(program.error().message.find(policy.name), std::string::npos) << program.error().message;
        EXPECT_NE(policy.placement, StagePlacement::any) << "it serves every shape";
        continue;
      }
      const Status sound = verify(*program);
      ASSERT_TRUE(sound.ok()) << sound.error().message;
      testing::Case one;
      one.program = std::move(program).value();
      one.cluster = cluster;
      one.dependencies = dependencies(one.program).value();
      ASSERT_TRUE(dry_run(one.program, one.dependencies).ok());
      auto graph = build_timed_graph(one.program, one.dependencies, one.cluster, costs);
      ASSERT_TRUE(graph.ok()) << graph.error().to_string();
      one.graph = std::move(graph).value();
      cases[p].push_back(std::move(one));
      ++made[policy.name];
    }
    EXPECT_GE(made[policy.name], 1) << policy.name;
  }
  for (const auto& [devices, all] : cases) {
    std::vector<const TimedGraph*> graphs;
    for (const testing::Case& one : all) graphs.push_back(&one.graph);
    const auto judged = simulate_all(simgrid_tier(), all[0].cluster, graphs);
    ASSERT_TRUE(judged.ok()) << judged.error().to_string();
    for (size_t i = 0; i < all.size(); ++i) {
      const Timing fast = testing::fast(all[i]);
      EXPECT_GT(fast.makespan, 0);
      EXPECT_NEAR((*judged)[i].makespan, fast.makespan, 1e-9 * fast.makespan) << all[i].program.name;
    }
  }
}

// The credits of `sequential`: no stage of a micro-batch begins before the last stage of the one before has ended.
TEST(Sequential, OneMicroBatchIsUnderWayAtATime) {
  for (const std::vector<std::vector<int>>& placement :
       {std::vector<std::vector<int>>{{0}, {1}, {2}}, {{0, 1}, {2}, {1, 0}}, {{0}, {1, 2}, {0}}}) {
    Plan plan;
    plan.micro_batches = 6;
    plan.schedule = "sequential";
    for (size_t s = 0; s < placement.size(); ++s) {
      Stage& stage = plan.stages.emplace_back();
      stage.begin = 2 * s, stage.end = 2 * s + 2;
      for (const int d : placement[s]) stage.devices.push_back(DeviceId(static_cast<size_t>(d)));
    }
    const Cluster cluster = mesh(3);
    const CostTable costs(
        std::vector<CostSourcePtr>(cluster.devices.size(), roofline(flops_per_second(1e9), bytes_per_second(1e9))), "");
    const auto network = choose_kernels(testing::layers(3, 2, 8), {Isa::v3});
    ASSERT_TRUE(network.ok());
    testing::Case one;
    one.cluster = cluster;
    one.program = compile_program(*network, plan, cluster, {HostId(0), HostId(0)}, &costs).value();
    ASSERT_TRUE(verify(one.program).ok()) << verify(one.program).error().message;
    one.dependencies = dependencies(one.program).value();
    one.graph = build_timed_graph(one.program, one.dependencies, cluster, costs).value();
    const Trace trace = to_trace(one.program, one.dependencies, one.graph, testing::fast(one));
    std::vector<double> begin(6, 1e9), end(6, 0);
    for (const Span& span : trace.spans) {
      if (instr_of(one.program, {span.device, span.slot, span.instr}).opcode != Opcode::compute) continue;
      const DeviceProgram& device = one.program.devices[static_cast<size_t>(span.device)];
      const auto m = static_cast<size_t>(device.order[static_cast<size_t>(span.slot)].micro_batch);
      begin[m] = std::min(begin[m], span.start);
      end[m] = std::max(end[m], span.finish);
    }
    for (size_t m = 1; m < begin.size(); ++m) EXPECT_GE(begin[m], end[m - 1]) << m << "\n" << to_string(one.program);
  }
}

INSTANTIATE_TEST_SUITE_P(Workloads, EverySchedule, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Training" : "Inference"; });

}  // namespace
}  // namespace nlsplit
