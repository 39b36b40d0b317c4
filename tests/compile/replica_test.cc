// Replicas: what is copied from another one is what each would be written as by itself.
#include "compile/replica.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compile/device_writer.h"
#include "compile/training_steps.h"
#include "program/text.h"

namespace nlsplit {
namespace {

struct ReplicaCase {
  std::string name;
  std::vector<std::vector<size_t>> stages;  // of each its devices
  int micro_batches = 8;
  std::string schedule = "1f1b";
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  int buckets = 1;
  Recompute recompute = Recompute::none;
  bool clip = false;
  size_t replicas = 0;  // devices that are written after another one; the one with the samples never is
};

Plan replicated(const ReplicaCase& of, const KernelGraph& kernels) {
  Plan plan;
  const size_t nodes = kernels.graph.nodes.size(), count = of.stages.size();
  for (size_t s = 0; s < count; ++s) {
    plan.stages.push_back({nodes * s / count, nodes * (s + 1) / count, {}});
    for (const size_t device : of.stages[s]) plan.stages.back().devices.emplace_back(device);
  }
  plan.micro_batches = of.micro_batches;
  plan.schedule = of.schedule;
  return plan;
}

void check_replicas(const ReplicaCase& of) {
  SCOPED_TRACE(of.name);
  TrainingOptions options;
  options.micro_batches = of.micro_batches;
  options.recompute = of.recompute;
  if (of.clip) options.clip = 1.0;
  const KernelGraph kernels = zoo_training("mlp?layers=4&inputs=30&hidden=50", 2, options);
  const Plan plan = replicated(of, kernels);
  const Cluster cluster = star(8, device_memory);
  Lowering lowering;
  lowering.network = &kernels;
  lowering.plan = &plan;
  lowering.cluster = &cluster;
  lowering.endpoints = {HostId(0), HostId(0)};
  lowering.all_reduce = of.algorithm;
  lowering.buckets = of.buckets;
  ASSERT_TRUE(place(lowering).ok());
  ASSERT_TRUE(schedule(lowering, nullptr).ok());
  ASSERT_TRUE(exchange(lowering).ok());
  Lowering apart = lowering;
  allocate(lowering);
  const std::vector<int> row_major(apart.flows.size(), 0);
  Interned interned;
  std::vector<WrittenDevice> written;
  size_t replicas = 0;
  for (size_t i = 0; i < apart.program.devices.size(); ++i) {
    const auto d = static_cast<int>(i);
    const auto is_after = [&](const WrittenDevice& other) { return is_replica(apart, other, d); };
    replicas += std::ranges::any_of(written, is_after) ? 1 : 0;
    written.push_back(DeviceWriter(apart, row_major, d, interned, apart.program).write());
  }
  EXPECT_EQ(to_string(lowering.program), to_string(apart.program));
  EXPECT_TRUE(lowering.program == apart.program);
  EXPECT_EQ(replicas, of.replicas);
}

TEST(Replicas, AreWrittenAsByThemselves) {
  check_replicas({.name = "four", .stages = {{0, 1, 2, 3}}, .replicas = 2});
  check_replicas({.name = "none has the samples", .stages = {{1, 2, 3}}, .micro_batches = 9, .replicas = 2});
  check_replicas({.name = "buckets", .stages = {{0, 1, 2, 3}}, .buckets = 4, .replicas = 2});
  check_replicas(
      {.name = "recomputing", .stages = {{0, 1, 2, 3}}, .buckets = 3, .recompute = Recompute::full, .replicas = 2});
  check_replicas({.name = "some have one micro-batch more", .stages = {{1, 2, 3}}, .micro_batches = 7, .replicas = 1});
  check_replicas({.name = "other orders", .stages = {{0, 1}, {2, 3}}, .replicas = 0});
  check_replicas({.name = "peers in turns",
                  .stages = {{0, 1, 2}, {3, 4, 5, 6}},
                  .micro_batches = 24,
                  .schedule = "gpipe",
                  .replicas = 4});
}

// Of those of a tree some only send, and of seven one has no partner when halves are exchanged.
TEST(Replicas, AreWrittenAsByThemselvesUnderAllAlgorithms) {
  for (const CollectiveAlgorithm algorithm : algorithms_of(CollectiveKind::all_reduce)) {
    ReplicaCase of{.name = std::string(name_of(algorithm)),
                   .stages = {{0, 1, 2, 3, 4, 5, 6}},
                   .micro_batches = 14,
                   .algorithm = algorithm};
    of.buckets = 2;
    SCOPED_TRACE(of.name);
    using enum CollectiveAlgorithm;
    of.replicas = algorithm == tree || algorithm == halving || algorithm == doubling ? 4 : 5;
    check_replicas(of);
  }
}

TEST(Replicas, AreNoneWhereStepsWaitForEachOther) {
  check_replicas({.name = "clipped", .stages = {{0, 1, 2, 3}}, .clip = true, .replicas = 0});
}

}  // namespace
}  // namespace nlsplit
