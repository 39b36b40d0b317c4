// Rankings of plans that generate: order, requirements, the longest context, numbers of sequences.
#include "ranking/generation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

// `wide` computes fast and reads slowly, `quick` the reverse: prompts want the one, tokens the other.
std::string two_kinds(const std::string& workload = "", const std::string& search = "") {
  return fmt::format(R"(model: zoo:llama?layers=4&hidden=256&heads=8&kv_heads=4&ffn=512&vocab=1000
workload: {{mode: generation, prompt: 64, tokens: 8, chunk: 32{}}}
devices:
  wide:  {{host: h1, memory: 64MiB, costs: {{roofline: {{compute: 400GFLOPS, memory: 5GBps}}}}}}
  quick: {{host: h2, memory: 96MiB, costs: {{roofline: {{compute: 10GFLOPS, memory: 20GBps}}}}}}
links:
  - {{between: [h1, h2], bandwidth: 10Gbps, latency: 10us}}
source: h1
sink: h1
search: {{splits: [layer, tensor]{}}}
)",
                     workload, search);
}

struct Ranks {
  Scenario scenario;
  Model model;
  Ranking ranking;
};

Ranks ranked(const std::string& text, const RankOptions& options = {}) {
  Ranks made{value_of(parse_scenario(text, "kinds.yaml")), {}, {}};
  made.model = value_of(load_model(made.scenario));
  made.ranking = value_of(rank_plans(made.scenario, made.model, options));
  return made;
}

std::vector<double> costs_of(const Ranks& of) {
  std::vector<double> costs;
  for (const RankedPlan& plan : of.ranking.judged) {
    if (plan.generation && plan.misses.empty()) costs.push_back(cost_of(of.scenario, *plan.generation));
  }
  return costs;
}

TEST(GenerationRanking, IsOrderedByWhatItShows) {
  for (const std::string_view objective : generation_objectives) {
    SCOPED_TRACE(objective);
    const Ranks of = ranked(two_kinds("", fmt::format(", objective: {}", objective)));
    const std::vector<double> costs = costs_of(of);
    ASSERT_GE(costs.size(), 10u);
    for (size_t i = 1; i < costs.size(); ++i) EXPECT_LE(costs[i - 1], costs[i] * 1.0051);
  }
}

TEST(GenerationRanking, TheFirstTokenWantsAnotherPlanThanEachToken) {
  const Ranks by_token = ranked(two_kinds()), by_prompt = ranked(two_kinds("", ", objective: ttft"));
  const GenerationTimes token = by_token.ranking.judged[0].generation.value();
  const GenerationTimes prompt = by_prompt.ranking.judged[0].generation.value();
  EXPECT_LT(token.next_token_s, prompt.next_token_s);
  EXPECT_LT(prompt.first_token_s, token.first_token_s);
  const Ranks both = ranked(two_kinds("", ", objective: tokens_per_second"));
  const double best = both.ranking.judged[0].generation.value().tokens_per_s;
  EXPECT_GE(best * 1.0051, token.tokens_per_s);
  EXPECT_GE(best * 1.0051, prompt.tokens_per_s);
}

TEST(GenerationRanking, PlansThatMissWhatIsRequiredStandBehind) {
  const Ranks free = ranked(two_kinds());
  const double first = free.ranking.judged[0].generation.value().first_token_s;
  const Ranks of = ranked(two_kinds("", fmt::format(", require: {{ttft: {}ms}}", first * 1e3 / 2)));
  const std::vector<RankedPlan>& plans = of.ranking.judged;
  ASSERT_TRUE(plans[0].misses.empty());
  EXPECT_LE(plans[0].generation->first_token_s, first / 2);
  bool missing = false;
  double times = 1;
  for (const RankedPlan& plan : plans) {
    if (!plan.generation) continue;
    EXPECT_TRUE(!missing || !plan.misses.empty());
    missing |= !plan.misses.empty();
    if (plan.misses.empty()) continue;
    EXPECT_GE(plan.misses[0].times, times);
    EXPECT_THAT(plan.misses[0].text, HasSubstr("TTFT"));
    times = plan.misses[0].times;
  }
  EXPECT_TRUE(missing);
}

