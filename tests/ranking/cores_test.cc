// A ranking on several cores is the ranking on one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "graph/passes/passes.h"
#include "graph/zoo/net.h"
#include "ranking/ranking.h"

namespace nlsplit {
namespace {

// Branches side by side, each a layer or two of other widths, joined in the end: wherever such a network is cut, many
// values cross.
Model branches(int64_t count) {
  ZooNet net("branches", 1);
  const ValueId x = net.input({1, 16, 28, 28});
  std::vector<ValueId> ends;
  for (int64_t b = 0; b < count; ++b) {
    const std::string name = fmt::format("b{}", b);
    ValueId value = net.relu(name + ".relu1", net.conv(name + ".reduce", x, {8 + b % 5 * 8, 1}));
    if (b % 3 > 0) value = net.relu(name + ".relu2", net.conv(name + ".wide", value, {16 + b % 7 * 8, 3, 1, 1}));
    ends.push_back(net.conv(name + ".out", value, {4, 1}));
  }
  const ValueId joined = net.conv("join", net.concat("concat", std::move(ends)), {16, 3, 1, 1});
  const ValueId flat = net.flatten("flatten", net.global_average_pool("pool", joined));
  Model model = std::move(net).finish(flat);
  auto graph = optimize(model.graph, model.weights);
  EXPECT_TRUE(graph.ok()) << graph.error().to_string();
  model.graph = std::move(graph).value();
  return model;
}

Scenario eight_machines(const std::string& search) {
  std::string text = "model: zoo:simple_cnn\nworkload: {batch: 32, micro_batches: [16]}\ndevices:\n";
  const double speeds[] = {1, 0.5, 0.25, 0.75};
  for (int i = 0; i < 8; ++i) {
    const double speed = speeds[i % 4];
    text +=
        fmt::format("  D{}: {{host: h{}, memory: 1GiB, costs: {{roofline: {{compute: {}GFLOPS, memory: {}GBps}}}}}}\n",
                    i, i, 60 * speed, 10 * speed);
  }
  text += "switches: [sw]\nlinks:\n";
  for (int i = 0; i < 8; ++i) text += fmt::format("  - {{between: [h{}, sw], bandwidth: 1Gbps, latency: 50us}}\n", i);
  text += fmt::format("source: h0\nsink: h0\nsearch: {}\n", search);
  auto scenario = parse_scenario(text, "eight.yaml");
  EXPECT_TRUE(scenario.ok()) << scenario.error().to_string();
  return std::move(scenario).value();
}

Ranking ranked(const Model& model, size_t workers, const std::string& search) {
  auto ranking = rank_plans(eight_machines(search), model, {.workers = workers});
  EXPECT_TRUE(ranking.ok()) << ranking.error().to_string();
  return std::move(ranking).value();
}

void expect_same_on_any_number(const Model& model, const std::string& search) {
  SCOPED_TRACE(search);
  const Ranking one = ranked(model, 1, search);
  ASSERT_GT(one.judged.size(), 40u);
  for (const size_t workers : {2u, 7u}) {
    const Ranking many = ranked(model, workers, search);
    EXPECT_EQ(many.considered, one.considered);
    EXPECT_EQ(many.bound, one.bound);
    EXPECT_EQ(many.split_inside, one.split_inside);
    ASSERT_EQ(many.judged.size(), one.judged.size());
    for (size_t i = 0; i < one.judged.size(); ++i) {
      EXPECT_EQ(many.judged[i].plan, one.judged[i].plan) << i;
      EXPECT_EQ(many.judged[i].estimate.makespan_s, one.judged[i].estimate.makespan_s) << i;
    }
  }
}

TEST(RankingOnCores, TheAnswerIsTheSameOnAnyNumber) {
  expect_same_on_any_number(branches(6), "{max_candidates: 500}");
  // The best plans are changed, several at once.
  expect_same_on_any_number(branches(3),
                            "{max_candidates: 200, splits: [layer, replicate, height], objective: latency}");
}

}  // namespace
}  // namespace nlsplit
