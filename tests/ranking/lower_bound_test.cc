#include "ranking/lower_bound.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <numeric>

#include "base/random.h"
#include "partition/search.h"
#include "ranking/evaluate.h"
#include "ranking/small_scenario.h"

namespace nlsplit {
namespace {

using namespace testing;

TEST(LoadBound, OfDevicesThatDifferByAFactorIsFairShares) {
  // 10 s of work in three nodes; devices that take 1, 1 and 2 times as long do it in 10 / 2.5 s.
  const std::vector<double> slow = {4, 10, 6}, fast = {2, 5, 3};
  EXPECT_NEAR(load_bound({fast, fast, slow}, 0), 4, 1e-12);
  EXPECT_NEAR(load_bound({fast, fast, slow}, 2), 5, 1e-12);
  EXPECT_NEAR(load_bound({slow, fast}, 1), 10, 1e-12);
}

TEST(LoadBound, OfDevicesThatAreEachGoodAtSomething) {
  // Fairly shared: each does what it is good at, in 3 s.
  EXPECT_NEAR(load_bound({{3, 100}, {100, 3}}, 0), 3, 0.05);
}

// No assignment of nodes to devices is faster, whatever the times.
TEST(LoadBound, NoAssignmentIsFaster) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const size_t nodes = 1 + random.below(7), devices = 1 + random.below(4);
    std::vector<std::vector<double>> seconds(devices, std::vector<double>(nodes));
    for (auto& row : seconds) {
      for (double& s : row) s = random.below(8) == 0 ? 0.001 : random.uniform(0.1, 10);
    }
    size_t all = 1;
    for (size_t n = 0; n < nodes; ++n) all *= devices;
    double least = std::numeric_limits<double>::infinity();
    for (size_t code = 0; code < all; ++code) {
      std::vector<double> load(devices, 0);
      size_t rest = code;
      for (size_t n = 0; n < nodes; ++n, rest /= devices) load[rest % devices] += seconds[rest % devices][n];
      least = std::min(least, *std::ranges::max_element(load));
    }
    const double bound = load_bound(seconds, 0);
    EXPECT_LE(bound, least * (1 + 1e-12)) << "seed " << seed;
    EXPECT_GT(bound, 0.2 * least) << "seed " << seed;
  }
}

// Plans drawn from all there are, each simulated: none beats the bound. NLSPLIT_BOUND_PLANS: how many a case.
TEST(LowerBound, NoSimulatedPlanBeatsIt) {
  const char* asked = std::getenv("NLSPLIT_BOUND_PLANS");
  const size_t most = asked != nullptr ? static_cast<size_t>(std::atoll(asked)) : 60;
  size_t timed = 0;
  double closest = std::numeric_limits<double>::infinity();
  for (const std::string workload :
       {"batch: 8, micro_batches: [1, 2, 4, 8]", "batch: 8, micro_batches: [1, 2, 4], mode: training, optimizer: adam",
        "batch: 8, micro_batches: [8], mode: training, optimizer: sgd, recompute: full"}) {
    for (const std::string speed_b : {"60GFLOPS", "7GFLOPS"}) {
      for (const std::string bandwidth : {"1Mbps", "100Gbps"}) {
        SCOPED_TRACE(workload + " " + speed_b + " " + bandwidth);
        const Scenario scenario = parse_scenario(fmt::format(R"(model: zoo:simple_cnn
workload: {{{}}}
devices:
  A: {{host: a, memory: 1GiB, costs: {{roofline: {{compute: 60GFLOPS, memory: 10GBps}}}}}}
  B: {{host: b, memory: 1GiB, costs: {{roofline: {{compute: {}, memory: 3GBps}}}}}}
  C: {{host: b, memory: 1GiB, costs: {{roofline: {{compute: 20GFLOPS, memory: 10GBps}}}}}}
links:
  - {{between: [a, b], bandwidth: {}, latency: 1us}}
  - {{between: [b, b], bandwidth: 10GBps, latency: 1us}}
source: a
sink: a
)",
                                                             workload, speed_b, bandwidth),
                                                 "bound.yaml")
                                      .value();
        const Model model = load_model(scenario).value();
        RankOptions options;
        options.samples = most;
        options.workers = 1;
        const Ranking ranking = rank_plans(scenario, model, options).value();
        ASSERT_TRUE(ranking.bound.has_value());
        EXPECT_GT(*ranking.bound, 0);
        for (const RankedPlan& plan : ranking.judged) {
          ++timed;
          closest = std::min(closest, cost_of(ranking, plan.estimate) / *ranking.bound);
          EXPECT_GE(cost_of(ranking, plan.estimate), *ranking.bound) << plan.text;
        }
        EXPECT_NEAR(within_bound(ranking).value(), 1 - *ranking.bound / cost_of(ranking, ranking.judged[0].estimate),
                    1e-12);
      }
    }
  }
  EXPECT_GT(timed, 500u);
  EXPECT_LT(closest, 1.5);  // a bound of nothing would be sound too
  RecordProperty("plans", static_cast<int>(timed));
  std::printf("%zu plans, the closest is %.4f times the bound\n", timed, closest);
}

