// `nlbench validate` as a user meets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "testing/paths.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Validate : public ::testing::Test {
 protected:
  std::string command(const std::string& more = "") const {
    return fmt::format("validate {} -o {} --top 2 --also 2 --rounds 1 --duration 10ms --transport threads {}",
                       scenario_, scratch_ / "v", more);
  }
  json report() const { return json::parse(value_of(read_file(scratch_ / "v/report.json"))); }

  Scratch scratch_;
  std::string scenario_ = scratch_.write("s.yaml", small_scenario());
};

TEST_F(Validate, MeasuresWhatItPredicted) {
  const Outcome outcome = nlbench(command());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("5 of 5 plans measured"));
  for (const char* part :
       {"  mine: A ..relu1", "throughput error", "control            ", "run to run", "order", "regret", "report.html"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
  const json figures = report();
  ASSERT_EQ(figures["plans"].size(), 5u);
  int sampled = 0;
  for (const json& plan : figures["plans"]) {
    EXPECT_GT(plan["measured"]["makespan_s"].get<double>(), 0);
    sampled += plan["sampled"].get<bool>() ? 1 : 0;
  }
  EXPECT_EQ(sampled, 2);
  EXPECT_EQ(figures["quality"]["plans"], 5);
  EXPECT_EQ(figures["relative_quality"]["plans"], 5);
  EXPECT_EQ(figures["control"]["runs"], 2) << "before and after the one round";
  EXPECT_THAT(value_of(read_file(scratch_ / "v/report.html")), HasSubstr("</html>"));
}

// Plans of a training step, with counts of micro-batches whose steps have other constants.
TEST_F(Validate, MeasuresStepsOfTraining) {
  const std::string scenario =
      scratch_.write("t.yaml",
                     "model: zoo:mlp\n"
                     "workload: {mode: training, batch: 8, micro_batches: [1, 2, 4]}\n"
                     "devices:\n"
                     "  a: &machine {host: h1, memory: 64MiB, costs: {roofline: {compute: 20GFLOPS, memory: 10GBps}}}\n"
                     "  b: {<<: *machine, host: h2}\n"
                     "links: [{between: [h1, h2], bandwidth: 1Gbps, latency: 50us}]\n"
                     "source: h1\nsink: h1\nsearch: {schedules: [gpipe, 1f1b], splits: [layer, replicate]}\n");
  const Outcome outcome = nlbench(fmt::format(
      "validate {} -o {} --top 4 --also 4 --rounds 1 --duration 5ms --transport threads", scenario, scratch_ / "v"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::set<int> micro_batches;
  const json plans = json::parse(value_of(read_file(scratch_ / "v/plans.json")));
  for (const json& plan : plans["plans"]) micro_batches.insert(plan["micro_batches"].get<int>());
  EXPECT_GT(micro_batches.size(), 1u);
  EXPECT_EQ(report()["plans"].size(), plans["plans"].size());
  const auto count = plans["plans"].size();
  EXPECT_THAT(outcome.out, HasSubstr(fmt::format("{} of {} plans measured", count, count)));
}

// Plans of a language model are sessions: TPOT and TTFT, beside the unsplit network's.
TEST_F(Validate, MeasuresTokensOfGeneration) {
  const std::string scenario = scratch_.write(
      "g.yaml",
      "model: zoo:llama?layers=2&hidden=32&heads=4&kv_heads=2&ffn=64&vocab=100\n"
      "workload: {mode: generation, prompt: 6, tokens: 5, chunk: 3, sequences: 2, micro_batches: [1, 2]}\n"
      "devices:\n"
      "  a: &machine {host: h1, memory: 64MiB, costs: {roofline: {compute: 20GFLOPS, memory: 10GBps}}}\n"
      "  b: {<<: *machine, host: h2}\n"
      "links: [{between: [h1, h2], bandwidth: 1Gbps, latency: 50us}]\n"
      "source: h1\nsink: h1\n");
  const std::string run = fmt::format(
      "validate {} -o {} --top 3 --also 1 --rounds 2 --duration 10ms --transport threads", scenario, scratch_ / "v");
  const Outcome outcome = nlbench(run);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"sequences 2", "4 of 4 plans measured", "TPOT error", "TTFT error",
                           "judged by          TPOT", "each token predicted"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
  EXPECT_THAT(outcome.out, Not(HasSubstr("computing")));
  const json figures = report();
  EXPECT_TRUE(figures["generates"]);
  for (const json& plan : figures["plans"]) {
    EXPECT_EQ(plan["measured"]["runs"], 2);
    EXPECT_GT(plan["measured"]["makespan_s"].get<double>(), 0);
    EXPECT_GT(plan["measured"]["latency_mean_s"].get<double>(), 0);
  }
  const Outcome refused = nlbench(run + " --recalibrate");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("nothing is learnt from that yet"));
}

// What computing adds to a plan's figures: all of it on one device, next to nothing behind a slow link.
TEST_F(Validate, KnowsHowMuchOfAPlanIsComputing) {
  const std::string scenario =
      scratch_.write("slow.yaml",
                     "model: zoo:simple_cnn\nworkload: {batch: 8, micro_batches: [4]}\n"
                     "devices:\n"
                     "  A: &machine {host: a, memory: 64MiB, costs: {roofline: {compute: 20GFLOPS, memory: 10GBps}}}\n"
                     "  B: {<<: *machine, host: b}\n"
                     "links: [{between: [a, b], bandwidth: 1Mbps, latency: 1ms}]\nsource: a\nsink: a\n"
                     "plans: {there: [rest@B]}\n");
  const std::string set = scratch_ / "set";
  ASSERT_EQ(nlsim(fmt::format("lower {} --validation-set {} --top 1 --also 0", scenario, set)).code, 0);
  const json plans = json::parse(value_of(read_file(set + "/plans.json")));
  EXPECT_NEAR(plans["control"]["makespan_by_computing"].get<double>(), 1, 1e-6);
  const json& there = plans["plans"].back();
  EXPECT_EQ(there["plan"], "there: B all");
  EXPECT_LT(there["makespan_by_computing"].get<double>(), 0.1);
  EXPECT_LT(there["latency_by_computing"].get<double>(), 0.1);
}

TEST_F(Validate, GoesOnWhereItStopped) {
  ASSERT_EQ(nlbench(command()).code, 0);
  const std::string first = value_of(read_file(scratch_ / "v/results.jsonl"));
  // Behind the header and the control the second run of five is lost, half of it is left.
  size_t at = 0;
  for (int line = 0; line < 3; ++line) at = first.find('\n', at) + 1;
  ASSERT_TRUE(write_file(scratch_ / "v/results.jsonl", first.substr(0, at + 20)).ok());
  const Outcome outcome = nlbench(command());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("5 of 5 plans measured"));
  const std::string second = value_of(read_file(scratch_ / "v/results.jsonl"));
  EXPECT_EQ(second.substr(0, at), first.substr(0, at)) << "what was there is kept";
  // The control again, four runs, the control.
  EXPECT_EQ(std::count(second.begin(), second.end(), '\n'), 3 + 6);
}

TEST_F(Validate, RoundsAreJoined) {
  ASSERT_EQ(nlbench(command()).code, 0);
  std::string more = command();
  more.replace(more.find("--rounds 1"), 10, "--rounds 3");
  ASSERT_EQ(nlbench(more).code, 0);
  const json figures = report();
  for (const json& plan : figures["plans"]) EXPECT_EQ(plan["measured"]["runs"], 3);
  EXPECT_TRUE(figures["quality"]["regret_1_range"].is_array());
}

TEST_F(Validate, TheBestRunMoreOften) {
  const std::string more =
      fmt::format("validate {} -o {} --top 3 --also 5 --rounds 1 --duration 10ms --transport threads --final 3",
                  scenario_, scratch_ / "v");
  const Outcome outcome = nlbench(more);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json plans = report()["plans"];
  ASSERT_EQ(plans.size(), 9u);
  std::vector<std::pair<double, int>> runs;  // by what was predicted
  for (const json& plan : plans) runs.emplace_back(plan["predicted"]["makespan_s"], plan["measured"]["runs"]);
  std::ranges::sort(runs);
  for (size_t i = 0; i < runs.size(); ++i) {
    EXPECT_GE(runs[i].second, i < 5 ? 4 : 1);
    EXPECT_LE(runs[i].second, 4);
  }
  // All of it is there already.
  const std::string before = value_of(read_file(scratch_ / "v/results.jsonl"));
  ASSERT_EQ(nlbench(more).code, 0);
  EXPECT_EQ(value_of(read_file(scratch_ / "v/results.jsonl")), before);
  EXPECT_EQ(nlbench(command("--final -1")).code, 2);
}

// Runs are of plans that were chosen once; what costs say of them may change.
TEST_F(Validate, OtherCostsPredictTheSamePlans) {
  ASSERT_EQ(nlbench(command()).code, 0);
  const std::string runs = value_of(read_file(scratch_ / "v/results.jsonl"));
  const json before = report()["plans"];
  // All devices alike: the shares of copies stay, and so do the Programs.
  std::string slower = small_scenario();
  for (int i = 0; i < 3; ++i)
    slower = with(slower, "compute: 10GFLOPS, memory: 10GBps", "compute: 5GFLOPS, memory: 5GBps");
  scratch_.write("s.yaml", slower);
  const Outcome again = nlbench(command());
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(value_of(read_file(scratch_ / "v/results.jsonl")), runs) << "nothing had to be run";
  const json after = report()["plans"];
  ASSERT_EQ(after.size(), before.size());
  size_t changed = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i]["fingerprint"], before[i]["fingerprint"]);
    EXPECT_EQ(after[i]["measured"], before[i]["measured"]);
    changed += after[i]["predicted"] != before[i]["predicted"] ? 1 : 0;
  }
  EXPECT_GT(changed, 0u);
  // Other wishes draw anew.
  const Outcome more = nlbench(fmt::format(
      "validate {} -o {} --top 3 --also 2 --rounds 1 --duration 10ms --transport threads", scenario_, scratch_ / "v"));
  ASSERT_EQ(more.code, 0) << more.err;
  EXPECT_EQ(report()["plans"].size(), 6u);
  // Plans of devices that are no more, and a file that is none.
  scratch_.write("s.yaml", with(with(small_scenario(), "  C: {", "  D: {"), "rest@C", "rest@D"));
  const Outcome gone = nlbench(fmt::format(
      "validate {} -o {} --top 3 --also 2 --rounds 1 --duration 10ms --transport threads", scenario_, scratch_ / "v"));
  EXPECT_EQ(gone.code, 2);
  EXPECT_THAT(gone.err, HasSubstr("plans.json"));
  scratch_.write("v/plans.json", "{}");
  const Outcome broken = nlbench(command());
  EXPECT_EQ(broken.code, 2);
  EXPECT_THAT(broken.err, HasSubstr("plans.json"));
}

