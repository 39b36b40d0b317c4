// Plans timed on networks with fewer blocks: the same as on the whole network.
#include "ranking/shorter.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "graph/passes/passes.h"
#include "ranking/evaluate.h"
#include "ranking/generation.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

// 14 blocks on three unequal machines.
Scenario three_machines(const std::string& workload, const std::string& search = "{splits: [layer, tensor]}") {
  return value_of(
      parse_scenario(fmt::format(R"(model: zoo:llama?layers=14&hidden=128&heads=8&kv_heads=4&ffn=256&vocab=500
workload: {}
devices:
  a: {{host: h1, memory: 1GiB, costs: {{roofline: {{compute: 2GFLOPS, memory: 1GBps}}}}}}
  b: {{host: h2, memory: 1GiB, costs: {{roofline: {{compute: 3GFLOPS, memory: 2GBps}}}}}}
  c: {{host: h3, memory: 1GiB, costs: {{roofline: {{compute: 1GFLOPS, memory: 1GBps}}}}}}
switches: [sw]
links:
  - {{between: [h1, sw], bandwidth: 1Gbps, latency: 20us}}
  - {{between: [h2, sw], bandwidth: 200Mbps, latency: 50us}}
  - {{between: [h3, sw], bandwidth: 1Gbps, latency: 20us}}
source: h1
sink: h1
search: {}
)",
                                 workload, search),
                     "three.yaml"));
}

const std::string generation = "{mode: generation, prompt: 20, tokens: 8, chunk: 8}";

std::vector<Plan> split_plans(const Scenario& scenario, const Graph& graph) {
  std::vector<Plan> plans;
  for (const std::vector<std::string>& stages : std::vector<std::vector<std::string>>{
           {"rest@tensor(a:2+b:2)"},
           {"rest@tensor(a:2+b:3+c)"},
           {"..model.layers.2.add1@c", "rest@tensor(a+b)"},
           {"..model.layers.9.mlp.gated@tensor(a+c)", "rest@b"},
       }) {
    UserPlan own;
    own.name = fmt::format("plan{}", plans.size());
    own.stages = stages;
    own.schedule = "streaming";
    plans.push_back(value_of(resolve_own_plan(scenario, graph, own))[0].plan);
  }
  return plans;
}

TEST(Shorter, TimesAndMemoryAreThoseOfTheWholeNetwork) {
  const Scenario scenario = three_machines(generation);
  const Model model = value_of(load_model(scenario));
  const PreparedModel whole = value_of(prepare_model(scenario, model.graph, 1));
  const CostTable costs = cost_table(scenario, model.graph.name);
  const Repeat repeat = longest_repeat(model.graph).value();
  EXPECT_EQ(repeat.count, 13u);  // of the last layer one token goes on, so it is another one
  ShorterModels models(scenario, model.graph, repeat);
  for (const Plan& plan : split_plans(scenario, model.graph)) {
    SCOPED_TRACE(to_string(plan, model.graph, scenario.cluster));
    const std::vector<ShorterPlan> plans = shorter_plans(plan, repeat);
    ASSERT_EQ(plans.size(), 2u);
    const LoweredPlan shorter = value_of(lower_shorter(scenario, plans, models, costs));
    const LoweredPlan expected = value_of(lower_plan(scenario, whole, plan, costs));
    EXPECT_LT(shorter.timed.activities.size() * 2, expected.timed.activities.size());
    for (size_t d = 0; d < expected.program.devices.size(); ++d)
      EXPECT_EQ(shorter.program.devices[d].arena, expected.program.devices[d].arena);
    const Estimate a = estimate_fast(scenario, shorter), b = estimate_fast(scenario, expected);
    EXPECT_NEAR(a.makespan_s / b.makespan_s, 1, 1e-9);
    EXPECT_NEAR(a.latency_mean_s / b.latency_mean_s, 1, 1e-9);
    EXPECT_EQ(a.busiest_device, b.busiest_device);
    EXPECT_NEAR(a.busiest_device_share, b.busiest_device_share, 1e-9);
    EXPECT_EQ(a.busiest_link, b.busiest_link);
    EXPECT_NEAR(a.busiest_link_share, b.busiest_link_share, 1e-9);
  }
}

TEST(Shorter, ARankingSaysOfAPlanWhatASimulationOfItSays) {
  const Scenario scenario = three_machines(generation);
  const Model model = value_of(load_model(scenario));
  const Ranking ranking = value_of(rank_plans(scenario, model, {}));
  const GenerationModels models = value_of(prepare_generation(scenario, model.graph, 1, nullptr));
  const Repeat repeat = longest_repeat(model.graph).value();
  size_t seen = 0;
  for (const RankedPlan& ranked : ranking.judged) {
    if (!has_splits(ranked.plan) || !ranked.generation || ++seen > 6) continue;
    SCOPED_TRACE(ranked.text);
    const TimedPlan simulated = value_of(time_plan(scenario, model.graph, ranked.plan));
    EXPECT_NEAR(ranked.estimate.makespan_s / simulated.estimate.makespan_s, 1, 1e-6);
    ASSERT_EQ(ranked.estimate.links.size(), simulated.estimate.links.size());
    for (size_t l = 0; l < ranked.estimate.links.size(); ++l)
      EXPECT_NEAR(ranked.estimate.links[l].use.bytes, simulated.estimate.links[l].use.bytes, 0.5);
    const CompiledSession session = value_of(generation_session(scenario, models, ranked.plan));
    const bool chunks_overlap = shorter_plans(ranked.plan, repeat).empty();
    const GenerationTimes times =
        value_of(time_generation(scenario, {{&session.session, chunks_overlap}}, simgrid_tier()))[0];
    EXPECT_NEAR(ranked.generation->next_token_s / times.next_token_s, 1, 1e-6);
    EXPECT_NEAR(ranked.generation->first_token_s / times.first_token_s, 1, 1e-6);
  }
  EXPECT_GE(seen, 4u);
}

TEST(Shorter, OnlyWhereItIsLessWork) {
  const Scenario scenario = three_machines(generation);
  const Model model = value_of(load_model(scenario));
  const Repeat repeat = longest_repeat(model.graph).value();
  Plan plan = split_plans(scenario, model.graph)[0];
  EXPECT_FALSE(shorter_plans(plan, repeat).empty());
  plan.micro_batches = 2;  // they follow each other through the stages: no longer block by block
  EXPECT_TRUE(shorter_plans(plan, repeat).empty());
  UserPlan own;
  own.name = "few";
  own.stages = {"..model.layers.3@tensor(a+b)", "rest@c"};
  EXPECT_TRUE(shorter_plans(value_of(resolve_own_plan(scenario, model.graph, own))[0].plan, repeat).empty());
}

TEST(Shorter, ABlockThatReadsOneFartherBackStays) {
  const Graph graph = value_of(parse_graph(R"(graph "skip"
input %x f32[1,4]
%a0 f32[1,4] = Relu(%x) as "a0"
%a1 f32[1,4] = Relu(%a0) as "a1"
%a2 f32[1,4] = Relu(%a1) as "a2"
%a3 f32[1,4] = Relu(%a2) as "a3"
%a4 f32[1,4] = Relu(%a3) as "a4"
%far f32[1,4] = Add(%a4, %a2) as "far"
output %far
)",
                                           "skip.txt"));
  const Repeat repeat{0, 1, 5};
  EXPECT_FALSE(without_blocks(graph, repeat, 2));
  const std::optional<Graph> one = without_blocks(graph, repeat, 1);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->nodes.size(), 5u);
  EXPECT_TRUE(verify(*one).ok());
}

}  // namespace
}  // namespace nlsplit
