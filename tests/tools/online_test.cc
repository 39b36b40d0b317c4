// Online plans as a user meets them: simulated, logged, followed again, run for real, and refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class OnlinePlans : public ::testing::Test {
 protected:
  // A has the beginning and the end; B is slow for a while.
  std::string with_schedule(const std::string& schedule) const {
    return with(with(small_scenario(), "sink: c", "sink: a"), "mine: [..relu1@A, ..relu2@B, rest@C]\n",
                "mine: {stages: [..relu1@A, ..relu2@B, rest@A], micro_batches: 8, schedule: " + schedule + "}\n" +
                    "noise: {runs: 3, compute: {jitter: 30%}, links: {jitter: 20%}}\n");
  }
  std::string scenario(const std::string& name, const std::string& schedule) const {
    return scratch_.write(name, with_schedule(schedule));
  }
  json simulated(const std::string& file, const std::string& more) const {
    const Outcome outcome = nlsim("simulate " + file + " --plan mine --json - " + more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? json::parse(outcome.out) : json();
  }

  Scratch scratch_;
};

TEST_F(OnlinePlans, ALogOfTheSimulatorReplaysBitForBit) {
  const std::string online = scenario("online.yaml", "{online: longest_path, in_flight: 4}");
  for (const char* noise : {"", "--noise-run 1", "--noise-run 3"}) {
    SCOPED_TRACE(noise);
    const json first = simulated(online, fmt::format("--decisions {} {}", scratch_ / "log.csv", noise));
    const std::string log = value_of(read_file(scratch_ / "log.csv"));
    EXPECT_THAT(log, AllOf(::testing::StartsWith("0F0,0F1,"), HasSubstr("2F7"), HasSubstr("1F0")));
    const std::string replayed = scenario("replayed.yaml", "{online: longest_path, in_flight: 4, replay: log.csv}");
    const json again = simulated(replayed, fmt::format("--decisions {} {}", scratch_ / "again.csv", noise));
    EXPECT_EQ(again, first);  // every figure, bit for bit
    EXPECT_EQ(value_of(read_file(scratch_ / "again.csv")), log);
  }
}

TEST_F(OnlinePlans, TheSamePlanRunsForReal) {
  const std::string online = scenario("online.yaml", "{online: longest_path, in_flight: 4}");
  const std::string folder = scratch_ / "saved";
  ASSERT_EQ(nlsim("lower " + online + " --plan mine --save " + folder).code, 0);
  EXPECT_THAT(value_of(read_file(folder + "/online.json")), HasSubstr("\"policy\":\"longest_path\""));
  const Outcome threads =
      nlbench(fmt::format("run {} --transport threads --check --repeats 3 --decisions {} --output {}", folder,
                          scratch_ / "threads.csv", scratch_ / "threads.npy"));
  ASSERT_EQ(threads.code, 0) << threads.err;
  EXPECT_THAT(threads.out, HasSubstr("equal to the unsplit run, bit for bit"));
  const Outcome mpi = mpirun(2, fmt::format("run {} --check --repeats 3 --decisions {} --output {}", folder,
                                            scratch_ / "mpi.csv", scratch_ / "mpi.npy"));
  ASSERT_EQ(mpi.code, 0) << mpi.err;
  EXPECT_THAT(mpi.out, HasSubstr("equal to the unsplit run, bit for bit"));
  EXPECT_EQ(value_of(read_file(scratch_ / "threads.npy")), value_of(read_file(scratch_ / "mpi.npy")));
  // What a real run decided can be followed: by a real run, and by the simulator.
  const std::string replayed = scenario("replayed.yaml", "{online: longest_path, in_flight: 4, replay: mpi.csv}");
  const Outcome again = mpirun(2, fmt::format("run {} --plan mine --check --repeats 3 --decisions {} --output {}",
                                              replayed, scratch_ / "again.csv", scratch_ / "again.npy"));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(value_of(read_file(scratch_ / "again.csv")), value_of(read_file(scratch_ / "mpi.csv")));
  EXPECT_EQ(value_of(read_file(scratch_ / "again.npy")), value_of(read_file(scratch_ / "mpi.npy")));
  simulated(replayed, fmt::format("--decisions {}", scratch_ / "simulated.csv"));
  EXPECT_EQ(value_of(read_file(scratch_ / "simulated.csv")), value_of(read_file(scratch_ / "mpi.csv")));
}

// Any plan's order can be written; an online plan of the same base then does the same.
TEST_F(OnlinePlans, AStaticOrderIsALogToo) {
  const std::string fixed = scenario("fixed.yaml", "streaming");
  simulated(fixed, "--decisions " + (scratch_ / "log.csv"));
  const std::string log = value_of(read_file(scratch_ / "log.csv"));
  const std::string replayed = scenario("replayed.yaml", "{online: longest_path, replay: log.csv}");
  simulated(replayed, "--decisions " + (scratch_ / "again.csv"));
  EXPECT_EQ(value_of(read_file(scratch_ / "again.csv")), log);
}

