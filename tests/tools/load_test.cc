// The load that is sent to a server of a language model, and the same simulated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/served_model.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using json = nlohmann::json;

TEST(Load, IsSentReplayedAndSimulated) {
  const Scratch scratch;
  const Server server("--plan one --waiting 50");
  const std::string trace = scratch / "trace.json", made = scratch / "load.json";
  const Outcome sent =
      nlbench(fmt::format("load --url {} --rate 200/s --requests 40 --prompt-length 4..12 --tokens 2..9 "
                          "--seed 3 --save-trace {} --json {}",
                          server.url(), trace, made));
  ASSERT_EQ(sent.code, 0) << sent.err;
  EXPECT_THAT(sent.out, StartsWith("40 requests: 40 answered, 0 turned away, 0 failed\n"));
  const json load = json::parse(value_of(read_file(made))), asked = json::parse(value_of(read_file(trace)));
  ASSERT_EQ(load.at("requests").size(), 40u);
  for (size_t r = 0; r < 40; ++r) {
    EXPECT_EQ(load["requests"][r]["tokens"], asked["requests"][r]["tokens"]);
    EXPECT_GE(load["requests"][r]["first_s"], asked["requests"][r]["at_s"]);
  }
  EXPECT_GT(load.at("summary").at("next_token").at("p99_s"), 0);
  const Outcome again = nlbench(fmt::format("load --url {} --trace {} --json -", server.url(), trace));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(json::parse(again.out).at("summary").at("answered"), 40);
  const std::string scenario = scratch.write("s.yaml", serving_scenario());
  const Outcome simulated = nlsim(fmt::format("serve {} --plan one --trace {} --waiting 50 --json -", scenario, trace));
  ASSERT_EQ(simulated.code, 0) << simulated.err;
  const json simulation = json::parse(simulated.out);
  EXPECT_EQ(simulation.at("summary").at("answered"), 40);
  EXPECT_EQ(simulation.at("slots"), 3);
  EXPECT_GT(simulation.at("prefill").at("at_none_s"), simulation.at("decode").at("at_none_s"));
}

// The server reuses what the simulator says, request by request: they come one after the other.
TEST(Load, SharesPrefixesAndIsSimulatedSo) {
  const Scratch scratch;
  const Server server("--plan one");
  const std::string scenario = scratch.write("s.yaml", serving_scenario()), made = scratch / "load.json";
  std::string requests;
  int64_t expected = 0;
  for (int r = 0; r < 9; ++r) {
    requests += fmt::format(R"({}{{"at_s": {}, "prompt": {}, "tokens": 3, "prefix": {}, "text": {}}})",
                            r == 0 ? "" : ",", r * 0.3, 20 + 8 * (r / 3), 15 + 8 * (r / 3), r % 3);
    if (r >= 3) expected += 15 + 8 * (r / 3 - 1);  // the prefix of the turn before
  }
  const std::string trace = scratch.write(
      "t.json",
      fmt::format(R"({{"format": "nlsplit-requests", "version": 1, "seed": 1, "requests": [{}]}})", requests));
  const Outcome sent =
      nlbench(fmt::format("load --url {} --trace {} --vocabulary 700 --json {}", server.url(), trace, made));
  ASSERT_EQ(sent.code, 0) << sent.err;
  EXPECT_THAT(sent.out, HasSubstr(fmt::format("of 252 tokens of prompts {} were reused", expected)));
  const json load = json::parse(value_of(read_file(made)));
  EXPECT_EQ(load.at("summary").at("cached_tokens"), expected);
  EXPECT_EQ(load.at("requests").at(8).at("cached"), 23);
  const auto simulated = [&](const std::string& more) {
    const Outcome run = nlsim(fmt::format("serve {} --plan one --trace {} --json - {}", scenario, trace, more));
    EXPECT_EQ(run.code, 0) << run.err;
    return json::parse(run.out).at("summary");
  };
  EXPECT_EQ(simulated("").at("cached_tokens"), expected);
  EXPECT_EQ(simulated("--no-prefix-reuse").at("cached_tokens"), 0);
  EXPECT_LT(simulated("").at("first_token").at("mean_s"),
            simulated("--no-prefix-reuse").at("first_token").at("mean_s"));
  const Outcome drawn = nlsim(fmt::format(
      "serve {} --plan one --rate 1/s --requests 50 --prompt-length 4 --tokens 4 --shared-prefix 40 --shared-texts 2",
      scenario));
  EXPECT_THAT(drawn.out, HasSubstr("of 2,200 tokens of prompts 1,920 were reused"));
  const Outcome long_one = nlsim(fmt::format(
      "serve {} --plan one --rate 1/s --requests 5 --prompt-length 9 --shared-prefix 1073741820", scenario));
  EXPECT_EQ(long_one.code, 2);
  EXPECT_THAT(long_one.err, HasSubstr("--shared-prefix 1073741820 and --prompt-length 9 are together above"));
}

