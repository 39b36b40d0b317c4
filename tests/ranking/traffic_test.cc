// What a session that generates sends over each link, by hand.
#include "ranking/traffic.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "ranking/session.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

constexpr int64_t hidden_size = 48, prompt_size = 8, chunk_size = 4;

Scenario over_a_switch(const std::string& workload) {
  return value_of(
      parse_scenario("model: zoo:llama?layers=3&hidden=48&heads=6&kv_heads=3&ffn=96&vocab=300\n"
                     "workload: {mode: generation, prompt: 8, tokens: 8, " +
                         workload +
                         "}\n"
                         R"(devices:
  a: &machine {host: h1, memory: 64MiB, costs: {roofline: {compute: 20GFLOPS, memory: 10GBps}}}
  b: {<<: *machine, host: h2}
switches: [sw]
links:
  - {between: [h1, sw], bandwidth: 1Gbps, latency: 50us}
  - {between: [h2, sw], bandwidth: 1Gbps, latency: 50us}
source: h1
sink: h1
plans:
  layers: [..model.layers.0@a, rest@b]
  one: [rest@a]
  apart: {prefill: [rest@a], decode: [rest@b]}
)",
                     "switch.yaml"));
}

Traffic traffic_of_plan(const std::string& workload, size_t plan) {
  const Scenario scenario = over_a_switch(workload);
  Model model = value_of(load_model(scenario));
  const RankedPlan own = value_of(resolve_own_plan(scenario, model.graph, scenario.plans[plan])).front();
  const CompiledSession compiled = value_of(session_of(scenario, model, own.plan));
  return value_of(generation_traffic(scenario, compiled.session));
}

const LinkTraffic& link_called(const Traffic& traffic, const std::string& name) {
  const auto found = std::ranges::find(traffic.links, name, &LinkTraffic::name);
  CHECK(found != traffic.links.end(), name);
  return *found;
}

// Places are `begins` and `lengths`, i64 each; a chunk also has `last`. A candidate is a score and a token, f32 each.
TEST(GenerationTraffic, OfLayersIsActivationsPlacesAndChoicesForwardAndCandidatesBack) {
  const double choice = static_cast<double>(choice_bytes.value());
  for (const int64_t sequences : {1, 2}) {
    SCOPED_TRACE(sequences);
    const auto count = static_cast<double>(sequences);
    const Traffic traffic = traffic_of_plan(fmt::format("chunk: 4, sequences: {}", sequences), 0);
    EXPECT_EQ(traffic.chunks, prompt_size / chunk_size);
    ASSERT_EQ(traffic.links.size(), 4u);
    for (const char* forward : {"h1>sw", "sw>h2"}) {
      const LinkTraffic& link = link_called(traffic, forward);
      EXPECT_EQ(link.token.bytes, count * (4 * hidden_size + 2 * 8) + choice);
      EXPECT_EQ(link.token.messages, 4);
      EXPECT_EQ(link.prompt.bytes, 2 * count * (4 * hidden_size * chunk_size + 3 * 8) + choice);
      EXPECT_EQ(link.prompt.messages, 2 * 4 + 1);
    }
    for (const char* back : {"h2>sw", "sw>h1"}) {
      const LinkTraffic& link = link_called(traffic, back);
      EXPECT_EQ(link.token.bytes, count * 8);
      EXPECT_EQ(link.token.messages, 2);
      EXPECT_EQ(link.prompt.bytes, 2 * count * 8);
      EXPECT_EQ(link.prompt.messages, 4);
    }
  }
}

TEST(GenerationTraffic, OfAPromptTokenByTokenIsThatOfSoManyTokens) {
  const Traffic traffic = traffic_of_plan("chunk: 1", 0);
  EXPECT_EQ(traffic.chunks, prompt_size);
  for (const LinkTraffic& link : traffic.links) {
    EXPECT_EQ(link.prompt.bytes, prompt_size * link.token.bytes) << link.name;
    EXPECT_EQ(link.prompt.messages, prompt_size * link.token.messages) << link.name;
  }
}

// Keys and values of three layers, three heads of eight each; begins go with them. Of a token the input and its places.
TEST(GenerationTraffic, OfPrefillElsewhereIsKeysAndValues) {
  const double choice = static_cast<double>(choice_bytes.value());
  for (const int64_t sequences : {1, 2}) {
    SCOPED_TRACE(sequences);
    const auto count = static_cast<double>(sequences);
    const Traffic traffic = traffic_of_plan(fmt::format("chunk: 4, sequences: {}", sequences), 2);
    const LinkTraffic &forward = link_called(traffic, "h1>sw"), &back = link_called(traffic, "h2>sw");
    EXPECT_EQ(forward.prompt.bytes, 2 * count * (2 * 3 * 3 * 8 * 4 * chunk_size + 8) + choice);
    EXPECT_EQ(forward.prompt.messages, 2 * (2 * 3 + 1) + 1);
    EXPECT_EQ(forward.token.bytes, count * 3 * 8 + choice);
    EXPECT_EQ(back.prompt.bytes, 0);
    EXPECT_EQ(back.token.bytes, count * 8);
  }
}

TEST(GenerationTraffic, OfOneMachineIsNone) { EXPECT_TRUE(traffic_of_plan("chunk: 4", 1).links.empty()); }

}  // namespace
}  // namespace nlsplit
