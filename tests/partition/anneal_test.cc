// Annealing: every change leaves a plan that can be, and the best is found where one can count it out.
#include "partition/anneal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "partition/anneal_moves.h"
#include "partition/chains.h"
#include "partition/cuts.h"

namespace nlsplit {
namespace {

using namespace testing;

AnnealSpace space_of(const Graph& graph, size_t devices) {
  AnnealSpace space;
  space.graph = &graph;
  space.cuts = find_cuts(graph);
  for (size_t d = 0; d < devices; ++d) space.devices.push_back(DeviceId(d));
  space.max_stages = space.max_devices = devices;
  space.axes = {SplitAxis::batch, SplitAxis::height, SplitAxis::channels};
  space.micro_batches = {1, 2, 4};
  space.shares = [](const Stage& stage) { return std::vector<int64_t>(stage.devices.size(), 1); };
  return space;
}

TEST(AnnealMoves, EveryChangeLeavesAPlanThatCanBe) {
  const Graph graph = convolutions(6);
  const Cluster cluster = star(4, 1e6);
  const AnnealSpace space = space_of(graph, 4);
  AnnealMoves moves(space);
  Random random(5);
  Plan plan;
  plan.stages = {{0, graph.nodes.size(), {DeviceId(0)}}};
  size_t changes = 0, split = 0, recomputed = 0, uneven = 0;
  std::set<size_t> stage_counts;
  for (int i = 0; i < 20000; ++i) {
    Plan next = plan;
    if (!moves.change(next, random)) continue;
    ++changes;
    const Status sound = check_plan(next, graph, cluster, 4);
    ASSERT_TRUE(sound.ok()) << sound.error().message;
    for (const Stage& stage : next.stages) {
      if (!stage.split) {
        EXPECT_LE(stage.devices.size(), static_cast<size_t>(next.micro_batches));
        continue;
      }
      ++split;
      recomputed += stage.split->recompute_halo;
      uneven += stage.split->shares.front() != stage.split->shares.back();
      EXPECT_EQ(stage.split->shares.size(), stage.devices.size());
    }
    stage_counts.insert(next.stages.size());
    plan = std::move(next);
  }
  EXPECT_GT(changes, 5000u);
  EXPECT_GT(split, 500u);
  EXPECT_GT(recomputed, 50u);
  EXPECT_GT(uneven, 50u);
  EXPECT_EQ(stage_counts, (std::set<size_t>{1, 2, 3, 4}));
}

// What would be refused in any case is not asked for, and the way goes on as if it had been.
TEST(Anneal, ABoundOfTheCostSavesQuestionsOnly) {
  const Graph graph = convolutions(8);
  AnnealSpace space = space_of(graph, 3);
  size_t asked = 0;
  const auto cost = [](const Plan& plan) {
    double sum = 10 * static_cast<double>(plan.micro_batches);
    for (const Stage& stage : plan.stages) sum += static_cast<double>(stage.end * (stage.devices.size() + 1));
    return sum;
  };
  space.cost = [&](const Plan& plan) {
    ++asked;
    return cost(plan);
  };
  Plan start;
  start.stages = {{0, graph.nodes.size(), {DeviceId(0), DeviceId(1)}}};
  start.micro_batches = 4;
  const TriedPlan best = anneal(space, {start}, {.steps = 300, .seed = 3})[0];
  const size_t without = std::exchange(asked, 0);
  space.least_cost = cost;
  const TriedPlan same = anneal(space, {start}, {.steps = 300, .seed = 3})[0];
  EXPECT_EQ(same.plan, best.plan);
  EXPECT_EQ(same.cost, best.cost);
  EXPECT_LT(asked, without);
}

// The cost is the distance to a plan known beforehand: it must be reached from afar.
TEST(Anneal, FindsThePlanThatCostsNothing) {
  const Graph graph = convolutions(8);
  AnnealSpace space = space_of(graph, 3);
  Plan wanted;
  wanted.stages = {{0, 3, {DeviceId(0), DeviceId(2)}, Split{SplitAxis::height, true, {2, 1}}}, {3, 8, {DeviceId(1)}}};
  wanted.micro_batches = 2;
  size_t asked = 0;
  space.cost = [&](const Plan& plan) {
    ++asked;
    double cost = 1 + std::abs(std::log2(plan.micro_batches) - 1) +
                  std::abs(static_cast<double>(plan.stages.size()) - static_cast<double>(wanted.stages.size()));
    for (size_t s = 0; s < std::min(plan.stages.size(), wanted.stages.size()); ++s) {
      const Stage &is = plan.stages[s], &should = wanted.stages[s];
      cost += std::abs(static_cast<double>(is.end) - static_cast<double>(should.end)) / 8;
      cost += is.devices == should.devices ? 0 : 1;
      cost += is.split == should.split ? 0 : is.split.has_value() == should.split.has_value() ? 0.5 : 1;
    }
    return cost;
  };
  Plan start;
  start.stages = {{0, graph.nodes.size(), {DeviceId(2)}}};
  const std::vector<TriedPlan> tried = anneal(space, {start}, {.steps = 4000, .seed = 2});
  ASSERT_FALSE(tried.empty());
  EXPECT_EQ(tried[0].plan.stages, wanted.stages);
  EXPECT_EQ(tried[0].plan.micro_batches, 2);
  EXPECT_EQ(tried[0].cost, 1);
  EXPECT_EQ(asked, tried.size());  // each plan once
  EXPECT_LE(asked, 4000u);
  for (size_t i = 1; i < tried.size(); ++i) EXPECT_GE(tried[i].cost, tried[i - 1].cost);
}

TEST(Anneal, DependsOnSeedAndBudgetOnly) {
  const Graph graph = convolutions(5);
  AnnealSpace space = space_of(graph, 3);
  space.cost = [](const Plan& plan) {
    double cost = plan.micro_batches;
    for (const Stage& stage : plan.stages)
      cost +=
          static_cast<double>(stage.end * (1 + stage.devices[0].index())) / static_cast<double>(stage.devices.size());
    return cost;
  };
  Plan start;
  start.stages = {{0, graph.nodes.size(), {DeviceId(1)}}};
  const auto plans = [&](uint64_t seed, size_t steps) {
    std::vector<Plan> all;
    for (TriedPlan& tried : anneal(space, {start}, {.steps = steps, .seed = seed}))
      all.push_back(std::move(tried.plan));
    return all;
  };
  EXPECT_EQ(plans(1, 200), plans(1, 200));
  EXPECT_NE(plans(1, 200), plans(2, 200));
  EXPECT_LE(plans(1, 50).size(), 50u);
}

TEST(Anneal, LeavesAStartThatCannotBe) {
  const Graph graph = convolutions(4);
  AnnealSpace space = space_of(graph, 2);
  space.cost = [](const Plan& plan) {
    return plan.stages.size() == 1 ? std::numeric_limits<double>::infinity() : static_cast<double>(plan.stages[0].end);
  };
  Plan start;
  start.stages = {{0, graph.nodes.size(), {DeviceId(0)}}};
  const std::vector<TriedPlan> tried = anneal(space, {start}, {.steps = 200, .seed = 1});
  ASSERT_FALSE(tried.empty());
  EXPECT_EQ(tried[0].plan.stages[0].end, 1u);
}

}  // namespace
}  // namespace nlsplit
