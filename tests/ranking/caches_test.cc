// Caches of plans that generate: on which devices each sequence has its own, and what a position of them costs.
#include "program/caches.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "ranking/generation.h"
#include "sim/fast.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::ElementsAre;

Scenario scenario_of(const std::string& workload) {
  return value_of(
      parse_scenario("model: zoo:llama?layers=3&hidden=48&heads=6&kv_heads=3&ffn=96&vocab=300\n"
                     "workload: {mode: generation, prompt: 8, tokens: 8, context: 32, " +
                         workload +
                         "}\n"
                         R"(devices:
  a: &machine {host: h1, memory: 64MiB, costs: {roofline: {compute: 20GFLOPS, memory: 10GBps}}}
  b: {<<: *machine, host: h2}
links:
  - {between: [h1, h2], bandwidth: 1Gbps, latency: 50us}
source: h1
sink: h1
plans:
  one: [rest@a]
  layers: [..model.layers.0@a, rest@b]
  heads: [rest@tensor(a+b)]
  copies: [..model.layers.0@a, rest@a+b]
)",
                     "caches.yaml"));
}

Session session_of_plan(const Scenario& scenario, const std::string& name) {
  Model model = value_of(load_model(scenario));
  const auto plan = std::ranges::find(scenario.plans, name, &UserPlan::name);
  CHECK(plan != scenario.plans.end(), name);
  return value_of(session_of(scenario, model, value_of(resolve_own_plan(scenario, model.graph, *plan)).front().plan))
      .session;
}

// Keys and values of three layers.
TEST(Caches, AreWhereTheLayersAndHeadsAre) {
  const Scenario scenario = scenario_of("chunk: 4, sequences: 2");
  const auto counts = [&](const std::string& plan) {
    const Session session = session_of_plan(scenario, plan);
    EXPECT_TRUE(keeps_positions(session));
    std::vector<size_t> made;
    for (size_t d = 0; d < session.programs[0].devices.size(); ++d) {
      made.push_back(caches_of(session.programs[0], d).size());
      EXPECT_EQ(caches_of(value_of(join(session)), d).size(), made.back());
    }
    return made;
  };
  EXPECT_THAT(counts("layers"), ElementsAre(2, 4));
  EXPECT_THAT(counts("heads"), ElementsAre(6, 6));
}

TEST(Caches, OfMicroBatchesThatReplicasShareAreApart) {
  const auto groups = [](const std::string& workload, const std::string& plan) {
    return cache_groups(session_of_plan(scenario_of(workload), plan), 4);
  };
  EXPECT_THAT(groups("chunk: 4, sequences: 4", "copies"), ElementsAre(0, 0, 0, 0));
  for (const std::string plan : {"one", "layers", "heads"})
    EXPECT_THAT(groups("chunk: 4, sequences: 4, micro_batches: 2", plan), ElementsAre(0, 0, 0, 0)) << plan;
  EXPECT_THAT(groups("chunk: 4, sequences: 4, micro_batches: 2", "copies"), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(groups("chunk: 4, sequences: 4, micro_batches: 4", "copies"), ElementsAre(0, 0, 2, 2));
}

// A position of a cache has 24 floats, half of them where heads are on two machines. The kernel reads and writes them,
// and reads where they begin, which is 8 B of a chunk of four.
TEST(Caches, CostWhatTheKernelThatWritesThemDoes) {
  const Scenario scenario = scenario_of("chunk: 4, sequences: 2");
  const auto copied_s = [&](const std::string& plan) {
    const Session session = session_of_plan(scenario, plan);
    return value_of(time_server(scenario, session, fast_tier())).copied_position_s;
  };
  const auto expected_s = [](double caches, double floats) { return caches * (2 * floats * 4 + 8 / 4.0) / 10e9; };
  EXPECT_NEAR(copied_s("one"), expected_s(6, 24), 1e-15);
  EXPECT_NEAR(copied_s("layers"), expected_s(4, 24), 1e-15);
}

// Keys and values of three heads of 8 and three layers, in 9 pages of 4 positions for all; where heads are on two
// machines each has its own of every page. A session for a server has decodes of fewer sequences.
TEST(Caches, InPagesAreOneForAll) {
  const Scenario scenario = scenario_of("chunk: 4, sequences: 6, page: 4, cache: 37");
  const auto bytes_of = [&](const std::string& plan) {
    const Session session = session_of_plan(scenario, plan);
    std::vector<std::string> names;
    std::vector<int64_t> all;
    for (const Program& program : session.programs) names.push_back(program.name);
    EXPECT_THAT(names, ElementsAre("prefill", "decode_1", "decode_2", "decode_4", "decode"));
    EXPECT_TRUE(keeps_positions(session));
    for (const DeviceProgram& device : session.programs.back().devices) {
      all.push_back(0);
      for (const Buffer& buffer : device.buffers) {
        if (buffer.kind == BufferKind::state) all.back() += size_of(buffer.type).value() * buffer.instances;
      }
    }
    return all;
  };
  const int64_t layer = 2 * 9 * 4 * 3 * 8 * 4;
  EXPECT_THAT(bytes_of("one"), ElementsAre(3 * layer));
  EXPECT_THAT(bytes_of("layers"), ElementsAre(layer, 2 * layer));
  const std::vector<int64_t> heads = bytes_of("heads");
  EXPECT_EQ(heads[0] + heads[1], 3 * layer);
  EXPECT_EQ(scenario_of("chunk: 4, sequences: 6, page: 5").generation->context, 35);
}

}  // namespace
}  // namespace nlsplit
