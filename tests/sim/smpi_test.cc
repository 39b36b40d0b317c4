// SMPI's replay of our traces: where both models are the same it must take as long as the fast tier and SimGrid say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/file.h"
#include "base/temporary_folder.h"
#include "sim/hand_cases.h"
#include "sim/smpi/replay_files.h"
#include "sim/smpi/smpirun.h"
#include "testing/paths.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::AllOf;
using testing::Case;
using ::testing::HasSubstr;
using testing::ms;

class Smpi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!check_smpirun().ok()) GTEST_SKIP() << "no smpirun";
  }

  double replayed(const Case& one) {
    const TemporaryFolder scratch = value_of(TemporaryFolder::create());
    const std::string folder = scratch.path() + "/replay";
    const Status saved = save(value_of(replay_files(one.program, one.graph, one.cluster)), folder);
    EXPECT_TRUE(saved.ok()) << saved.error().to_string();
    return value_of(replay(folder));
  }
};

// A trace has 15 digits of a second.
constexpr double tolerance = 1e-9;

TEST_F(Smpi, APipelineWithoutContentionTakesExactlyAsLong) {
  for (const int64_t eager_limit : {0, 4000, 100000}) {
    for (const double latency : {0.0, 0.1 * ms, 5 * ms}) {
      SCOPED_TRACE(fmt::format("eager up to {}, latency {}", eager_limit, latency));
      const Case one = testing::make_case(
          testing::text_of(
              {.sizes = {1000, 900, 1000, 500}, .micro_batches = 6, .instances = 6, .eager_limit = eager_limit}),
          testing::chain(4, latency));
      const double makespan = testing::fast(one).makespan;
      testing::expect_near_relative(replayed(one), makespan, tolerance, "makespan");
    }
  }
}

// SMPI knows no handshake and no latency of larger messages, and at least its envelope travels.
bool has_what_smpi_leaves_out(const Case& one) {
  constexpr double envelope = 16;
  return std::ranges::any_of(one.graph.activities, [&](const Activity& activity) {
    return activity.is_transfer && ((!activity.eager && !activity.waits) || activity.handshake > 0 ||
                                    activity.clear_to_send_delay > 0 || activity.bytes < envelope);
  });
}

TEST_F(Smpi, HandTimedCases) {
  size_t compared = 0;
  for (const testing::HandCase& hand : testing::hand_cases()) {
    SCOPED_TRACE(hand.name);
    if (has_what_smpi_leaves_out(hand.one)) continue;
    ++compared;
    testing::expect_near_relative(replayed(hand.one), hand.makespan * ms, tolerance, "makespan");
  }
  EXPECT_GE(compared, 6U);
}

TEST_F(Smpi, AHandshakeIsLeftOut) {
  Case one = testing::make_case(testing::text_of({.sizes = {1000, 1000}}), testing::chain(2, 1 * ms));
  for (Activity& activity : one.graph.activities)
    if (activity.is_transfer) activity.handshake = 3 * ms;
  testing::expect_near_relative(testing::fast(one).makespan, 7 * ms, tolerance, "ours: 1 + 3 + 1 + 1 + 1");
  testing::expect_near_relative(replayed(one), 4 * ms, tolerance, "SMPI's");
}

// A and B send so many floats to C, which copies them.
std::string two_to_one(int floats) {
  std::string text = "program shared batch 1 micro_batches 1\n";
  for (const char name : {'A', 'B'}) {
    text += fmt::format(
        "device {0} cpu host {1} memory 1000000\n  buffer x{1} f32[{2}] input\n  segment F stage {3} phase F\n"
        "    send x{1} to C tag 0\n  order\n    F.0\n",
        name, static_cast<char>(name + ('a' - 'A')), floats, name - 'A');
  }
  return text + fmt::format(
                    "device C cpu host c memory 1000000\n  buffer xa f32[{0}] comm\n  buffer xb f32[{0}] comm\n"
                    "  buffer y f32[{0}] output\n  buffer z f32[{0}] output\n  segment F stage 2 phase F\n"
                    "    recv xa from A tag 0\n    recv xb from B tag 0\n    y = copy(xa)\n    z = copy(xb)\n"
                    "  order\n    F.0\n",
                    floats);
}