TEST_F(Validate, RecalibratesAScenario) {
  const Outcome outcome = nlbench(command("--recalibrate"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("on plans that did not teach it"));
  EXPECT_THAT(outcome.out, HasSubstr("corrections: v/corrections.json"));
  const json learnt = report()["recalibration"];
  EXPECT_FALSE(learnt["computing"].empty());
  EXPECT_EQ(learnt["after"]["plans"], 5);
  const std::string corrected = scratch_.write("c.yaml", small_scenario() + "corrections: v/corrections.json\n");
  const std::string ranking = nlsim("rank --csv - " + corrected).out;
  EXPECT_NE(ranking, "");
  EXPECT_NE(ranking, nlsim("rank --csv - " + scenario_).out);
  const Outcome twice = nlbench(
      fmt::format("validate {} -o {} --top 2 --also 2 --rounds 1 --duration 10ms --transport threads --recalibrate",
                  corrected, scratch_ / "w"));
  EXPECT_EQ(twice.code, 2);
  EXPECT_THAT(twice.err, HasSubstr("names corrections already"));
  scratch_.write("v/corrections.json", "{}");
  const Outcome broken = nlsim("rank " + corrected);
  EXPECT_EQ(broken.code, 2);
  EXPECT_THAT(broken.err, HasSubstr("c.yaml:"));
}

TEST_F(Validate, SaysWhatCannotBe) {
  const Outcome other = nlbench(fmt::format("validate {} -o {}", scratch_ / "missing.yaml", scratch_ / "v"));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("missing.yaml"));
  EXPECT_EQ(nlbench(command("--duration soon")).code, 2);
  EXPECT_EQ(nlbench(command("--top 0")).code, 2);
  const Outcome nobody =
      nlbench(fmt::format("validate {} -o {} --top 2 --also 2 --launcher /nowhere/mpirun", scenario_, scratch_ / "v"));
  EXPECT_EQ(nobody.code, 2);
  EXPECT_THAT(nobody.err, HasSubstr("cannot start /nowhere/mpirun"));
  const Outcome failing =
      nlbench(fmt::format("validate {} -o {} --top 3 --also 3 --launcher false", scenario_, scratch_ / "v"));
  EXPECT_EQ(failing.code, 1);
  EXPECT_THAT(failing.out, HasSubstr("1 plan failed"));  // the control twice, and the others were not tried
  EXPECT_THAT(failing.err, HasSubstr("failed"));
}