TEST(GenerationRanking, TheLongestContextFitsAndALongerOneDoesNot) {
  const Ranks of = ranked(two_kinds());
  const std::vector<size_t> all = told(of.ranking);
  for (size_t i = 0; i < all.size(); i += 5) {
    const RankedPlan& plan = of.ranking.judged[all[i]];
    SCOPED_TRACE(plan.text);
    ASSERT_TRUE(plan.generation);
    const int64_t longest = plan.generation->largest_context;
    ASSERT_GT(longest, of.scenario.generation->context);
    for (const bool more : {false, true}) {
      Scenario scenario = of.scenario;
      scenario.generation->context = longest + (more ? 32 : 0);
      const Model model = value_of(load_model(scenario));
      const GenerationModels models = value_of(prepare_generation(scenario, model.graph, 1, nullptr));
      EXPECT_EQ(generation_session(scenario, models, plan.plan).ok(), !more);
    }
  }
}

TEST(GenerationRanking, PlansThatAreToldOfHaveTheContextThatARequirementSees) {
  const Ranks shown = ranked(two_kinds()), required = ranked(two_kinds("", ", require: {context: 1}"));
  ASSERT_EQ(shown.ranking.judged.size(), required.ranking.judged.size());
  for (const RankedPlan& plan : required.ranking.judged) EXPECT_GT(plan.generation->largest_context, 0) << plan.text;
  for (const size_t i : told(shown.ranking)) {
    const RankedPlan& plan = shown.ranking.judged[i];
    const auto same = std::ranges::find(required.ranking.judged, plan.text, &RankedPlan::text);
    ASSERT_NE(same, required.ranking.judged.end()) << plan.text;
    EXPECT_EQ(plan.generation->largest_context, same->generation->largest_context) << plan.text;
  }
}

TEST(GenerationRanking, EachNumberOfSequencesHasItsBestPlan) {
  const Ranks of = ranked(two_kinds(", sequences: [1, 4, 100000]"), {.all_sequences = true});
  const std::vector<OfSequences>& all = of.ranking.by_sequences;
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].best->plan, of.ranking.judged[0].plan);
  EXPECT_GT(all[1].best->generation->tokens_per_s, all[0].best->generation->tokens_per_s);
  EXPECT_FALSE(all[2].best);
  EXPECT_THAT(all[2].why_not, HasSubstr("no plan fits"));
}

TEST(GenerationRanking, KeysThatMakeNoSense) {
  for (const auto& [workload, search, what] : std::vector<std::array<std::string, 3>>{
           {"", ", objective: throughput", "objective"},
           {"", ", require: {ttft: 0s}", "no time"},
           {"", ", require: {speed: 3}", "speed"},
           {", sequences: []", "", "missing"},
           {", sequences: [2, 2]", "", "twice"},
       }) {
    const auto scenario = parse_scenario(two_kinds(workload, search), "kinds.yaml");
    ASSERT_FALSE(scenario.ok()) << what;
    EXPECT_THAT(scenario.error().to_string(), HasSubstr(what));
    EXPECT_THAT(scenario.error().to_string(), HasSubstr("kinds.yaml:"));
  }
  const auto inference = parse_scenario(R"(model: zoo:simple_cnn
workload: {batch: 8}
devices: {A: {host: a, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}}
source: a
sink: a
search: {require: {ttft: 1s}}
)",
                                        "infer.yaml");
  ASSERT_FALSE(inference.ok());
  EXPECT_THAT(inference.error().to_string(), HasSubstr("mode: generation"));
}

}  // namespace
}  // namespace nlsplit