// Slow links, so that the bound of links is the larger one; and wherever it stops to look for a larger one.
TEST(LowerBound, IsTheSameOnSeveralCores) {
  const Scenario scenario = parse_scenario(R"(model: zoo:simple_cnn
workload: {batch: 64, micro_batches: [16]}
devices:
  A: {host: a, memory: 1GiB, costs: {roofline: {compute: 2GFLOPS, memory: 10GBps}}}
  B: {host: b, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}
links:
  - {between: [a, b], bandwidth: 20Mbps, latency: 1us}
source: a
sink: a
)",
                                           "cores.yaml")
                                .value();
  const Model model = load_model(scenario).value();
  const PreparedModel prepared = prepare_model(scenario, model.graph, 16).value();
  const CostTable costs = cost_table(scenario, model.graph.name);
  const auto bound = [&](double enough, size_t cores) {
    return lower_bound(prepared, scenario.cluster, costs, scenario.endpoints, 0, false, enough, cores)
        .value()
        .makespan_s;
  };
  const double without = bound(0, 1), all = bound(std::numeric_limits<double>::infinity(), 1);
  EXPECT_GT(all, 1.01 * without);
  for (const double part : {0.0, 0.2, 0.5, 0.9, 0.99, 2.0}) {
    const double enough = without + part * (all - without);
    for (const size_t cores : {2u, 3u, 7u}) EXPECT_EQ(bound(enough, cores), bound(enough, 1)) << part << " " << cores;
  }
}

// Small cases whose plans are all looked at: the best of them does not beat the bound, nor does any that is drawn.
// NLSPLIT_BOUND_CASES: how many; NLSPLIT_BOUND_FIRST: from which on.
TEST(LowerBound, TheBestOfAllPlansDoesNotBeatIt) {
  const char* asked = std::getenv("NLSPLIT_BOUND_CASES");
  const auto cases = static_cast<uint64_t>(asked != nullptr ? std::atoll(asked) : 10);
  const char* from = std::getenv("NLSPLIT_BOUND_FIRST");
  const auto begin = static_cast<uint64_t>(from != nullptr ? std::atoll(from) : 0);
  std::vector<double> gaps;
  size_t plans = 0;
  for (uint64_t seed = begin; seed < begin + cases; ++seed) {
    Random random(seed);
    const auto one_of = [&](std::initializer_list<const char*> words) {
      return std::string(words.begin()[random.below(words.size())]);
    };
    std::string devices, links;
    const size_t hosts = 2 + random.below(2);
    for (size_t d = 0; d < hosts; ++d) {
      devices += fmt::format(
          "  D{0}: {{host: h{0}, memory: 1GiB, costs: {{roofline: {{compute: {1:.1f}GFLOPS, memory: {2}}}}}}}\n", d,
          std::exp(random.uniform(0.5, 4)), one_of({"2GBps", "10GBps", "50GBps"}));
      links += fmt::format("  - {{between: [h{}, sw], bandwidth: {}, latency: {}}}\n", d,
                           one_of({"1Mbps", "100Mbps", "10Gbps"}), one_of({"1us", "1ms"}));
    }
    const std::string text = fmt::format(
        "model: {}\nworkload: {{batch: {}, micro_batches: [1, 2, 4]{}}}\ndevices:\n{}switches: [sw]\nlinks:\n{}"
        "source: h0\nsink: h{}\nsearch: {{method: exhaustive, splits: [layer, replicate], objective: {}}}\n",
        one_of({"zoo:simple_cnn", "'zoo:bert_base?layers=1&hidden=32&heads=2&ffn=64&length=8&vocab=50'"}),
        one_of({"4", "8", "16"}), one_of({"", "", ", mode: training, optimizer: sgd"}), devices, links,
        random.below(hosts), one_of({"throughput", "latency", "{throughput: 0.5, latency: 0.5}"}));
    SCOPED_TRACE(text);
    const Scenario scenario = parse_scenario(text, "small.yaml").value();
    const Model model = load_model(scenario).value();
    RankOptions options;
    options.samples = asked != nullptr ? 400 : 20;
    const Ranking ranking = rank_plans(scenario, model, options).value();
    ASSERT_TRUE(ranking.bound.has_value());
    for (const RankedPlan& plan : ranking.judged)
      EXPECT_GE(cost_of(ranking, plan.estimate), *ranking.bound) << plan.text;
    plans += ranking.judged.size();
    gaps.push_back(cost_of(ranking, ranking.judged[0].estimate) / *ranking.bound - 1);
  }
  std::ranges::sort(gaps);
  std::printf("%zu cases, %zu plans; the best plan is %.1f %% above the bound in the median, %.1f %% in 9 of 10\n",
              gaps.size(), plans, 100 * gaps[gaps.size() / 2], 100 * gaps[gaps.size() * 9 / 10]);
}

// Over a slow link one device is best, and the bound knows it: two would take half as long.
TEST(LowerBound, KnowsTheLinksOfTheHostWithTheInputs) {
  const Ranking ranking = rank({.bandwidth = "1Mbps"}).ranking;
  EXPECT_EQ(kind_of(ranking.judged[0].plan), PlanKind::single);
  EXPECT_LT(within_bound(ranking).value(), 0.1);
}

// Splits inside layers share a node among devices; and a latency is no less than the longest path.
TEST(LowerBound, HoldsForSplitsInsideLayersAndForLatencies) {
  for (const std::string objective : {"throughput", "latency", "{throughput: 0.5, latency: 0.5}"}) {
    const Ranking ranking =
        rank({.bandwidth = "100Gbps",
              .latency = "0s",
              .search = "{splits: [layer, replicate, batch, height, channels, tensor], objective: " + objective + "}"},
             {.samples = 40})
            .ranking;
    ASSERT_TRUE(ranking.bound.has_value());
    for (const RankedPlan& plan : ranking.judged)
      EXPECT_GE(cost_of(ranking, plan.estimate), *ranking.bound) << plan.text;
  }
}

}  // namespace
}  // namespace nlsplit
