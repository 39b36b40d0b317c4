// What grows costs what there is: scenarios/decoder.session in both tiers.
#include <gmock/gmock.h>

#include "graph/elements.h"
#include "program/scalar_values.h"
#include "sim/cases.h"
#include "testing/decoder_session.h"

namespace nlsplit::testing {
namespace {

constexpr double hop_latency = 300 * us;

struct Simulated {
  std::vector<double> end;  // [execution]
  ScalarTable scalars;
};

// On devices so slow that what attention reads is what counts.
Simulated simulate(const std::string& sequence_text, const GivenScalars& given) {
  const Session session = decoder_session();
  const std::vector<Choice> choices = value_of(parse_choices(session, sequence_text));
  const Sequence sequence = value_of(in_sequence(session, choices, Choosing::known));
  Simulated result;
  result.scalars = value_of(scalar_values(sequence.program, sequence.dependencies, given));
  const Cluster cluster = chain(2, hop_latency);
  const CostTable costs(std::vector<CostSourcePtr>(2, roofline(flops_per_second(1e5), bytes_per_second(1e6))), "");
  const TimedGraph graph =
      value_of(build_timed_graph(sequence.program, sequence.dependencies, cluster, costs, result.scalars));
  Timing fast;
  simulate_fast(graph, fast);
  const Timing simgrid = value_of(simulate_all(simgrid_tier(), cluster, {&graph})).front();
  expect_same(fast, simgrid, 1e-9, "tiers");
  const Trace trace = to_trace(sequence.program, sequence.dependencies, graph, simgrid);
  for (const Span& span : trace.spans) {
    const auto e =
        static_cast<size_t>(sequence.execution_of[static_cast<size_t>(span.device)][static_cast<size_t>(span.slot)]);
    if (e >= result.end.size()) result.end.resize(e + 1);
    result.end[e] = std::max(result.end[e], span.finish);
  }
  return result;
}

GivenScalars counts(int64_t a, int64_t b) {
  const std::vector<int64_t> values = {a, b};
  return {{{"append/count", raw_of(DType::i64, std::span<const int64_t>(values))}}};
}

// Each step sees one position more of each active slot: (2 * (4 + 4) + 6) operations more, at 1e5 a second, on each of
// two devices beside each other.
TEST(DecoderSimulation, AStepCostsWhatIsThere) {
  for (const int64_t active : {1, 2}) {
    const Simulated made = simulate("load append step*10", counts(4, active == 2 ? 4 : 0));
    EXPECT_TRUE(made.scalars.unknown.empty());
    ASSERT_EQ(made.end.size(), 12u);
    const double more = static_cast<double>(active) * 22 / 1e5;
    for (size_t step = 3; step + 1 < made.end.size(); ++step) {
      const double before = made.end[step] - made.end[step - 1], after = made.end[step + 1] - made.end[step];
      EXPECT_NEAR(after - before, more, 1e-9) << step;
    }
  }
}

// Nobody says how much is appended: every step then costs as much as the longest would.
TEST(DecoderSimulation, WhatIsUnknownIsTheMaximum) {
  const Simulated made = simulate("load append step*10", {});
  EXPECT_THAT(made.scalars.unknown, ::testing::Contains("device A buffer step/seen"));
  const Simulated known = simulate("load append step*12", counts(4, 4));
  for (size_t step = 3; step + 1 < made.end.size(); ++step)
    EXPECT_NEAR(made.end[step + 1] - made.end[step], made.end[step] - made.end[step - 1], 1e-9);
  const double longest = known.end[13] - known.end[12];
  EXPECT_NEAR(made.end[5] - made.end[4], longest, 1e-9);
}

TEST(DecoderSimulation, ASequenceThatIsTooLongIsRefused) {
  const Session session = decoder_session();
  const std::vector<Choice> choices = value_of(parse_choices(session, "load append step*13"));
  const Sequence sequence = value_of(in_sequence(session, choices, Choosing::known));
  const auto refused = scalar_values(sequence.program, sequence.dependencies, counts(2, 4));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("step/begin[1] is 16, outside 0 … 15"));
}

}  // namespace
}  // namespace nlsplit::testing
