#include "report/ranking/ranking_report.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ranking/small_scenario.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string text_of(const Screws& screws) {
  const Ranked ranked = rank(screws);
  return ranking_text(ranked.ranking, ranked.scenario);
}

TEST(RankingText, SplittingCannotPayOverASlowLink) {
  EXPECT_THAT(
      text_of({.bandwidth = "1kbps", .compute = "100MFLOPS"}),
      AllOf(HasSubstr("\nverdict  Splitting is worth it for memory ("),
            HasSubstr("but not for throughput (one device makes "), HasSubstr("nor for latency (one device is "),
            HasSubstr("\n         The links stand in the way: with more than "),
            HasSubstr(" on each, splitting would beat one device.\n")));
}

TEST(RankingText, LatencyThatNoBandwidthHelps) {
  EXPECT_THAT(text_of({.latency = "1s", .compute = "100MFLOPS"}),
              HasSubstr("The time messages need whatever the bandwidth"));
}

TEST(RankingText, TheOnlyWay) {
  EXPECT_THAT(
      text_of({.memory = "60MiB", .memory_b = "60MiB", .plans = "{}", .model = "zoo:resnet18"}),
      AllOf(HasSubstr("\nverdict  Splitting is the only way: no device can hold the whole model.\n"),
            HasSubstr("plans do not fit: A has 60 MiB, the most modest of them needs "), HasSubstr("the only way")));
}

TEST(RankingText, NothingWasAskedFor) {
  EXPECT_THAT(text_of({.search = "{splits: []}", .plans = "{}"}),
              HasSubstr("\nverdict  No split into layers fits or was asked for"));
}

// Beyond the top each plan of one's own stands once, with its best figures.
TEST(RankingText, RowsAreTheTopAndTheBestOfEachOwnPlan) {
  const std::string text = text_of({.search = "{keep: 2}"});
  size_t own = 0;
  for (size_t at = 0; (at = text.find("mine: ", at)) != std::string::npos; ++at) ++own;
  EXPECT_EQ(own, 1u) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("\n 1  "), HasSubstr("\n 2  "), Not(HasSubstr("\n 3  "))));
  EXPECT_THAT(text, HasSubstr("\nnext     mpirun -np 1 nlbench run small.yaml --plan 1 --check\n"));
}

TEST(RankingText, ColumnsStandUnderEachOther) {
  const std::string text = text_of({});
  const size_t head = text.find("\n #  plan"), end = text.find("\n\n", head + 1);
  ASSERT_NE(head, std::string::npos) << text;
  const std::string table = text.substr(head + 1, end - head);
  const size_t schedule = table.find("schedule");
  size_t rows = 0;
  for (size_t at = 0, next; at < table.size(); at = next + 1, ++rows) {
    next = std::min(table.find('\n', at), table.size());
    if (rows < 2) continue;
    EXPECT_EQ(table.substr(at + schedule, 9), "streaming") << table;
  }
  EXPECT_GE(rows, 12u);
}

TEST(RankingJson, HoldsAllThatTheVerdictSpeaksOf) {
  using nlohmann::json;
  const Ranked ranked = rank({.search = "{keep: 1}"});
  const json answer = json::parse(ranking_json(ranked.ranking, ranked.scenario, ranked.model.graph));
  EXPECT_EQ(answer.at("format"), "nlsplit-ranking");
  EXPECT_EQ(answer.at("interrupted"), false);
  EXPECT_EQ(answer.at("simulated"), ranked.ranking.judged.size());
  std::set<size_t> ranks;
  size_t own = 0;
  for (const json& plan : answer.at("plans")) {
    ranks.insert(plan.at("rank").get<size_t>());
    own += plan.at("own").get<bool>() ? 1 : 0;
    size_t layers = 0;
    for (const json& stage : plan.at("stages")) layers += stage.at("layers").size();
    EXPECT_EQ(layers, ranked.model.graph.nodes.size());
    const Estimate& e = ranked.ranking.judged[plan.at("rank").get<size_t>() - 1].estimate;
    EXPECT_EQ(plan.at("throughput_per_s"), e.throughput);
    EXPECT_EQ(plan.at("devices").size(), e.devices.size());
  }
  EXPECT_TRUE(ranks.contains(1));
  EXPECT_EQ(own, 3u);  // at each micro-batch count
  for (const char* respect : {"throughput", "latency", "memory"}) {
    for (const char* kind : {"split", "single", "copies"}) {
      EXPECT_TRUE(ranks.contains(answer.at("verdict").at(respect).at(kind).get<size_t>())) << respect << " " << kind;
    }
  }
}

TEST(RankingCsv, HasTheSamePlansAndAsManyFieldsInEachLine) {
  const Ranked ranked = rank({.search = "{keep: 1}"});
  const std::string csv = ranking_csv(ranked.ranking);
  EXPECT_TRUE(csv.starts_with("rank,name,plan,micro_batches,schedule,throughput_per_s,makespan_s,latency_mean_s,"))
      << csv;
  const auto plans =
      nlohmann::json::parse(ranking_json(ranked.ranking, ranked.scenario, ranked.model.graph)).at("plans");
  EXPECT_EQ(static_cast<size_t>(std::count(csv.begin(), csv.end(), '\n')), plans.size() + 1);
  for (size_t at = 0, end; at < csv.size(); at = end + 1) {
    end = csv.find('\n', at);
    EXPECT_EQ(std::count(csv.begin() + static_cast<long>(at), csv.begin() + static_cast<long>(end), ','), 14);
  }
}

}  // namespace
}  // namespace nlsplit
