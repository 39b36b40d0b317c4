// Today's rules do what their papers say, each seen against every plan that it may choose from.
#include "partition/baselines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "base/random.h"
#include "partition/baseline_metis.h"
#include "partition/chains.h"

namespace nlsplit {
namespace {

using namespace testing;

std::vector<Stage> stages_of(std::string_view name, const Graph& graph, const Cluster& cluster,
                             const SearchCosts& costs) {
  for (const Baseline& baseline : baselines()) {
    if (baseline.name == name) return baseline.stages(graph, cluster, costs);
  }
  ADD_FAILURE() << "no rule " << name;
  return {};
}

std::vector<size_t> sizes(const std::vector<Stage>& stages) {
  std::vector<size_t> all;
  for (const Stage& stage : stages) all.push_back(stage.end - stage.begin);
  return all;
}

// Every way to cut `layers` layers into stages of `devices` devices at most: calls with ends and replicas.
void every_split(size_t layers, size_t devices, size_t most_replicas, std::vector<size_t>& ends,
                 std::vector<size_t>& replicas,
                 const std::function<void(const std::vector<size_t>&, const std::vector<size_t>&)>& look) {
  const size_t begin = ends.empty() ? 0 : ends.back();
  if (begin == layers) return look(ends, replicas);
  for (size_t end = begin + 1; end <= layers; ++end) {
    for (size_t r = 1; r <= std::min(devices, most_replicas); ++r) {
      ends.push_back(end);
      replicas.push_back(r);
      every_split(layers, devices - r, most_replicas, ends, replicas, look);
      ends.pop_back();
      replicas.pop_back();
    }
  }
}

// The slowest stage or transfer, a stage's time shared by its replicas.
double slowest_of(const std::vector<size_t>& ends, const std::vector<size_t>& replicas, const SearchCosts& costs,
                  double seconds_per_byte) {
  double slowest = 0;
  for (size_t s = 0, begin = 0; s < ends.size(); begin = ends[s++]) {
    double sum = 0;
    for (size_t n = begin; n < ends[s]; ++n) sum += costs.node_seconds[0][n];
    slowest = std::max(slowest, sum / static_cast<double>(replicas[s]));
    if (begin > 0) slowest = std::max(slowest, costs.cut_bytes[begin] * seconds_per_byte);
  }
  return slowest;
}

double slowest_of(const std::vector<Stage>& stages, const SearchCosts& costs, double seconds_per_byte) {
  std::vector<size_t> ends, replicas;
  for (const Stage& stage : stages) {
    ends.push_back(stage.end);
    replicas.push_back(stage.devices.size());
  }
  return slowest_of(ends, replicas, costs, seconds_per_byte);
}

double least_of_all(size_t layers, size_t devices, size_t most_replicas, const SearchCosts& costs,
                    double seconds_per_byte) {
  double least = std::numeric_limits<double>::infinity();
  std::vector<size_t> ends, replicas;
  every_split(layers, devices, most_replicas, ends, replicas, [&](const auto& e, const auto& r) {
    least = std::min(least, slowest_of(e, r, costs, seconds_per_byte));
  });
  return least;
}

SearchCosts random_costs(Random& random, size_t layers, size_t devices, int micro_batches) {
  SearchCosts costs = costs_of(layers, std::vector<double>(devices, 1.0), 0, micro_batches);
  for (std::vector<double>& row : costs.node_seconds) {
    for (double& seconds : row) seconds = random.uniform(0.1, 3);
  }
  for (double& bytes : costs.cut_bytes) bytes = random.uniform(0, 4e6);
  return costs;
}

TEST(Baselines, EvenLayersAreEven) {
  const SearchCosts costs = costs_of(10, {1, 1, 1, 1}, 4, 4);
  EXPECT_EQ(sizes(stages_of("even-layers", chain(10, 1), star(4, 1e6), costs)), (std::vector<size_t>{3, 2, 3, 2}));
  EXPECT_EQ(sizes(stages_of("even-layers", chain(2, 1), star(4, 1e6), costs)), (std::vector<size_t>{1, 1}));
}

TEST(Baselines, MemoryDecidesHowManyLayers) {
  Cluster cluster = star(3, 1e6);
  cluster.devices[1].memory = bytes(2 << 29);
  cluster.devices[0].memory = cluster.devices[2].memory = bytes(1 << 29);
  EXPECT_EQ(sizes(stages_of("memory-proportional", chain(8, 1), cluster, costs_of(8, {1, 1, 1}, 4, 4))),
            (std::vector<size_t>{2, 4, 2}));
}

TEST(Baselines, BalanceComputeIsTheBestOfAllCuts) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    const size_t layers = 1 + random.below(8), devices = 1 + random.below(4);
    const SearchCosts costs = random_costs(random, layers, devices, 4);
    const std::vector<Stage> stages = stages_of("balance-compute", chain(layers, 1), star(devices, 1e6), costs);
    Plan plan;
    plan.stages = stages;
    plan.micro_batches = 4;
    EXPECT_TRUE(check_plan(plan, chain(layers, 1), star(devices, 1e6), 4).ok());
    EXPECT_NEAR(slowest_of(stages, costs, 0), least_of_all(layers, devices, 1, costs, 0), 1e-12) << "seed " << seed;
  }
}

