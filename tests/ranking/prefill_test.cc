// Prompts computed on some devices, tokens on others: what each device then has, how long that takes, and where a
// ranking proposes it.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "ranking/generation.h"
#include "sim/fast.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// `wide` computes fast and reads slowly, `quick` and `other` the reverse.
constexpr const char* own_plans = R"(  prompts: [rest@wide]
  tokens: [rest@quick]
  layers: [..model.layers.1@wide, rest@quick]
  apart: {prefill: [rest@wide], decode: [rest@quick]}
  shared: {prefill: [rest@wide], decode: [..model.layers.1@wide, rest@quick]}
  crossed:
    prefill: [..model.layers.2@wide, rest@other]
    decode: [..model.layers.0@quick, ..model.layers.1@wide, rest@quick]
)";

std::string kinds(const std::string& search = "", const std::string& plans = own_plans, int chunk = 32) {
  return fmt::format(R"(model: zoo:llama?layers=4&hidden=256&heads=8&kv_heads=4&ffn=512&vocab=1000
workload: {{mode: generation, prompt: 64, tokens: 16, chunk: {}}}
devices:
  wide:  {{host: h1, memory: 64MiB, costs: {{roofline: {{compute: 400GFLOPS, memory: 5GBps}}}}}}
  quick: &quick {{host: h2, memory: 64MiB, costs: {{roofline: {{compute: 10GFLOPS, memory: 20GBps}}}}}}
  other: {{<<: *quick, host: h3}}
switches: [sw]
links:
  - {{between: [h1, sw], bandwidth: 10Gbps, latency: 10us}}
  - {{between: [h2, sw], bandwidth: 10Gbps, latency: 10us}}
  - {{between: [h3, sw], bandwidth: 10Gbps, latency: 10us}}
source: h1
sink: h1
search: {{splits: [layer]{}}}
plans:
{})",
                     chunk, search, plans);
}

struct Made {
  Scenario scenario;
  Model model;

  explicit Made(const std::string& text)
      : scenario(value_of(parse_scenario(text, "kinds.yaml"))), model(value_of(load_model(scenario))) {}
  Result<RankedPlan> own(const std::string& name) const {
    const auto found = std::ranges::find(scenario.plans, name, &UserPlan::name);
    CHECK(found != scenario.plans.end(), name);
    auto ways = resolve_own_plan(scenario, model.graph, *found);
    if (!ways) return ways.error();
    return ways->front();
  }
  Session session(const std::string& name) {
    return value_of(session_of(scenario, model, value_of(own(name)).plan)).session;
  }
  GenerationTimes times(const std::string& name) {
    const Session of = session(name);
    return value_of(time_generation(scenario, {{&of}}, fast_tier())).front();
  }
};

const DeviceProgram& device_of(const Program& program, const std::string& name) {
  const auto found = std::ranges::find(program.devices, name, &DeviceProgram::name);
  CHECK(found != program.devices.end(), name);
  return *found;
}

std::multiset<std::string> kept(const DeviceProgram& device, BufferKind kind) {
  std::multiset<std::string> names;
  for (const Buffer& buffer : device.buffers) {
    if (buffer.kind == kind)
      names.insert(kind == BufferKind::state
                       ? buffer.name
                       : fmt::format("{} {}", buffer.content.value,
                                     buffer.packed_for.empty() ? "" : to_string(buffer.packed_for)));
  }
  return names;
}