// Plans that ask for latency are judged by it.
TEST_F(Validate, ByTheObjectiveOfTheScenario) {
  scratch_.write("s.yaml", with(small_scenario(), "search: {", "search: {objective: latency, "));
  const Outcome outcome = nlbench(command());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("judged by          latency"));
  EXPECT_EQ(report()["objective"], "latency");
  scratch_.write("s.yaml", small_scenario());
  const Outcome other = nlbench(command());
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("were chosen for the objective latency"));
}

TEST_F(Validate, ConfidentlyUntilTheBestIsKnownOrRoundsEnd) {
  const std::string words = fmt::format(
      "validate {} -o {} --top 2 --also 1 --duration 5ms --transport threads --confident --confidence 0.6 "
      "--most-rounds 7",
      scenario_, scratch_ / "v");
  const Outcome outcome = nlbench(words);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("best plan          "));
  const json contest = report()["contest"];
  EXPECT_EQ(contest["confidence"], 0.6);
  ASSERT_GE(contest["left"].size(), 1u);
  EXPECT_GE(contest["left"][0]["rounds"], 5);
  EXPECT_LE(contest["left"][0]["rounds"], 7);
  // All of it is there already.
  const std::string before = value_of(read_file(scratch_ / "v/results.jsonl"));
  ASSERT_EQ(nlbench(words).code, 0);
  EXPECT_EQ(value_of(read_file(scratch_ / "v/results.jsonl")), before);
  EXPECT_EQ(nlbench(words + " --rounds 3").code, 2);
  EXPECT_EQ(nlbench(command("--confidence 0.9")).code, 2);
}

