// noise in a scenario: what it becomes, and every way in which it can be wrong.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scenario/scenario.h"

namespace nlsplit {
namespace {

constexpr int line_of_noise = 10;

std::string with_noise(std::string_view noise) {
  return fmt::format(R"(model: zoo:simple_cnn
workload: {{batch: 8}}
devices:
  A: {{host: a, memory: 1GiB, costs: {{roofline: {{compute: 60GFLOPS, memory: 10GBps}}}}}}
  Bob: {{host: b, memory: 1GiB, costs: {{roofline: {{compute: 60GFLOPS, memory: 10GBps}}}}}}
links:
  - {{between: [a, b], bandwidth: 1Gbps, latency: 50us}}
source: a
sink: a
noise: {}
)",
                     noise);
}

Noise parsed(std::string_view noise) {
  const auto scenario = parse_scenario(with_noise(noise), "s.yaml");
  EXPECT_TRUE(scenario.ok()) << scenario.error().to_string();
  return scenario.ok() ? scenario->noise.value() : Noise{};
}

TEST(ScenarioNoise, EveryKeyArrives) {
  const Noise noise = parsed(R"(
  seed: 7
  runs: 50
  compute: {jitter: 5%}
  links: {jitter: 12.5%}
  stragglers:
    - {device: Bob, slowdown: 2, from: 10ms, for: 50ms, probability: 20%}
    - {slowdown: 1.5, probability: 5%}
  background:
    - {link: a-b, share: 30%}
    - {link: a-b, share: 60%, on: 20ms, off: 80ms}
  degrade:
    - {link: a-b, to: 10Mbps, at: 100ms, for: 1s, probability: 10%}
    - {link: a-b, to: 100Mbps})");
  EXPECT_EQ(noise.seed, 7u);
  EXPECT_EQ(noise.runs, 50);
  EXPECT_DOUBLE_EQ(noise.compute_jitter, 0.05);
  EXPECT_DOUBLE_EQ(noise.link_jitter, 0.125);
  ASSERT_EQ(noise.stragglers.size(), 2u);
  EXPECT_EQ(noise.stragglers[0].device, DeviceId(1));
  EXPECT_EQ(noise.stragglers[0].slowdown, 2);
  EXPECT_DOUBLE_EQ(noise.stragglers[0].from, 0.01);
  EXPECT_DOUBLE_EQ(noise.stragglers[0].until, 0.06);
  EXPECT_DOUBLE_EQ(noise.stragglers[0].chance, 0.2);
  EXPECT_FALSE(noise.stragglers[1].device.valid());
  EXPECT_EQ(noise.stragglers[1].until, for_ever);
  ASSERT_EQ(noise.background.size(), 2u);
  EXPECT_DOUBLE_EQ(noise.background[0].share, 0.3);
  EXPECT_EQ(noise.background[0].on, 0);
  EXPECT_DOUBLE_EQ(noise.background[1].on, 0.02);
  EXPECT_DOUBLE_EQ(noise.background[1].off, 0.08);
  ASSERT_EQ(noise.degradations.size(), 2u);
  EXPECT_EQ(noise.degradations[0].to, bytes_per_second(1.25e6));
  EXPECT_DOUBLE_EQ(noise.degradations[0].at, 0.1);
  EXPECT_DOUBLE_EQ(noise.degradations[0].until, 1.1);
  EXPECT_DOUBLE_EQ(noise.degradations[0].chance, 0.1);
  EXPECT_EQ(noise.degradations[1].at, 0);
  EXPECT_EQ(noise.degradations[1].until, for_ever);
  EXPECT_EQ(noise.degradations[1].chance, 1);
}

TEST(ScenarioNoise, Defaults) {
  const Noise noise = parsed("{compute: {jitter: 5%}}");
  EXPECT_EQ(noise.seed, 1u);
  EXPECT_EQ(noise.runs, 30);
  EXPECT_EQ(noise.link_jitter, 0);
  // One run tells all where nothing is left to chance.
  EXPECT_EQ(parsed("{stragglers: [{device: A, slowdown: 2}]}").runs, 1);
  EXPECT_EQ(parsed("{background: [{link: a-b, share: 50%}], degrade: [{link: a-b, to: 1Mbps}]}").runs, 1);
  EXPECT_EQ(parsed("{background: [{link: a-b, share: 50%, on: 1ms, off: 1ms}]}").runs, 30);
}

struct BadNoise {
  const char* name;
  const char* noise;  // stands in line 10, from column 8 on
  int column;
  const char* message;
};

const BadNoise bad_noises[] = {
    // clang-format off
    {"Nothing", "{}", 8, "this noise disturbs nothing: give it compute, links, stragglers, background or degrade"},
    {"SeedAlone", "{seed: 3}", 8, "this noise disturbs nothing: give it compute, links, stragglers, background or degrade"},
    {"UnknownKey", "{straggler: []}", 9, "unknown key 'straggler' in noise: did you mean 'stragglers'? Its keys are seed, runs, compute, links, stragglers, background, degrade"},
    {"RunsOfOne", "{runs: 1, compute: {jitter: 5%}}", 15, "runs must be from 2 to 10000, not 1"},
    {"RunsWithoutChance", "{runs: 9, stragglers: [{device: A, slowdown: 2}]}", 15, "nothing of this noise is left to chance, so all runs would be the same: leave 'runs' out"},
    {"JitterWithoutUnit", "{compute: {jitter: 0.05}}", 27, "'0.05' has no unit; a percentage is expected, e.g. 5%"},
    {"JitterOfNone", "{compute: {jitter: 0%}}", 27, "jitter must be above 0% and at most 100%, not 0%"},
    {"JitterNegative", "{links: {jitter: -5%}}", 25, "jitter must be above 0% and at most 100%, not -5%"},
    {"JitterTooMuch", "{links: {jitter: 101%}}", 25, "jitter must be above 0% and at most 100%, not 101%"},
    {"JitterNotANumber", "{links: {jitter: nan%}}", 25, "'nan%' is not a percentage; write e.g. 5%"},
    {"JitterInSeconds", "{links: {jitter: 5ms}}", 25, "'5ms' is not a percentage; write e.g. 5%"},
    {"JitterLess", "{compute: {}}", 18, "compute of noise lacks 'jitter'"},
    {"UnknownDevice", "{stragglers: [{device: Bop, slowdown: 2}]}", 31, "unknown device 'Bop'; did you mean 'Bob'?"},
    {"NoSlowdown", "{stragglers: [{device: A}]}", 22, "straggler 1 lacks 'slowdown'"},
    {"SlowdownOfOne", "{stragglers: [{device: A, slowdown: 1}]}", 44, "a slowdown of 1 slows nothing down"},
    {"SlowdownThatSpeedsUp", "{stragglers: [{device: A, slowdown: 0.5}]}", 44, "slowdown must be a number from 1 to 1000000, not '0.5'"},
    {"AllDevicesForSure", "{stragglers: [{slowdown: 2}]}", 22, "straggler 1 names no device, so each device is one by chance: it needs a 'probability' below 100%"},
    {"NoProbability", "{stragglers: [{device: A, slowdown: 2, probability: 0%}]}", 60, "probability must be above 0% and at most 100%, not 0%"},
    {"ForNoTime", "{stragglers: [{device: A, slowdown: 2, for: 0s}]}", 52, "'for' 0s is never; leave it out for ever"},
    {"FromLate", "{stragglers: [{device: A, slowdown: 2, from: 4000s}]}", 53, "'from' of more than an hour cannot be"},
    {"FromWithoutUnit", "{stragglers: [{device: A, slowdown: 2, from: 4}]}", 53, "'4' has no unit; write e.g. 4us, 4ms or 4s"},
    {"StragglersAsMap", "{stragglers: {device: A, slowdown: 2}}", 21, "stragglers must be a list; this is a map"},
    {"UnknownLink", "{background: [{link: b-a, share: 30%}]}", 29, "unknown link 'b-a': did you mean 'a-b'? x-y is the name of a link between x and y that has none"},
    {"NoShare", "{background: [{link: a-b}]}", 22, "background 1 lacks 'share'"},
    {"WholeLink", "{background: [{link: a-b, share: 100%}]}", 41, "background 1 would take 100% of link 'a-b': nothing would be left for messages"},
    {"MoreThanTheLink", "{background: [{link: a-b, share: 130%}]}", 41, "share must be above 0% and at most 100%, not 130%"},
    {"SumOfShares", "{background: [{link: a-b, share: 60%}, {link: a-b, share: 50%, on: 1s, off: 1s}]}", 66, "background 2 would take 110% of link 'a-b': nothing would be left for messages"},
    {"BurstsWithoutPauses", "{background: [{link: a-b, share: 60%, on: 1s}]}", 22, "background 1 has 'on' without 'off': bursts need both; leave both out for traffic without a pause"},
    {"BurstsTooShort", "{background: [{link: a-b, share: 60%, on: 1ns, off: 1s}]}", 50, "'on' must be at least 1 us"},
    {"DegradeUp", "{degrade: [{link: a-b, to: 2Gbps}]}", 35, "link 'a-b' has 1 Gbit/s: it cannot degrade to 2Gbps"},
    {"DegradeToTheSame", "{degrade: [{link: a-b, to: 1Gbps}]}", 35, "link 'a-b' has 1 Gbit/s: it cannot degrade to 1Gbps"},
    {"DegradeToNothing", "{degrade: [{link: a-b, to: 0bps}]}", 35, "a bandwidth of 0bps cannot be"},
    {"DegradeTwiceAtOnce", "{degrade: [{link: a-b, to: 1Mbps, at: 5ms}, {link: a-b, to: 2Mbps, at: 5ms}]}", 79, "link 'a-b' already degrades at 5 ms"},
    {"DegradeLacksTo", "{degrade: [{link: a-b, at: 5ms}]}", 19, "degrade 1 lacks 'to'"},
    {"JitterBeyondNumbers", "{links: {jitter: 1e999%}}", 25, "'1e999%' is not a percentage; write e.g. 5%"},
    {"JitterOfInfinity", "{links: {jitter: inf%}}", 25, "'inf%' is not a percentage; write e.g. 5%"},
    {"UnknownLinkWithoutHint", "{background: [{link: elsewhere, share: 30%}]}", 29, "unknown link 'elsewhere'; x-y is the name of a link between x and y that has none"},
    {"PausesWithoutBursts", "{background: [{link: a-b, share: 60%, off: 1s}]}", 22, "background 1 has 'off' without 'on': bursts need both; leave both out for traffic without a pause"},
    {"DegradeTwiceAtTheStart", "{degrade: [{link: a-b, to: 1Mbps}, {link: a-b, to: 2Mbps}]}", 43, "link 'a-b' already degrades at 0 s"},
    // clang-format on
};

class BadNoiseTest : public ::testing::TestWithParam<BadNoise> {};

TEST_P(BadNoiseTest, IsRefusedAtItsPlace) {
  const auto scenario = parse_scenario(with_noise(GetParam().noise), "s.yaml");
  ASSERT_FALSE(scenario.ok());
  EXPECT_EQ(scenario.error().to_string(), fmt::format("s.yaml:{}:{}: {}\n  | noise: {}", line_of_noise,
                                                      GetParam().column, GetParam().message, GetParam().noise));
  EXPECT_EQ(exit_code(scenario.error()), 2);
}

INSTANTIATE_TEST_SUITE_P(All, BadNoiseTest, ::testing::ValuesIn(bad_noises),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace nlsplit
