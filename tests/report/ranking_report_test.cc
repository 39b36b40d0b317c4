#include "report/ranking/ranking_report.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "ranking/small_scenario.h"
#include "report/ranking/breakdown_report.h"
#include "report/table.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::ContainsRegex;
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

// Replicas wait for whole images on the link, a split sends less.
TEST(RankingText, ASplitThatWinsIsHeldAgainstReplicasToo) {
  EXPECT_THAT(
      text_of({.bandwidth = "100Mbps", .compute = "12GFLOPS", .plans = "{}", .model = "zoo:mobilenet_v2"}),
      ContainsRegex("\nverdict  Splitting is worth it for throughput \\([0-9.]+x one device, [0-9.]+x replicas\\)"));
}

TEST(RankingText, LatencyThatNoBandwidthHelps) {
  EXPECT_THAT(text_of({.latency = "1s", .compute = "100MFLOPS"}),
              HasSubstr("The time messages need whatever the bandwidth"));
}

TEST(RankingText, TheOnlyWay) {
  EXPECT_THAT(
      text_of({.memory = "60MiB", .memory_b = "60MiB", .plans = "{}", .model = "zoo:resnet18"}),
      AllOf(HasSubstr("\nverdict  Splitting is the only way: no device can hold the whole model.\n"),
            HasSubstr("plans do not fit: A has 60 MiB, the smallest of them needs "), HasSubstr("the only way")));
}

TEST(RankingText, OfTrainingWhatHasNoScheduleAndWhy) {
  Ranked ranked = rank();
  ranked.ranking.unscheduled = 3;
  ranked.ranking.why_unscheduled = "schedule zb_v needs 2p stages";
  EXPECT_THAT(ranking_text(ranked.ranking, ranked.scenario),
              HasSubstr("\n3 plans without a schedule, the first because: schedule zb_v needs 2p stages\n"));
  ranked.scenario.training.emplace();
  const auto file = nlohmann::json::parse(ranking_json(ranked.ranking, ranked.scenario, ranked.model.graph));
  EXPECT_EQ(file.at("training").at("first_unscheduled_because"), "schedule zb_v needs 2p stages");
  EXPECT_THAT(ranking_html(ranked.ranking, ranked.scenario), HasSubstr("<h1>training simple_cnn, batch 8 on "));
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
  EXPECT_THAT(text, HasSubstr("\nnext     nlbench run small.yaml --plan 1 --transport threads --check\n"));
}

TEST(RankingText, SplitPlansAndWhereTheyCannotBe) {
  const Ranked ranked = rank({.plans = "{pair: {stages: [rest@batch(A:2+B)], micro_batches: [1, 8]}}"});
  const std::string text = ranking_text(ranked.ranking, ranked.scenario);
  EXPECT_THAT(text, AllOf(HasSubstr("pair: batch(A:2+B) all"),
                          HasSubstr("\nnote     pair cannot be run in 8 micro-batches: ")));
  const auto json = nlohmann::json::parse(ranking_json(ranked.ranking, ranked.scenario, ranked.model.graph));
  ASSERT_EQ(json.at("own_left_out").size(), 1u);
  EXPECT_EQ(json.at("own_left_out").at(0).at("micro_batches"), 8);
  size_t found = 0;
  for (const auto& plan : json.at("plans")) {
    if (plan.at("name") != "pair") continue;
    ++found;
    const auto& split = plan.at("stages").at(0).at("split");
    EXPECT_EQ(split.at("axis"), "batch");
    EXPECT_EQ(split.at("shares"), (nlohmann::json{2, 1}));
    EXPECT_EQ(split.at("recompute_halo"), false);
    EXPECT_EQ(plan.at("plan").at(0), "rest@batch(A:2+B)");
  }
  EXPECT_EQ(found, 1u);
}