TEST(Prefill, EachDeviceHasWhatItsProgramsNeedOnce) {
  Made of(kinds());
  const Session one = of.session("prompts"), apart = of.session("apart"), shared = of.session("shared");
  const DeviceProgram &prompts = device_of(one.programs.front(), "wide"),
                      &tokens = device_of(one.programs.back(), "wide");
  const auto weights = kept(prompts, BufferKind::weight), states = kept(prompts, BufferKind::state);
  EXPECT_EQ(states.size(), 8u);
  const Program of_apart = value_of(join(apart)), of_shared = value_of(join(shared));
  EXPECT_EQ(kept(device_of(of_apart, "wide"), BufferKind::weight), weights);
  EXPECT_EQ(kept(device_of(of_apart, "wide"), BufferKind::state), states);
  EXPECT_EQ(kept(device_of(of_apart, "quick"), BufferKind::weight), kept(tokens, BufferKind::weight));
  EXPECT_EQ(kept(device_of(of_apart, "quick"), BufferKind::state), states);
  EXPECT_TRUE(kept(device_of(apart.programs[0], "quick"), BufferKind::weight).empty());
  // The first two layers are in both plans of `wide`; of the others `quick` has the states.
  const auto both = kept(device_of(of_shared, "wide"), BufferKind::weight);
  EXPECT_TRUE(std::ranges::includes(both, weights));
  EXPECT_EQ(std::set(both.begin(), both.end()).size(), both.size());
  EXPECT_EQ(kept(device_of(of_shared, "wide"), BufferKind::state), states);
  EXPECT_EQ(kept(device_of(of_shared, "quick"), BufferKind::state).size(), 4u);
  const Session layers = of.session("layers");
  EXPECT_EQ(kept(device_of(of_shared, "quick"), BufferKind::weight),
            kept(device_of(layers.programs.back(), "quick"), BufferKind::weight));
}

TEST(Prefill, TokensTakeWhatTheyTakeElsewhereAndPromptsAHandOverMore) {
  Made of(kinds());
  const GenerationTimes prompts = of.times("prompts"), tokens = of.times("tokens"), apart = of.times("apart");
  EXPECT_NEAR(apart.next_token_s, tokens.next_token_s, 1e-3 * tokens.next_token_s);
  EXPECT_GT(apart.first_token_s, prompts.first_token_s);
  // Keys and values of 64 tokens in four layers over 1.25 GB/s; all but the last layer's while prompts are computed.
  const double all_s = 64 * 4 * 2 * 4 * 32 * 4 / 1.25e9;
  EXPECT_LT(apart.first_token_s, prompts.first_token_s + all_s + 1e-3);
  EXPECT_LT(apart.first_token_s, tokens.first_token_s);
}

TEST(Prefill, IsProposedWhereItPays) {
  const Made of(kinds(", objective: tokens_per_second", "  mine: [rest@quick]\n"));
  const Ranking ranking = value_of(rank_plans(of.scenario, of.model, {}));
  const RankedPlan& best = ranking.judged[0];
  EXPECT_FALSE(best.plan.prefill.empty());
  EXPECT_THAT(best.text, HasSubstr("prefill wide all; decode "));
  double without = 0;
  for (const RankedPlan& plan : ranking.judged) {
    if (plan.generation && plan.plan.prefill.empty()) without = std::max(without, plan.generation->tokens_per_s);
  }
  EXPECT_GT(best.generation->tokens_per_s, 1.5 * without);
  EXPECT_GT(best.generation->largest_context, 0);
  ASSERT_TRUE(ranking.verdict.latency.single);
  ASSERT_TRUE(ranking.verdict.throughput.split);
  EXPECT_FALSE(ranking.judged[*ranking.verdict.throughput.split].plan.prefill.empty());
}

TEST(Prefill, IsProposedWhereBothAreRequired) {
  const std::string mine = "  mine: [rest@quick]\n";
  const Made free(kinds("", mine));
  const Ranking by_token = value_of(rank_plans(free.scenario, free.model, {}));
  for (const RankedPlan& plan : by_token.judged) EXPECT_TRUE(plan.plan.prefill.empty()) << plan.text;
  const double ttft_s = Made(kinds()).times("apart").first_token_s * 1.1;
  const Made of(kinds(fmt::format(", require: {{ttft: {}ms}}", ttft_s * 1e3), mine));
  const Ranking ranking = value_of(rank_plans(of.scenario, of.model, {}));
  EXPECT_TRUE(ranking.judged[0].misses.empty());
  EXPECT_FALSE(ranking.judged[0].plan.prefill.empty());
}