TEST_F(Smpi, MessagesShareALink) {
  // 2 x 4000 B over the 4 MB/s to C, two latencies, two copies of 1 ms.
  const Case one = testing::make_case(two_to_one(1000), testing::star(3, 1 * ms));
  testing::expect_near_relative(replayed(one), (2 + 2 + 2) * ms, tolerance, "shared by two");
  testing::expect_near_relative(testing::simgrid(one).makespan, 6 * ms, tolerance, "as with SimGrid");
  testing::expect_near_relative(testing::fast(one).makespan, 5 * ms, tolerance, "the fast tier sees no sharing");
  Cluster cluster = one.cluster;
  for (Link& link : cluster.links) link.shared = false;
  const Case wide = testing::make_case(two_to_one(1000), cluster);
  testing::expect_near_relative(replayed(wide), 5 * ms, tolerance, "a link that nobody shares");
}

TEST_F(Smpi, BothWaysOfALinkAreOneWhereItIsHalfDuplex) {
  for (const bool full : {true, false}) {
    const Case one = testing::make_case(testing::exchange(), testing::chain(2, 2 * ms, testing::link_rate, full));
    testing::expect_near_relative(replayed(one), testing::simgrid(one).makespan, tolerance, "makespan");
  }
}

// Programs with everything that compilers of ours make: training, replicas, rings that pass on what they received.
TEST_F(Smpi, ContractProgramsEnd) {
  for (const std::string name : {"train_1f1b", "ring_all_reduce", "replicas", "interleaved", "instances"}) {
    SCOPED_TRACE(name);
    const std::string path = std::string(NLS_SOURCE_DIR) + "/tests/programs/" + name + ".nls";
    Program program = value_of(parse_program(value_of(read_file(path)), path));
    Cluster cluster;
    cluster.hosts.push_back({"sw", true});
    for (const DeviceProgram& device : program.devices) {
      testing::add_device(cluster, device.name, device.host);
      cluster.devices.back().level = device.level;
      testing::add_link(cluster, device.host, "sw", 1e-6, 1e6);
    }
    const Case one = testing::make_case(std::move(program), cluster);
    const double makespan = testing::simgrid(one).makespan;
    // Messages of a few bytes: the envelope of 16 is most of what moves.
    const auto messages = std::ranges::count_if(one.graph.activities, &Activity::is_transfer);
    EXPECT_NEAR(replayed(one), makespan, static_cast<double>(messages) * 16 / 1e6);
  }
}

TEST_F(Smpi, TroubleIsAnErrorWithItsLastWords) {
  const TemporaryFolder scratch = value_of(TemporaryFolder::create());
  const Case one = testing::make_case(testing::text_of({.sizes = {10, 10}}), testing::chain(2, 0));
  const std::string folder = scratch.path() + "/replay";
  ASSERT_TRUE(save(value_of(replay_files(one.program, one.graph, one.cluster)), folder).ok());
  ASSERT_TRUE(write_file(folder + "/rank1.txt", "1 init\n1 irecv 0 7 24\n1 wait 0 1 7\n1 finalize\n").ok());
  const Result<double> stuck = replay(folder);
  ASSERT_FALSE(stuck.ok());
  EXPECT_THAT(stuck.error().to_string(), AllOf(HasSubstr("and no makespan"), HasSubstr("Deadlock detected")));
}