// A deep network has a note for every layer that had to be gathered: only the first ones in the text, all in the JSON.
TEST(RankingText, NotesOfOwnPlansOnly) {
  Ranked ranked = rank();
  const auto own = std::ranges::find_if(ranked.ranking.judged, [](const RankedPlan& plan) { return plan.own; });
  const auto found = std::ranges::find_if(ranked.ranking.judged, [](const RankedPlan& plan) { return !plan.own; });
  found->notes.push_back({"a note of a found plan"});
  for (int i = 0; i < 9; ++i) own->notes.push_back({fmt::format("layer {} was gathered", i)});
  const std::string text = ranking_text(ranked.ranking, ranked.scenario);
  EXPECT_THAT(text, AllOf(HasSubstr("\nnote     mine: layer 5 was gathered\n"), Not(HasSubstr("layer 6 was gathered")),
                          HasSubstr("\nnote     mine: and 3 more such notes, all of them with --json\n"),
                          Not(HasSubstr("a note of a found plan"))));
  const std::string json = ranking_json(ranked.ranking, ranked.scenario, ranked.model.graph);
  EXPECT_THAT(json, AllOf(HasSubstr("layer 8 was gathered"), HasSubstr("a note of a found plan")));
}

TEST(RankingText, TheSameOfManyLayersIsSaidOnce) {
  Ranked ranked = rank();
  const auto own = std::ranges::find_if(ranked.ranking.judged, [](const RankedPlan& plan) { return plan.own; });
  for (int i = 0; i < 9; ++i) own->notes.push_back({fmt::format("Softmax 'p{}' is gathered", i)});
  own->notes.push_back({"Conv 'c' is gathered"});
  EXPECT_THAT(ranking_text(ranked.ranking, ranked.scenario),
              AllOf(HasSubstr("\nnote     mine: Softmax 'p0' is gathered (and so for 8 more layers)\n"),
                    Not(HasSubstr("'p1'")), HasSubstr("\nnote     mine: Conv 'c' is gathered\n")));
}

TEST(RankingText, DevicesThatLackTheSameShareALine) {
  Ranked ranked = rank();
  ranked.ranking.misfits = {{"A", bytes(1 << 20), bytes(3 << 20), 4},
                            {"B", bytes(1 << 20), bytes(3 << 20), 1},
                            {"C", bytes(1 << 20), bytes(2 << 20), 1}};
  EXPECT_THAT(ranking_text(ranked.ranking, ranked.scenario),
              HasSubstr("\n5 plans do not fit: A and 1 other have 1 MiB each, the smallest of them needs 2 MiB more\n"
                        "1 plan does not fit: C has 1 MiB, the smallest of them needs 1 MiB more\n"));
}

TEST(RankingText, ADeviceWithoutRoomForTheBatchIsNamed) {
  Ranked ranked = rank();
  ranked.ranking.no_room = {{"A", bytes(1 << 20), bytes(3 << 20)}};
  EXPECT_THAT(ranking_text(ranked.ranking, ranked.scenario),
              HasSubstr("\nA not used: its host holds the whole batch's inputs or results, 3 MiB, and A has 1 MiB\n"));
  const auto file = nlohmann::json::parse(ranking_json(ranked.ranking, ranked.scenario, ranked.model.graph));
  EXPECT_EQ(file["no_room"],
            nlohmann::json::parse(R"([{"device": "A", "memory_bytes": 1048576, "needed_bytes": 3145728}])"));
}