TEST(Prefill, HasATextThatIsReadAgain) {
  const Made of(kinds());
  const RankedPlan crossed = value_of(of.own("crossed"));
  const std::vector<std::string> parts = stage_parts(crossed.plan, of.model.graph, of.scenario.cluster);
  EXPECT_EQ(parts, (std::vector<std::string>{"prefill: ..model.layers.2@wide", "prefill: rest@other",
                                             "..model.layers.0@quick", "..model.layers.1@wide", "rest@quick"}));
  EXPECT_EQ(
      to_string(crossed.plan, of.model.graph, of.scenario.cluster),
      "prefill wide ..model.layers.2 | other rest; decode quick ..model.layers.0 | wide ..model.layers.1 | quick rest");
  const PlanStages back = value_of(parse_plan_stages(parts, of.model.graph, of.scenario.cluster, nullptr));
  EXPECT_EQ(back.stages, crossed.plan.stages);
  EXPECT_EQ(back.prefill, crossed.plan.prefill);
  const PlanStages same =
      value_of(parse_plan_stages({"prefill: rest@wide", "rest@wide"}, of.model.graph, of.scenario.cluster, nullptr));
  EXPECT_TRUE(same.prefill.empty());
}

TEST(Prefill, SaysWhatCannotBe) {
  const auto why = [](const std::string& plan, int chunk) {
    const std::string text = kinds("", "  mine: " + plan + "\n", chunk);
    const auto parsed = parse_scenario(text, "kinds.yaml");
    if (!parsed.ok()) return parsed.error();
    const auto own = Made(text).own("mine");
    return own.ok() ? Error{} : own.error();
  };
  struct Wrong {
    std::string plan, what;
    int chunk = 32;
  };
  for (const Wrong& wrong : std::vector<Wrong>{
           {"{prefill: [rest@wide], decode: [rest@tensor(quick+other)]}", "each stage has one device"},
           {"{prefill: [rest@quick+other], decode: [rest@wide]}", "each stage has one device"},
           {"{prefill: [rest@wide]}", "lacks 'decode'"},
           {"{decode: [rest@wide]}", "lacks 'prefill'"},
           {"{prefill: [rest@wide], stages: [rest@quick]}", "a plan has `stages`, or `prefill` and `decode`"},
           {"{prefill: [rest@wide], decode: [rest@quik]}", "no device is called 'quik'"},
           {"['prefill: rest@wide']", "needs 'decode' as well"},
           {"{prefill: [rest@wide], decode: [rest@quick]}", "token by token", 1},
       }) {
    SCOPED_TRACE(wrong.plan);
    const Error error = why(wrong.plan, wrong.chunk);
    EXPECT_THAT(error.to_string(), HasSubstr(wrong.what));
    EXPECT_THAT(error.to_string(), HasSubstr("kinds.yaml:"));
    EXPECT_EQ(exit_code(error), 2);
  }
}

TEST(Prefill, ARefusedPlanLeavesTheOthers) {
  const Made of(
      kinds("", "  mine: [rest@quick]\n  apart: {prefill: [rest@wide], decode: [rest@tensor(quick+other)]}\n"));
  const Ranking ranking = value_of(rank_plans(of.scenario, of.model, {}));
  EXPECT_TRUE(std::ranges::any_of(ranking.judged, [](const RankedPlan& plan) { return plan.plan.name == "mine"; }));
  ASSERT_EQ(ranking.own_refused.size(), 1u);
  EXPECT_EQ(ranking.own_refused[0].name, "apart");
  const auto found = find_plan(ranking, "apart");
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.error().to_string(), AllOf(HasSubstr("kinds.yaml:"), HasSubstr("each stage has one device")));
}

TEST(Prefill, IsOfGeneration) {
  const Scenario scenario = value_of(parse_scenario(R"(model: zoo:simple_cnn
workload: {batch: 8}
devices:
  a: &machine {host: h1, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}
  b: {<<: *machine, host: h2}
links: [{between: [h1, h2], bandwidth: 1Gbps, latency: 50us}]
source: h1
sink: h1
plans: {mine: {prefill: [rest@a], decode: [rest@b]}}
)",
                                                    "infer.yaml"));
  const auto own = resolve_own_plan(scenario, value_of(load_model(scenario)).graph, scenario.plans[0]);
  ASSERT_FALSE(own.ok());
  EXPECT_THAT(own.error().to_string(), HasSubstr("infer.yaml:9"));
  EXPECT_THAT(own.error().to_string(), HasSubstr("mode: generation"));
}

}  // namespace
}  // namespace nlsplit
