// Errors that take more than one changed word: keys that do not go together, programs of a session, lists in messages.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "good_scenario.h"
#include "scenario/scenario.h"
#include "schedule/schedules.h"

namespace nlsplit {
namespace {

TEST(ScenarioErrors, LevelsAndPrecisionsKnowTheirDevices) {
  const auto error_of = [](const std::string& words) {
    std::string text(good);
    text.replace(text.find("host: a"), 7, "host: a, " + words);
    return parse_scenario(text, "s.yaml").error().message;
  };
  EXPECT_EQ(error_of("kind: cuda, isa: v3"), "a GPU has no instruction level; 'precision' says how it computes");
  EXPECT_EQ(error_of("isa: tf32"), "'tf32' is a GPU's level; write kind: cuda");
  std::string cuda(good);
  cuda.replace(cuda.find("host: a"), 7, "host: a, kind: cuda, precision: tf32");
  const auto scenario = parse_scenario(cuda, "s.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.error().to_string();
  EXPECT_EQ(scenario->cluster.devices[0].kind, DeviceKind::cuda);
  EXPECT_EQ(scenario->cluster.devices[0].level, Level(Isa::cuda, Precision::tf32));
}

TEST(ScenarioErrors, NoTextOnAGpu) {
  std::string text(good);
  text.replace(text.find("mode: inference, batch: 16, micro_batches: [1, 4]"), 49, "mode: generation");
  text.replace(text.find("B: {host: b"), 11, "B: {host: b, kind: cuda");
  const auto scenario = parse_scenario(text, "s.yaml");
  ASSERT_FALSE(scenario.ok());
  EXPECT_EQ(scenario.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(scenario.error().to_string(),
            "s.yaml:5:22: text is generated on CPUs only: a GPU has no kernels for the caches of keys and values"
            "\n  |   B: {host: b, kind: cuda, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}");
}

TEST(ScenarioErrors, OfProgramsOfASession) {
  const auto parsed = [](const std::string& programs) {
    std::string text(good);
    const std::string workload = "workload: {mode: inference, batch: 16, micro_batches: [1, 4]}";
    text.replace(text.find(workload), workload.size(), programs);
    return parse_scenario(text, "s.yaml");
  };
  const auto error_of = [&](const std::string& programs) {
    const auto scenario = parsed(programs);
    return scenario.ok() ? "no error" : scenario.error().to_string();
  };
  const std::string train = "train: {mode: training, batch: 16, micro_batches: [2, 4], optimizer: momentum}";
  const auto good_one = parsed("programs: {" + train + ", evaluate: {batch: 8, schedule: streaming}}");
  ASSERT_TRUE(good_one.ok()) << good_one.error().to_string();
  EXPECT_TRUE(good_one->training.has_value());  // of the first
  EXPECT_EQ(good_one->batch, 16);
  EXPECT_EQ(good_one->schedules, (std::vector<std::string>{"gpipe", "1f1b"}));
  ASSERT_EQ(good_one->programs.size(), 2u);
  EXPECT_EQ(good_one->programs[1].name, "evaluate");
  EXPECT_EQ(good_one->programs[1].workload.batch, 8);
  EXPECT_EQ(good_one->programs[1].workload.micro_batches, std::vector<int>{1});
  EXPECT_FALSE(good_one->programs[1].workload.training.has_value());

  EXPECT_EQ(error_of("workload: {batch: 4}\nprograms: {" + train + "}"),
            "s.yaml:2:11: 'programs' has the workloads: the first program's is the one that plans are ranked for\n"
            "  | workload: {batch: 4}");
  EXPECT_EQ(error_of("programs: [train]"),
            "s.yaml:2:11: programs must be a map, e.g. {train: {mode: training, batch: 32}, evaluate: {batch: 64}}\n"
            "  | programs: [train]");
  EXPECT_EQ(error_of("programs: {a: {batch: 4}, b: {batch: 8, micro_batches: [1, 2]}}"),
            "s.yaml:2:56: program b needs one count: several are tried for the first program, which plans are ranked "
            "for\n  | programs: {a: {batch: 4}, b: {batch: 8, micro_batches: [1, 2]}}");
  EXPECT_EQ(error_of("programs: {a: {batch: 4}, b: {batch: 8, mode: training}}"),
            "s.yaml:2:27: program b trains, so the first program must: where weights change, plans are ranked with "
            "weights that change\n  | programs: {a: {batch: 4}, b: {batch: 8, mode: training}}");
  EXPECT_EQ(error_of("programs: {a: {batch: 4, mode: training}, b: {batch: 8, mode: training, optimizer: adam}}"),
            "s.yaml:2:43: program b has another optimizer than the first program: they share what it keeps of each "
            "weight\n  | programs: {a: {batch: 4, mode: training}, b: {batch: 8, mode: training, optimizer: adam}}");
  EXPECT_EQ(error_of("programs: {a: {batch: 4, pace: 3}}"),
            "s.yaml:2:26: unknown key 'pace' in program a; its keys are mode, batch, micro_batches, optimizer, "
            "learning_rate, clip, batch_norm, recompute, loss, all_reduce, all_reduce_buckets, seed, zero, schedule\n  "
            "| programs: {a: {batch: 4, "
            "pace: 3}}");
}

TEST(ScenarioErrors, UnknownScheduleListsThem) {
  std::string text(good);
  text += "search: {schedules: [none_such]}\n";
  const Error error = parse_scenario(text, "s.yaml").error();
  EXPECT_EQ(error.where, (Location{"s.yaml", 12, 22}));
  EXPECT_EQ(error.message.find("unknown schedule 'none_such'; it is "), 0u);
  for (const SchedulePolicy& policy : all_schedules()) {
    EXPECT_NE(error.message.find(fmt::format("'{}'", policy.name)), std::string::npos) << error.message;
  }
}

TEST(ScenarioErrors, UnknownIsaIsAtItsPlace) {
  std::string text(good);
  text.replace(text.find("host: a"), 7, "host: a, isa: v9");
  const Error error = parse_scenario(text, "s.yaml").error();
  EXPECT_EQ(error.where, (Location{"s.yaml", 4, 21}));
  EXPECT_NE(error.message.find("v9"), std::string::npos);
}

TEST(ScenarioErrors, EmptyTexts) {
  EXPECT_EQ(parse_scenario("", "s.yaml").error().to_string(), "s.yaml: this scenario is empty");
  EXPECT_EQ(parse_scenario("# only a comment\n", "s.yaml").error().to_string(), "s.yaml: this scenario is empty");
  EXPECT_EQ(read_scenario("/no/such/s.yaml").error().kind, ErrorKind::io);
}

}  // namespace
}  // namespace nlsplit