TEST(Baselines, PipeDreamIsTheBestOfAllCutsAndReplicas) {
  size_t replicated = 0, piped = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    const size_t layers = 1 + random.below(6), devices = 1 + random.below(4);
    const double bandwidth = 1e6;
    const SearchCosts costs = random_costs(random, layers, devices, 3);
    const std::vector<Stage> stages = stages_of("pipedream", chain(layers, 1), star(devices, bandwidth), costs);
    Plan plan;
    plan.stages = stages;
    plan.micro_batches = 3;
    EXPECT_TRUE(check_plan(plan, chain(layers, 1), star(devices, bandwidth), 3).ok());
    EXPECT_NEAR(slowest_of(stages, costs, 1 / bandwidth), least_of_all(layers, devices, 3, costs, 1 / bandwidth), 1e-12)
        << "seed " << seed;
    replicated += stages[0].devices.size() > 1;
    piped += stages.size() > 1;
  }
  EXPECT_GT(replicated, 5u);
  EXPECT_GT(piped, 5u);
}

TEST(Baselines, PipeDreamHasNoPlanWhereNothingConnects) {
  Cluster cluster = star(2, 1e6);
  cluster.links.clear();
  EXPECT_TRUE(stages_of("pipedream", chain(3, 1), cluster, costs_of(3, {1, 1}, 4, 1)).empty());
}

// Of a long model only some cuts are looked at: where the fewest bytes cross.
TEST(Baselines, PipeDreamCutsALongModelWhereLittleCrosses) {
  SearchCosts costs = costs_of(600, {1, 1}, 1e6, 1);
  costs.cut_bytes[301] = 1;
  const std::vector<Stage> stages = stages_of("pipedream", chain(600, 1), star(2, 1e4), costs);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].end, 301u);
}

TEST(Metis, PartsComeInTheOrderOfTheirLayers) {
  EXPECT_EQ(parts_in_order({2, 2, 0, 2, 0, 1}, 3), (std::vector<size_t>{2, 0, 1}));
  EXPECT_EQ(parts_in_order({1, 1}, 3), (std::vector<size_t>{1, 0, 2}));  // empty ones last
}

// Against every way to cut the order into runs.
TEST(Metis, TheLightestLayersMoveUntilPartsAreRuns) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const size_t layers = 1 + random.below(7), parts = 1 + random.below(3);
    std::vector<size_t> part_of(layers);
    std::vector<double> weight(layers);
    for (size_t i = 0; i < layers; ++i) {
      part_of[i] = random.below(parts);
      weight[i] = random.uniform(1, 2);
    }
    const std::vector<size_t> order = parts_in_order(part_of, parts);
    const auto place = [&](size_t part) { return std::ranges::find(order, part) - order.begin(); };
    const auto moved = [&](const std::vector<size_t>& other) {
      double sum = 0;
      for (size_t i = 0; i < layers; ++i) sum += other[i] == part_of[i] ? 0 : weight[i];
      return sum;
    };
    double least = std::numeric_limits<double>::infinity();
    std::vector<size_t> runs(layers, 0);
    const std::function<void(size_t, size_t)> every = [&](size_t i, size_t from) {
      if (i == layers) {
        least = std::min(least, moved(runs));
        return;
      }
      for (size_t p = from; p < parts; ++p) {
        runs[i] = order[p];
        every(i + 1, p);
      }
    };
    every(0, 0);
    const std::vector<size_t> got = contiguous_parts(part_of, order, weight);
    EXPECT_NEAR(moved(got), least, 1e-12) << "seed " << seed;
    for (size_t i = 1; i < layers; ++i) EXPECT_LE(place(got[i - 1]), place(got[i])) << "seed " << seed;
  }
}

TEST(Metis, CutsAChainIntoOneRunForEachDevice) {
  if (!has_metis()) GTEST_SKIP() << "built without METIS";
  // Equal layers, and A twice as fast as B and C: half of them on A.
  const Graph graph = chain(40, 100);
  const SearchCosts costs = costs_of(40, {1, 2, 2}, 400, 4);
  const std::vector<Stage> stages = metis_stages(graph, star(3, 1e6), costs);
  Plan plan;
  plan.stages = stages;
  plan.micro_batches = 4;
  EXPECT_TRUE(check_plan(plan, graph, star(3, 1e6), 4).ok());
  ASSERT_EQ(stages.size(), 3u);
  for (const Stage& stage : stages) {
    const size_t layers = stage.end - stage.begin;
    EXPECT_NEAR(static_cast<double>(layers), stage.devices[0] == DeviceId(0) ? 20 : 10, 2) << layers;
  }
  EXPECT_EQ(metis_stages(graph, star(3, 1e6), costs), stages);
  EXPECT_EQ(sizes(metis_stages(chain(3, 1), star(1, 1e6), costs_of(3, {1}, 4, 1))), (std::vector<size_t>{3}));
}

// One layer heavier than all others together, in 16 parts: METIS complains, but not where answers are printed.
TEST(Metis, IsQuiet) {
  if (!has_metis()) GTEST_SKIP() << "built without METIS";
  SearchCosts costs = costs_of(40, std::vector<double>(16, 1), 400, 4);
  for (std::vector<double>& seconds : costs.node_seconds) seconds[20] = 100;
  ::testing::internal::CaptureStdout();
  const std::vector<Stage> stages = metis_stages(chain(40, 100), star(16, 1e6), costs);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_FALSE(stages.empty());
}

TEST(Metis, SaysWhenItIsNotThere) {
  if (has_metis()) GTEST_SKIP() << "built with METIS";
  EXPECT_TRUE(stages_of("metis", chain(3, 1), star(2, 1e6), costs_of(3, {1, 1}, 4, 1)).empty());
  EXPECT_NE(baselines()[4].why_none.find("without METIS"), std::string_view::npos);
}

}  // namespace
}  // namespace nlsplit
