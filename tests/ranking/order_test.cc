// The order of a ranking: never worse than a rule of today, and of plans that are equally good the one with more memory
// left first.
#include <gmock/gmock.h>

#include <map>

#include "partition/baselines.h"
#include "ranking/evaluate.h"
#include "ranking/small_scenario.h"
#include "testing/paths.h"

namespace nlsplit {
namespace {

using namespace testing;

double fullest_share(const Scenario& scenario, const Estimate& estimate) {
  double share = 0;
  for (const DeviceEstimate& device : estimate.devices) {
    const double has =
        static_cast<double>(scenario.cluster.device(scenario.cluster.find_device(device.name)).memory.value());
    share = std::max(share, static_cast<double>(device.memory.value()) / has);
  }
  return share;
}

TEST(Order, OfEquallyGoodPlansTheOneWithMoreMemoryLeftIsFirst) {
  const Ranked ranked = rank({.bandwidth = "100Gbps", .latency = "1us"});
  const std::vector<RankedPlan>& judged = ranked.ranking.judged;
  size_t groups = 0;
  for (size_t begin = 0; begin < judged.size(); ++groups) {
    double least = judged[begin].estimate.makespan_s;
    size_t end = begin;  // the group: all that follow and are as good as the best of them
    while (end < judged.size() && judged[end].estimate.makespan_s <= least * as_good) {
      least = std::min(least, judged[end].estimate.makespan_s);
      ++end;
    }
    for (size_t i = end; i < judged.size(); ++i) EXPECT_GT(judged[i].estimate.makespan_s, least) << i;
    begin = std::max(end, begin + 1);
  }
  EXPECT_GT(groups, 2u);
  // Somewhere the memory decided.
  bool decided = false;
  for (size_t i = 1; i < judged.size(); ++i) {
    if (judged[i].estimate.makespan_s >= judged[i - 1].estimate.makespan_s) continue;
    if (is_single(judged[i - 1].plan) && !is_single(judged[i].plan)) continue;  // one device needs no other
    decided = true;
    EXPECT_LE(fullest_share(ranked.scenario, judged[i - 1].estimate),
              fullest_share(ranked.scenario, judged[i].estimate));
  }
  EXPECT_TRUE(decided);
}

// Sixteen equal devices and a model that none of them holds: the layers of a transformer, evenly, or better. A search
// that keeps the most promising partial plans puts single nodes on the first devices here.
TEST(Order, IsNeverWorseThanARuleWhereNoDeviceHoldsTheModel) {
  std::string text =
      "model: \"zoo:llama?layers=20&hidden=512&heads=8&kv_heads=2&ffn=1536&vocab=2000&length=64\"\n"
      "workload: {batch: 8, micro_batches: [4, 8]}\ndevices:\n";
  std::string links = "switches: [sw]\nlinks:\n";
  for (int i = 0; i < 16; ++i) {
    text += fmt::format(
        "  D{}: {{host: h{}, memory: 64MiB, costs: {{roofline: {{compute: 20GFLOPS, memory: 10GBps}}}}}}\n", i, i);
    links += fmt::format("  - {{between: [h{}, sw], bandwidth: 1Gbps, latency: 20us}}\n", i);
  }
  const Scenario scenario = parse_scenario(text + links + "source: h0\nsink: h0\n", "sixteen.yaml").value();
  const Model model = load_model(scenario).value();
  const Ranking ranking = rank_plans(scenario, model, {.baselines = true}).value();
  ASSERT_EQ(ranking.baselines.size(), baselines().size());
  size_t timed = 0;
  for (const RankedBaseline& rule : ranking.baselines) {
    if (!rule.estimate) continue;
    ++timed;
    EXPECT_GE(rule.estimate->makespan_s * as_good, ranking.judged[0].estimate.makespan_s) << rule.name;
  }
  EXPECT_GE(timed, 3u);
  EXPECT_GT(ranking.baselines[0].estimate.value().makespan_s, 1.01 * ranking.judged[0].estimate.makespan_s);
}

// What the search has found of the scenarios that come with the program, in seconds a batch. Less is a reason to write
// it down here; more is a plan lost.
TEST(Order, BundledScenariosKeepTheirBestPlans) {
  const std::map<std::string, double> known = {{"dragonfly", 0.26824}, {"fat_tree", 0.26753}, {"racks", 0.10235},
                                               {"slow_link", 4.41469}, {"star", 0.11940},     {"torus", 0.19939},
                                               {"unequal", 2.03164},   {"wan", 1.21517},      {"wifi_boards", 1.99851}};
  for (const auto& [name, makespan_s] : known) {
    const auto scenario = read_scenario(fmt::format("{}/scenarios/{}.yaml", NLS_SOURCE_DIR, name));
    ASSERT_TRUE(scenario.ok()) << scenario.error().to_string();
    const auto model = load_model(*scenario);
    ASSERT_TRUE(model.ok()) << model.error().to_string();
    const auto ranking = rank_plans(*scenario, *model, {});
    ASSERT_TRUE(ranking.ok()) << ranking.error().to_string();
    EXPECT_LE(ranking->judged[0].estimate.makespan_s, makespan_s * 1.001) << name;
  }
}

}  // namespace
}  // namespace nlsplit