TEST(RankingText, LongPlansComeLast) {
  Ranked ranked = rank();
  ranked.ranking.judged[ranked.ranking.order[0]].text = std::string(120, 'x');
  const std::string text = ranking_text(ranked.ranking, ranked.scenario);
  EXPECT_THAT(text, HasSubstr("\n 1  ")) << text;
  EXPECT_THAT(text, HasSubstr("  " + std::string(120, 'x') + "\n")) << text;
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

// B is slow in most runs: without noise it helps, with noise A alone is better.
Ranked rank_with_noise(bool robust, const std::string& search = "{keep: 2}") {
  Ranked ranked{small_scenario({.compute = "100MFLOPS", .search = search}), {}, {}};
  Noise noise;
  noise.runs = 4;
  noise.compute_jitter = 0.01;
  noise.stragglers.push_back({.device = DeviceId(1), .slowdown = 5, .chance = 0.9});
  ranked.scenario.noise = noise;
  ranked.model = *load_model(ranked.scenario);
  ranked.ranking = *rank_plans(ranked.scenario, ranked.model, {.noise = true, .robust = robust});
  return ranked;
}

TEST(RankingText, NoiseHasColumnsOfItsOwn) {
  EXPECT_THAT(text_of({}), Not(HasSubstr("noise")));
  const Ranked ranked = rank_with_noise(false);
  const std::string text = ranking_text(ranked.ranking, ranked.scenario);
  EXPECT_THAT(text, AllOf(HasSubstr("best throughput first"), HasSubstr("  with noise  with noise  "),
                          HasSubstr("with noise: 4 runs of each plan, seed 1; 95 of 100 reach the p5; order and other"),
                          ContainsRegex("\n *1  "), HasSubstr("--plan 1 --transport threads --check")));
  const RankedPlan& first = ranked.ranking.judged[0];
  EXPECT_THAT(text, HasSubstr(rate_text(8 / first.noisy->makespan_s.p95)));
  const Ranked latency = rank_with_noise(false, "{objective: latency}");
  EXPECT_THAT(ranking_text(latency.ranking, latency.scenario),
              HasSubstr(to_string(seconds(latency.ranking.judged[0].noisy->latency_s.p95))));
}

TEST(RankingText, RobustRowsKeepTheirNumbers) {
  const Ranked ranked = rank_with_noise(true);
  const std::string text = ranking_text(ranked.ranking, ranked.scenario);
  const std::string first = fmt::format("{}", ranked.ranking.order[0] + 1);
  ASSERT_NE(first, "1");
  EXPECT_THAT(text, AllOf(HasSubstr("best p5 of throughput first"), HasSubstr("which --plan takes"), HasSubstr("A all"),
                          HasSubstr("nlbench run small.yaml --plan " + first)));
  EXPECT_LT(text.find("A all"), text.find("mine: "));
}

TEST(RankingText, InterruptedNoiseSaysHowFarItCame) {
  Ranked ranked = rank_with_noise(false);
  ranked.ranking.noise_runs = 3;
  EXPECT_THAT(ranking_text(ranked.ranking, ranked.scenario),
              HasSubstr("with noise: 3 of 4 runs (interrupted) of each"));
  ranked.ranking.noise_runs = 0;
  EXPECT_THAT(ranking_text(ranked.ranking, ranked.scenario),
              AllOf(HasSubstr("interrupted before all plans had met the noise once"), Not(HasSubstr("with noise"))));
}

TEST(RankingText, TodaysRulesStandBelowTheVerdict) {
  EXPECT_THAT(text_of({}), Not(HasSubstr("today's rule")));
  const Ranked ranked = rank({.memory_b = "512KiB"}, {.baselines = true});
  const std::string text = ranking_text(ranked.ranking, ranked.scenario);
  EXPECT_THAT(text,
              AllOf(HasSubstr("\ntoday's rule"), HasSubstr("\nmemory-proportional  "), HasSubstr("x\n"),
                    HasSubstr("\nnote     even-layers cannot run (A "), HasSubstr("): B has 512 KiB and would need ")));
  EXPECT_LT(text.find("verdict"), text.find("today's rule"));
  EXPECT_LT(text.find("today's rule"), text.find("\nnext "));
  const auto answer = nlohmann::json::parse(ranking_json(ranked.ranking, ranked.scenario, ranked.model.graph));
  ASSERT_EQ(answer.at("baselines").size(), ranked.ranking.baselines.size());
  EXPECT_THAT(answer.at("baselines")[0].at("cannot_run").get<std::string>(), HasSubstr("would need"));
  EXPECT_EQ(answer.at("baselines")[1].at("makespan_s"), ranked.ranking.baselines[1].estimate->makespan_s);
}

// Two rooflines, whose spreads a validation taught.
Ranked with_error_bars(const std::string& objective) {
  Ranked ranked = rank({.search = "{keep: 3, objective: " + objective + "}"});
  ranked.scenario.spreads.computing = {{"A", 0.05}, {"B", 0.05}};
  ranked.scenario.spreads.plans = 0.02;
  ranked.ranking = rank_plans(ranked.scenario, ranked.model, {.error_bars = true}).value();
  return ranked;
}

TEST(RankingText, ErrorBarsHaveColumnsOfTheirOwn) {
  const Ranked ranked = with_error_bars("throughput");
  const std::string text = ranking_text(ranked.ranking, ranked.scenario);
  EXPECT_THAT(text, AllOf(HasSubstr("error bars: 90 % of 1,000 draws"), HasSubstr("(plans ±2.0 %)"),
                          HasSubstr("links are taken as the scenario has them\n"), HasSubstr("worse than"),
                          HasSubstr("\nmeasure  plan")));
  const Estimate& best = ranked.ranking.judged[0].estimate;
  const ErrorBar& bar = ranked.ranking.confidence->plans[0];
  EXPECT_LT(bar.low, best.makespan_s);
  EXPECT_GT(bar.high, best.makespan_s);
  EXPECT_THAT(text, HasSubstr(fmt::format("{} to {}", rate_text(8 / bar.high), rate_text(8 / bar.low))));
  EXPECT_THAT(ranking_html(ranked.ranking, ranked.scenario),
              AllOf(HasSubstr("worse than plan 1"), HasSubstr("measure  plan")));

  const Ranked by_latency = with_error_bars("latency");
  EXPECT_THAT(ranking_text(by_latency.ranking, by_latency.scenario),
              HasSubstr(to_string(seconds(by_latency.ranking.confidence->plans[0].low)) + " to "));

  const Ranked without = rank({}, {.error_bars = true});
  EXPECT_THAT(ranking_text(without.ranking, without.scenario),
              AllOf(HasSubstr("no error bars: costs are not measured\n"), Not(HasSubstr("worse than")),
                    Not(HasSubstr("measure  "))));
}

TEST(RankingData, ErrorBarsAreInJsonAndCsv) {
  const Ranked ranked = with_error_bars("throughput");
  const Confidence& confidence = ranked.ranking.confidence.value();
  const auto file = nlohmann::json::parse(ranking_json(ranked.ranking, ranked.scenario, ranked.model.graph));
  EXPECT_EQ(file["confidence"]["level"], 0.9);
  EXPECT_EQ(file["confidence"]["worlds"], 1000);
  EXPECT_EQ(file["confidence"]["covered"], confidence.covered);
  ASSERT_EQ(file["confidence"]["set"].size(), confidence.set.size());
  std::set<size_t> listed;
  for (const auto& plan : file["plans"]) {
    const size_t number = plan["rank"];
    listed.insert(number);
    const ErrorBar& bar = confidence.plans[number - 1];
    EXPECT_EQ(plan["error_bar"]["cost"], (std::vector<double>{bar.low, bar.high}));
    EXPECT_EQ(plan["error_bar"]["difference"], (std::vector<double>{bar.difference_low, bar.difference_high}));
    EXPECT_EQ(plan["error_bar"]["rank"], bar.rank + 1);
    EXPECT_EQ(plan["error_bar"]["in_set"], std::ranges::find(confidence.set, number - 1) != confidence.set.end());
  }
  for (const size_t number : file["confidence"]["set"]) EXPECT_TRUE(listed.contains(number)) << "plan " << number;
  const std::string csv = ranking_csv(ranked.ranking);
  EXPECT_THAT(csv, HasSubstr(",shared_rank,cost_low,cost_high,difference_low,difference_high,best,in_set\n"));

  const Ranked without = rank({}, {.error_bars = true});
  const auto none = nlohmann::json::parse(ranking_json(without.ranking, without.scenario, without.model.graph));
  EXPECT_EQ(none["no_error_bars"], "costs are not measured");
  EXPECT_FALSE(none.contains("confidence"));
}

TEST(RankingData, NoiseIsInJsonAndCsv) {
  using nlohmann::json;
  const Ranked ranked = rank_with_noise(true);
  const json answer = json::parse(ranking_json(ranked.ranking, ranked.scenario, ranked.model.graph));
  EXPECT_EQ(answer.at("noise"), (json{{"seed", 1}, {"runs", 4}, {"robust", true}}));
  double last = 0;
  for (const json& plan : answer.at("plans")) {
    const NoisyEstimate& n = ranked.ranking.judged[plan.at("rank").get<size_t>() - 1].noisy.value();
    EXPECT_EQ(plan.at("with_noise").at("makespan_s").at("mean"), n.makespan_s.mean);
    EXPECT_EQ(plan.at("with_noise").at("latency_s").at("p95"), n.latency_s.p95);
    EXPECT_EQ(plan.at("with_noise").at("makespan_s").at("p95_run"), n.makespan_s.p95_run + 1);
    EXPECT_GE(n.makespan_s.p95, last);
    last = n.makespan_s.p95;
  }
  EXPECT_EQ(answer.at("plans")[0].at("rank"), ranked.ranking.order[0] + 1);
  const std::string csv = ranking_csv(ranked.ranking);
  EXPECT_THAT(csv, HasSubstr("largest_memory_bytes,noise_makespan_mean_s,noise_makespan_p95_s,noise_latency_mean_s,"));
  const std::string second = csv.substr(csv.find('\n') + 1, csv.find('\n', csv.find('\n') + 1) - csv.find('\n') - 1);
  EXPECT_EQ(std::count(second.begin(), second.end(), ','), 18);
  EXPECT_TRUE(second.starts_with(fmt::format("{},", ranked.ranking.order[0] + 1)));
}

TEST(RankingJson, DevicesAndLinksSayWhatTheyDid) {
  using nlohmann::json;
  const Ranked ranked = rank();
  const json answer = json::parse(ranking_json(ranked.ranking, ranked.scenario, ranked.model.graph));
  EXPECT_FALSE(answer.contains("noise"));
  bool links = false;
  for (const json& plan : answer.at("plans")) {
    EXPECT_FALSE(plan.contains("with_noise"));
    const double makespan = plan.at("makespan_s");
    for (const json& device : plan.at("devices")) {
      const double sum = device.at("compute_s").get<double>() + device.at("exposed_communication_s").get<double>() +
                         device.at("waiting_s").get<double>();
      EXPECT_NEAR(sum, makespan, 1e-9 * makespan);
    }
    for (const json& link : plan.at("links")) {
      links = true;
      EXPECT_LE(link.at("utilisation").get<double>(), link.at("busy_share").get<double>() + 1e-9);
      EXPECT_GT(link.at("bytes").get<double>(), 0);
    }
  }
  EXPECT_TRUE(links);
}

TEST(BreakdownText, DevicesThenLinks) {
  const Ranked ranked = rank();
  const auto timed = time_plan(ranked.scenario, ranked.model.graph, find_plan(ranked.ranking, "mine")->plan);
  ASSERT_TRUE(timed.ok());
  const std::string text = breakdown_text(*timed);
  EXPECT_THAT(text, AllOf(HasSubstr("exposed "), HasSubstr("\n                             communication\n"),
                          HasSubstr("computing"), HasSubstr("waiting"), HasSubstr("\nlink "), HasSubstr("\na>b "),
                          HasSubstr("\nb>a "), HasSubstr("the three make up the whole")));
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