TEST(SmpiFiles, ReadLikeThis) {
  const Case one = testing::make_case(
      testing::text_of({.sizes = {1000, 1000}, .micro_batches = 2, .instances = 1, .eager_limit = 16}),
      testing::chain(2, 1 * ms));
  std::map<std::string, std::string> files;
  for (auto& [name, content] : value_of(replay_files(one.program, one.graph, one.cluster)).files) files[name] = content;
  EXPECT_EQ(files["rank0.txt"],
            "0 init\n0 compute 1000000\n0 isend 1 0 3984\n0 wait 0 1 0\n0 compute 1000000\n0 isend 1 1 3984\n"
            "0 wait 0 1 1\n0 finalize\n");
  EXPECT_EQ(files["rank1.txt"],
            "1 init\n1 irecv 0 0 3984\n1 wait 0 1 0\n1 compute 1000000\n1 irecv 0 1 3984\n1 wait 0 1 1\n"
            "1 compute 1000000\n1 finalize\n");
  EXPECT_EQ(files["traces"], "rank0.txt\nrank1.txt\n");
  EXPECT_EQ(files["hosts"], "rank0\nrank1\n");
  EXPECT_THAT(files["platform.xml"],
              AllOf(HasSubstr("bandwidth=\"4000000Bps\" latency=\"0s\" sharing_policy=\"SHARED\""),
                    HasSubstr("value=\"a&gt;b\""),
                    HasSubstr("<link id=\"latency0-1\" bandwidth=\"1e30Bps\" latency=\"0.001s\"")));
  EXPECT_THAT(files[replay_script], HasSubstr("smpi/send-is-detached-thresh:0"));
}

// The second message has to wait for the first one on their way, but not its rank: it goes on computing.
TEST(SmpiFiles, AMessageBehindAnotherOneIsPostedWhenItIsWritten) {
  std::string text = "program two batch 2 micro_batches 2\n";
  text +=
      "device A cpu host a memory 1000000\n  buffer x f32[9000] input instances 2\n  buffer y f32[9000] comm instances "
      "2\n  buffer z f32[1000] comm instances 2\n  segment F stage 0 phase F\n    y = copy(x)\n    send y to B tag 0\n"
      "    z = copy(x[0:1000])\n    send z to B tag 1\n  order\n    F.0 x:0 y:0 z:0\n    F.1 x:1 y:1 z:1\n";
  text +=
      "device B cpu host b memory 1000000\n  buffer y f32[9000] comm instances 2\n  buffer z f32[1000] output "
      "instances "
      "2\n  segment F stage 1 phase F\n    recv y from A tag 0\n    recv z from A tag 1\n  order\n    F.0 y:0 z:0\n"
      "    F.1 y:1 z:1\n";
  const Case one = testing::make_case(text, testing::chain(2, 0));
  EXPECT_EQ(value_of(replay_files(one.program, one.graph, one.cluster)).files[0].second,
            "0 init\n0 compute 9000000\n0 isend 1 0 35984\n0 compute 1000000\n0 isend 1 1 3984\n"
            "0 compute 9000000\n0 isend 1 2 35984\n0 compute 1000000\n0 isend 1 3 3984\n"
            "0 wait 0 1 0\n0 wait 0 1 1\n0 wait 0 1 2\n0 wait 0 1 3\n0 finalize\n");
}

TEST(SmpiFiles, WhatCannotBeReplayed) {
  Case one = testing::make_case(testing::text_of({.sizes = {10, 10}}), testing::chain(2, 0));
  one.graph.slowness.resize(2);
  EXPECT_THAT(replay_files(one.program, one.graph, one.cluster).error().to_string(), HasSubstr("no noise"));
  one.graph.slowness.clear();
  for (Activity& activity : one.graph.activities)
    if (activity.is_transfer) activity.bytes = 3e9;
  EXPECT_THAT(replay_files(one.program, one.graph, one.cluster).error().to_string(),
              HasSubstr("messages of less than 2 GiB, and one has 3000000000 bytes"));
  one.graph.online.emplace();
  EXPECT_THAT(replay_files(one.program, one.graph, one.cluster).error().to_string(), HasSubstr("not online"));
}

}  // namespace
}  // namespace nlsplit