TEST_F(OnlinePlans, TrainingIsSimulated) {
  std::string text =
      with(with_schedule("{online: longest_path, base: gpipe, in_flight: 8}"), "mode: inference", "mode: training");
  text = with(text, "schedules: [streaming]", "schedules: [1f1b]");
  const std::string online = scratch_.write("train.yaml", text);
  const json first = simulated(online, fmt::format("--noise-run 2 --decisions {}", scratch_ / "log.csv"));
  const std::string log = value_of(read_file(scratch_ / "log.csv"));
  for (const char* slot : {"0F7", "2I0", "1W3"}) EXPECT_THAT(log, HasSubstr(slot));
  const std::string replayed =
      scratch_.write("replayed.yaml", with(text, "in_flight: 8", "in_flight: 8, replay: log.csv"));
  EXPECT_EQ(simulated(replayed, "--noise-run 2"), first);
  const Outcome recomputed =
      nlsim("simulate " + scratch_.write("r.yaml", with(text, "mode: training", "mode: training, recompute: full")) +
            " --plan mine");
  EXPECT_EQ(recomputed.code, 2);
  EXPECT_THAT(recomputed.err, HasSubstr("online policy cannot be asked where activations are recomputed"));
}

TEST_F(OnlinePlans, SavedPlansComeBack) {
  const std::string online = scenario("online.yaml", "{online: backward_first, base: fill_drain, in_flight: 4}");
  ASSERT_EQ(nlsim("rank " + online + " --save-plans " + (scratch_ / "plans")).code, 0);
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(scratch_ / "plans")) {
    const std::string text = value_of(read_file(entry.path()));
    if (text.find("online") != std::string::npos) found = entry.path();
  }
  ASSERT_NE(found, "");
  EXPECT_THAT(value_of(read_file(found)),
              HasSubstr("schedule: {online: \"backward_first\", base: \"fill_drain\", in_flight: 4}"));
  const Outcome by_file = nlsim("simulate " + online + " --json - --plan-file " + found);
  ASSERT_EQ(by_file.code, 0) << by_file.err;
  EXPECT_EQ(json::parse(by_file.out).at("makespan_s"), simulated(online, "").at("makespan_s"));
}

// With room for more micro-batches a plan needs more memory: nothing is for free.
TEST_F(OnlinePlans, RoomIsMemory) {
  const auto memory = [&](const std::string& schedule) {
    return simulated(scenario("m.yaml", schedule), "").at("devices").at(0).at("memory_bytes").get<int64_t>();
  };
  EXPECT_GT(memory("{online: longest_path, in_flight: 8}"), memory("{online: longest_path}"));
  EXPECT_EQ(memory("{online: longest_path}"), memory("streaming"));
  EXPECT_EQ(memory("{online: longest_path, base: list}"), memory("list"));
}

TEST_F(OnlinePlans, RefusalsSayWhere) {
  const auto refuse = [&](const std::string& schedule, const std::string& place,
                          const ::testing::Matcher<const std::string&>& message) {
    const std::string file = scenario("bad.yaml", schedule);
    for (const Outcome& outcome :
         {nlsim("simulate " + file + " --plan mine"), nlbench("run " + file + " --plan mine --transport threads")}) {
      EXPECT_EQ(outcome.code, 2) << outcome.err;
      EXPECT_THAT(outcome.err, AllOf(HasSubstr("bad.yaml:14:" + place), message)) << schedule;
    }
  };
  refuse("{online: no_such}", "",
         HasSubstr("unknown online policy 'no_such'; it is 'longest_path' or 'backward_first'"));
  refuse("{online: replay}", "", HasSubstr("unknown online policy 'replay'"));
  refuse("{online: longest_path, base: no_such}", "", HasSubstr("unknown schedule 'no_such'"));
  refuse("{online: longest_path, in_flight: 0}", "", HasSubstr("in_flight must be from 1 to 65536, not 0"));
  refuse("{online: longest_path, instances: 2}", "", HasSubstr("unknown key 'instances' in a schedule"));
  refuse("{base: list}", "", HasSubstr("a schedule has a `file`, or asks an `online` policy"));
  refuse("{file: x.csv, online: longest_path}", "", HasSubstr("leaves nothing for 'online' to say"));
  refuse("{online: longest_path, replay: none.csv}", "", HasSubstr("none.csv"));
  scratch_.write("short.csv", "0F0,2F0\r\n1F0\r\n");
  refuse("{online: longest_path, replay: short.csv}", "", HasSubstr("the schedule is for 1 micro-batches"));

  // A log of another plan, and one that this plan's instances do not allow.
  const auto replayed = [&](const std::string& log) {
    scratch_.write("log.csv", log);
    return nlsim("simulate " + scenario("bad.yaml", "{online: longest_path, replay: log.csv}") + " --plan mine");
  };
  const std::string stages = "0F0,0F1,0F2,0F3,0F4,0F5,0F6,0F7";
  const Outcome other = replayed(stages + "\r\n1F0,1F1,1F2,1F3,1F4,1F5,1F6,1F7,2F0,2F1,2F2,2F3,2F4,2F5,2F6,2F7\r\n");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, AllOf(HasSubstr("log.csv:2:"), HasSubstr("stage 2 is not on this rank")));
  const Outcome twisted = replayed(
      "0F7,0F6,0F5,0F4,0F3,0F2,0F1,0F0,2F7,2F6,2F5,2F4,2F3,2F2,2F1,2F0\r\n"
      "1F7,1F6,1F5,1F4,1F3,1F2,1F1,1F0\r\n");
  EXPECT_EQ(twisted.code, 2);
  EXPECT_THAT(twisted.err, AllOf(HasSubstr("online policy replay left every device waiting"),
                                 HasSubstr("its table has 0F7 next, which is not ready")));
  const Outcome goal = nlsim("simulate " + scenario("g.yaml", "{online: longest_path}") + " --plan mine --goal " +
                             (scratch_ / "x.goal"));
  EXPECT_EQ(goal.code, 2);
  EXPECT_THAT(goal.err, HasSubstr("GOAL has an order for every rank"));
}

}  // namespace
}  // namespace nlsplit