TEST_F(Validate, PlansThatCannotRunDoNotKeepOthersFromRunning) {
  const std::string set = scratch_ / "set";
  ASSERT_EQ(nlsim(fmt::format("lower {} --validation-set {} --top 1 --also 0", scenario_, set)).code, 0);
  const std::string turns = scratch_.write("turns", "run p1 first 0 1 2\nrun nowhere second 0\nrun control third 0\n");
  const Outcome outcome = nlbench(fmt::format("run {} --turns {} --transport threads --repeats 1", set, turns));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(value_of(read_file(set + "/second.error")), HasSubstr("failed"));
  for (const char* figures : {"/first.json", "/third.json"})
    EXPECT_EQ(json::parse(value_of(read_file(set + figures)))["format"], "nlsplit-run");
  for (const char* wrong : {"run p1 x", "run p1 x 0 0", "run p1 x -1", "run p1 x 0 b", "walk p1 x 0"}) {
    scratch_.write("turns", wrong);
    const Outcome refused = nlbench(fmt::format("run {} --turns {} --transport threads", set, turns));
    EXPECT_EQ(refused.code, 2) << wrong;
    EXPECT_THAT(refused.err, HasSubstr("turns:1: ")) << wrong;
  }
}

// A rank is killed while the first plan runs; the others run, and the same command then runs what is missing.
TEST_F(Validate, ALostRankCostsOnePlan) {
  const std::string mpirun = scratch_.write(
      "mpirun", fmt::format("#!/bin/sh\necho \"$@\" >> {0}.log\nASAN_OPTIONS=detect_leaks=0; export ASAN_OPTIONS\n"
                            "mkdir {0} 2> /dev/null || exec mpirun {1} --oversubscribe \"$@\"\n"
                            "set=$(echo \"$*\" | sed 's/.* run \\([^ ]*\\) .*/\\1/')\n"
                            "mpirun {1} --oversubscribe \"$@\" & launch=$!\n"
                            "until [ -e \"$set/control.0.json\" ]; do sleep 0.02; done\nsleep 0.2\n"
                            "set -- $(cat /proc/$launch/task/$launch/children)\nkill -9 $1\nwait $launch\n",
                            scratch_ / "once", ::geteuid() == 0 ? "--allow-run-as-root" : ""));
  std::filesystem::permissions(mpirun, std::filesystem::perms::owner_all);
  const std::string words = fmt::format("validate {} -o {} --top 2 --also 4 --rounds 1 --duration 500ms --launcher {}",
                                        scenario_, scratch_ / "v", mpirun);
  const Outcome outcome = nlbench(words);
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("1 run lost a rank, and 1 of 7 plans have no figures"));
  EXPECT_THAT(value_of(read_file(scratch_ / "v/results.jsonl")), HasSubstr("\"error\":\"exit code 1"));
  const Outcome again = nlbench(words);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("7 of 7 plans measured"));
  // One rank a host: who feeds inputs where a plan computes nothing has that host's rank.
  EXPECT_THAT(value_of(read_file(scratch_ / "once.log")), AllOf(HasSubstr("-np 3 "), Not(HasSubstr("-np 4 "))));
}

