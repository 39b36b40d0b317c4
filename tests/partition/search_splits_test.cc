// Candidates whose stages are split inside their layers.
#include "partition/search_splits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "partition/chains.h"
#include "partition/expand.h"
#include "partition/split_shares.h"

namespace nlsplit {
namespace {

using namespace testing;

// A stage split inside its layers: a lower bound, so never above what equal shares without a message would take.
TEST(Score, ASplitStageTakesItsWorkOverTheSumOfSpeeds) {
  const Graph graph = chain(4, 1000);
  const Cluster cluster = star(3, 1e3);  // links so slow that any message would be seen
  const SearchCosts costs = costs_of(4, {1, 2, 2}, 4000, 6);
  const Network network = make_network(cluster, HostId(0), HostId(0));
  const Scorer scorer(cluster, network, HostId(0), HostId(0), costs, find_crossings(graph, DType::f32));
  // Alone 4, 8 and 8 s: together 1 / (1/4 + 1/8 + 1/8) = 2 s for each of 6 micro-batches.
  const Split three{SplitAxis::batch, false, {2, 1, 1}};
  EXPECT_DOUBLE_EQ(scorer.bound({{0, 4, {DeviceId(0), DeviceId(1), DeviceId(2)}, three}}), 12);
  // Two of the layers split over B and C (2 s each together), then A (2 s): a pipeline of 2 + 2 s, and 5 times 2 more.
  const Split two{SplitAxis::batch, false, {1, 1}};
  EXPECT_DOUBLE_EQ(scorer.bound({{0, 2, {DeviceId(1), DeviceId(2)}, two}, {2, 4, {DeviceId(0)}}}), 14);
  // Four devices in two groups that take turns.
  const Cluster four = star(4, 1e3);
  const SearchCosts equal = costs_of(4, {1, 1, 1, 1}, 4000, 6);
  const Network network4 = make_network(four, HostId(0), HostId(0));
  const Scorer scorer4(four, network4, HostId(0), HostId(0), equal, find_crossings(graph, DType::f32));
  // 2 s for each group, three micro-batches each.
  EXPECT_DOUBLE_EQ(scorer4.bound({{0, 4, {DeviceId(0), DeviceId(1), DeviceId(2), DeviceId(3)}, two}}), 6);
}

class SearchSplits : public ::testing::Test {
 protected:
  std::vector<ScoredPlan> found(size_t most) {
    const SearchResult layers = search_layers(graph_, cluster_, HostId(0), HostId(0), costs_, options_).value();
    const Network network = make_network(cluster_, HostId(0), HostId(0));
    PlanScorer scorer(graph_, cluster_, network, HostId(0), HostId(0), costs_);
    return search_splits(graph_, cluster_, HostId(0), scorer, options_, layers, most,
                         [](const ScoredPlan& scored) { return scored.bound_seconds; });
  }

  Graph graph_ = convolutions(6);
  Cluster cluster_ = star(3, 1e7);
  SearchCosts costs_ = costs_of(6, {1, 2, 2}, 4 * 8 * 16 * 16 * 4, 2);
  SearchOptions options_;
};

TEST_F(SearchSplits, NoneIfNotAskedFor) { EXPECT_TRUE(found(100).empty()); }

TEST_F(SearchSplits, AreSoundAndOnTheAxesAskedFor) {
  options_.axes = {SplitAxis::height, SplitAxis::batch};
  const std::vector<ScoredPlan> plans = found(60);
  EXPECT_LE(plans.size(), 60u);
  ASSERT_GT(plans.size(), 20u);
  std::set<std::pair<SplitAxis, bool>> kinds;
  std::set<size_t> counts;
  for (const ScoredPlan& scored : plans) {
    EXPECT_TRUE(check_plan(scored.plan, graph_, cluster_, 4).ok());
    EXPECT_TRUE(has_splits(scored.plan));
    for (const Stage& stage : scored.plan.stages) {
      if (!stage.split) continue;
      const std::vector<SplitAxis> can = applicable_axes(graph_, stage.begin, stage.end);
      EXPECT_NE(std::ranges::find(can, stage.split->axis), can.end());
      kinds.insert({stage.split->axis, stage.split->recompute_halo});
      counts.insert(stage.devices.size());
      EXPECT_EQ(stage.split->shares, shares_by_speed(costs_, stage));
    }
  }
  EXPECT_EQ(kinds, (std::set<std::pair<SplitAxis, bool>>{
                       {SplitAxis::batch, false}, {SplitAxis::height, false}, {SplitAxis::height, true}}));
  EXPECT_EQ(counts, (std::set<size_t>{2, 3}));
  // A twice as fast as B: it has twice the share.
  EXPECT_TRUE(std::ranges::any_of(plans, [](const ScoredPlan& scored) {
    const Stage& first = scored.plan.stages[0];
    return first.split && first.split->shares == std::vector<int64_t>{2, 1};
  }));
}

// A and D are as fast as each other, B and C too: A+B and D+C take turns, one third to the slower ones.
TEST_F(SearchSplits, EquallyFastGroupsTakeTurns) {
  cluster_ = star(4, 1e7);
  costs_ = costs_of(6, {1, 2, 2, 1}, 4 * 8 * 16 * 16 * 4, 2);
  options_.axes = {SplitAxis::height};
  size_t pairs = 0;
  for (const ScoredPlan& scored : found(200)) {
    EXPECT_TRUE(check_plan(scored.plan, graph_, cluster_, 4).ok());
    for (const Stage& stage : scored.plan.stages) {
      if (!stage.split || stage.split->shares.size() == stage.devices.size()) continue;
      ++pairs;
      EXPECT_EQ(stage.split->shares, (std::vector<int64_t>{2, 1}));
      EXPECT_EQ(stage.devices, (std::vector<DeviceId>{DeviceId(0), DeviceId(1), DeviceId(3), DeviceId(2)}));
    }
  }
  EXPECT_GT(pairs, 0u);
  // Of one micro-batch nobody else has a turn.
  costs_.micro_batches = 1;
  for (const ScoredPlan& scored : found(200)) {
    for (const Stage& stage : scored.plan.stages)
      EXPECT_TRUE(!stage.split || stage.split->shares.size() == stage.devices.size());
  }
}

TEST_F(SearchSplits, KeepToTheLimits) {
  options_.axes = {SplitAxis::batch};
  options_.max_devices = 2;
  options_.max_stages = 1;
  for (const ScoredPlan& scored : found(100)) {
    EXPECT_EQ(scored.plan.stages.size(), 1u);
    EXPECT_EQ(scored.plan.stages[0].devices.size(), 2u);
  }
}

}  // namespace
}  // namespace nlsplit
