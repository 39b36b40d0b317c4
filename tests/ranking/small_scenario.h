// simple_cnn on two machines, in a few words, for tests that turn one screw.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ranking/ranking.h"

namespace nlsplit::testing {

struct Screws {
  std::string bandwidth = "1Gbps", latency = "50us", memory = "1GiB", memory_b = "1GiB";
  std::string compute = "60GFLOPS", search = "{}", plans = "{mine: [..relu1@A, rest@B]}", model = "zoo:simple_cnn";
};

inline Scenario small_scenario(const Screws& s = {}) {
  auto scenario = parse_scenario(
      fmt::format(R"(model: {}
workload: {{batch: 8, micro_batches: [1, 2, 4]}}
devices:
  A: {{host: a, memory: {}, costs: {{roofline: {{compute: {}, memory: 10GBps}}}}}}
  B: {{host: b, memory: {}, costs: {{roofline: {{compute: {}, memory: 10GBps}}}}}}
links:
  - {{between: [a, b], bandwidth: {}, latency: {}}}
source: a
sink: a
search: {}
plans: {}
)",
                  s.model, s.memory, s.compute, s.memory_b, s.compute, s.bandwidth, s.latency, s.search, s.plans),
      "small.yaml");
  EXPECT_TRUE(scenario.ok()) << scenario.error().to_string();
  return *scenario;
}

struct Ranked {
  Scenario scenario;
  Model model;
  Ranking ranking;
};

inline Ranked rank(const Screws& screws = {}, const RankOptions& options = {}) {
  Ranked ranked{small_scenario(screws), {}, {}};
  auto model = load_model(ranked.scenario);
  EXPECT_TRUE(model.ok());
  ranked.model = std::move(model).value();
  auto ranking = rank_plans(ranked.scenario, ranked.model, options);
  EXPECT_TRUE(ranking.ok()) << ranking.error().to_string();
  ranked.ranking = std::move(ranking).value();
  return ranked;
}

}  // namespace nlsplit::testing
