// nlsim collectives, through the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "testing/paths.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

const std::string scenario = std::string(NLS_SOURCE_DIR) + "/scenarios/training.yaml";

// Four hosts around a switch, 10 Gbit/s and 25 us each: a share of 1 MB takes 0.8 ms and 50 us.
TEST(CollectivesCommand, TimesWhatLinksTake) {
  const Outcome outcome = nlsim("collectives " + scenario + " --size 4MB --kind all-gather --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::map<std::string, nlohmann::json> rows;
  const auto answer = nlohmann::json::parse(outcome.out);
  for (const auto& row : answer.at("algorithms")) rows[row.at("algorithm").get<std::string>()] = row;
  constexpr double share = 0.8e-3, latency = 50e-6;
  for (const auto& [algorithm, seconds] : {std::pair<std::string, double>("direct", 3 * share + latency),
                                           {"ring", 3 * (share + latency)},
                                           {"doubling", share + latency + 2 * share + latency}}) {
    EXPECT_NEAR(rows.at(algorithm).at("estimate_s").get<double>(), seconds, 1e-9) << algorithm;
    EXPECT_NEAR(rows.at(algorithm).at("makespan_s").at("simgrid").get<double>(), seconds, 1e-9) << algorithm;
    EXPECT_EQ(rows.at(algorithm).at("sent_bytes"), 3'000'000) << algorithm;
  }
}

TEST(CollectivesCommand, KnowsEveryKind) {
  const Outcome outcome = nlsim("collectives " + scenario + " --size 1MiB --devices m0,m1,m3");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* word :
       {"1 MiB over 3 devices", "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "two_level"})
    EXPECT_THAT(outcome.out, HasSubstr(word));
}

TEST(CollectivesCommand, RefusesWhatIsNotThere) {
  const auto refused = [](const std::string& arguments) {
    const Outcome outcome = nlsim("collectives " + scenario + " " + arguments);
    EXPECT_EQ(outcome.code, 2);
    return outcome.err;
  };
  EXPECT_THAT(refused("--size 1MB --kind gather"), HasSubstr("unknown collective 'gather'"));
  EXPECT_THAT(refused("--size 1MB --devices m0,m9"), HasSubstr("has no device 'm9'"));
  EXPECT_THAT(refused("--size 1MB --devices m0"), HasSubstr("needs two devices at least"));
  EXPECT_THAT(refused("--size 3B"), HasSubstr("less than an element"));
}

}  // namespace
}  // namespace nlsplit