TEST(Load, IsSimulatedAsTheScenarioSays) {
  const Scratch scratch;
  const std::string arrivals = "chunk: 4, sequences: 3, context: 64, arrivals: {rate: 30/min, requests: 20, seed: 5}";
  const std::string scenario = scratch.write("s.yaml", serving_scenario(arrivals)), trace = scratch / "t.json";
  const Outcome simulated = nlsim(fmt::format("serve {} --plan one --save-trace {}", scenario, trace));
  ASSERT_EQ(simulated.code, 0) << simulated.err;
  EXPECT_THAT(simulated.out, HasSubstr("20 requests: 20 answered"));
  const json requests = json::parse(value_of(read_file(trace))).at("requests");
  EXPECT_EQ(requests.size(), 20u);
  EXPECT_EQ(requests[0].at("prompt"), 8);
  EXPECT_GT(requests[19].at("at_s"), 15);  // 40 in the mean
  const Outcome passed_over = nlsim(fmt::format("serve {} --plan one --requests 3", scenario));
  EXPECT_EQ(passed_over.code, 2);
  EXPECT_THAT(passed_over.err, HasSubstr("--requests requires --rate"));
  const auto refused = [&](const std::string& wrong) {
    const Outcome run = nlsim("serve " + scratch.write("w.yaml", serving_scenario("chunk: 4, arrivals: " + wrong)));
    EXPECT_EQ(run.code, 2) << run.out;
    return run.err;
  };
  EXPECT_THAT(refused("{rate: 2, requests: 3}"), HasSubstr("w.yaml:2:"));
  EXPECT_THAT(refused("{rate: 2, requests: 3}"), HasSubstr("\"2\" is not a rate such as 2/s"));
  EXPECT_THAT(refused("{rate: 2/s, requests: 0}"), HasSubstr("requests"));
  EXPECT_THAT(refused("{rate: 2/s}"), HasSubstr("requests"));
  const Outcome plain = nlsim("serve " + scratch.write("p.yaml", small_scenario()) + " --rate 1/s --requests 2");
  EXPECT_EQ(plain.code, 2);
  EXPECT_THAT(plain.err, HasSubstr("is what a server runs"));
}

TEST(Load, SaysWhatItHasWhenItIsInterrupted) {
  const Scratch scratch;
  const Server server("--plan one");
  const std::string made = scratch / "load.json",
                    trace = scratch.write("trace.json",
                                          R"({"format": "nlsplit-requests", "version": 1, "seed": 1, "requests": [
          {"at_s": 0, "prompt": 3, "tokens": 2}, {"at_s": 1e6, "prompt": 3, "tokens": 2}]})");
  // `--foreground`: one signal, not two.
  const Outcome sent = run_command(
      fmt::format("timeout --foreground --preserve-status -s INT 6 {}/nlbench load --url {} --trace {} --json {}",
                  NLS_BIN_DIR, server.url(), trace, made));
  EXPECT_EQ(sent.code, 130) << sent.err;
  EXPECT_THAT(sent.out, StartsWith("1 request: 1 answered"));
  EXPECT_THAT(sent.err, HasSubstr("1 of 2 requests had not ended"));
  EXPECT_EQ(json::parse(value_of(read_file(made))).at("requests").size(), 1u);
}

TEST(Load, CountsWhatIsTurnedAwayAndSaysWhatIsWrong) {
  const Server server("--plan one --waiting 0", 1, "chunk: 4, sequences: 1, context: 4096, candidates: 20");
  const Outcome sent = nlbench(
      fmt::format("load --url {} --rate 1000/s --requests 30 --prompt-length 8 --tokens 400 --json -", server.url()));
  ASSERT_EQ(sent.code, 0) << sent.err;
  const json summary = json::parse(sent.out).at("summary");
  EXPECT_GT(summary.at("turned_away"), 0);
  EXPECT_GT(summary.at("answered"), 0);
  EXPECT_EQ(summary.at("failed"), 0);
  const auto refused = [](const std::string& arguments, int code) {
    const Outcome run = nlbench("load " + arguments);
    EXPECT_EQ(run.code, code) << run.out;
    return run.out + run.err;
  };
  EXPECT_THAT(refused("--url ftp://x --rate 1/s --requests 1", 2), HasSubstr("no URL of a server"));
  EXPECT_THAT(refused("--url http://127.0.0.1:1 --rate 1 --requests 1", 2), HasSubstr("is not a rate"));
  EXPECT_THAT(refused("--url http://127.0.0.1:1", 2), HasSubstr("--rate and --requests"));
  EXPECT_THAT(refused("--url http://127.0.0.1:1 --requests 3", 2), HasSubstr("--requests requires --rate"));
  EXPECT_THAT(refused("--url http://127.0.0.1:1 --rate 1/s --requests 1 --patience 1e300", 2), HasSubstr("--patience"));
  EXPECT_THAT(refused("--url http://127.0.0.1:1 --rate 1e-9/s --requests 99", 2), HasSubstr("beyond the latest"));
  EXPECT_THAT(refused("--url http://127.0.0.1:1 --rate 100/s --requests 2", 1), HasSubstr("2 failed: connect: "));
}

}  // namespace
}  // namespace nlsplit