// On one host, so the two devices exchange messages over its own link.
TEST_F(Validate, TheNetworkIsMeasuredAndUsed) {
  std::string text = value_of(read_file(NLS_SOURCE_DIR "/scenarios/loopback.yaml"));
  const size_t model = text.find("zoo:mobilenet_v2"), halves = text.find("\nplans:");
  ASSERT_NE(model, std::string::npos);
  ASSERT_NE(halves, std::string::npos);
  text = text.substr(0, halves) + "\nnetwork: {profile: net.json}\n";
  text.replace(model, 16, "zoo:simple_cnn");
  const std::string scenario = scratch_.write("loop.yaml", text);
  const Outcome missing = nlsim("rank " + scenario);
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("nlbench network"));
  const std::string profile = scratch_ / "net.json";
  const Outcome measured = nlbench(fmt::format("network {} -o {} --transport threads", scenario, profile));
  ASSERT_EQ(measured.code, 0) << measured.err;
  EXPECT_THAT(measured.out, HasSubstr("laptop > laptop"));
  json figures = json::parse(value_of(read_file(profile)));
  ASSERT_EQ(figures["routes"].size(), 1u);
  EXPECT_GT(figures["routes"][0]["rendezvous"]["bytes_per_s"].get<double>(), 1e6);
  const std::string quick = nlsim("rank --csv - " + scenario).out;
  EXPECT_NE(quick, "");
  // Were it a thousand times as slow, the ranking would show it.
  for (const char* kind : {"eager", "rendezvous"}) {
    figures["routes"][0][kind]["bytes_per_s"] = 1e5;
    figures["routes"][0][kind]["latency_s"] = 1.0;
  }
  scratch_.write("net.json", figures.dump());
  EXPECT_NE(nlsim("rank --csv - " + scenario).out, quick);
}

}  // namespace
}  // namespace nlsplit
