// `all_reduce: native` as a user has it: replicas that add up their gradients by MPI's own collectives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string replicas(int count, const std::string& workload) {
  std::string all = "rest@m0";
  for (int m = 1; m < count; ++m) all += fmt::format("+m{}", m);
  return fmt::format(
      "model: zoo:simple_cnn?channels=1\n"
      "workload: {{mode: training, batch: 12, micro_batches: 12, optimizer: adam, {}}}\n"
      "topology: {{kind: star, hosts: {}, link: {{bandwidth: 1Gbps, latency: 50us}}}}\n"
      "devices: {{m: {{hosts: h0..h{}, memory: 1GiB, costs: {{roofline: {{compute: 20GFLOPS, memory: 10GBps}}}}}}}}\n"
      "source: h0\nsink: h0\nsearch: {{schedules: [1f1b], keep: 5}}\nplans:\n  copies: [{}]\n",
      workload, count, count - 1, all);
}

// Weights and losses after some steps: those of one device, but for the order of sums.
TEST(NativeCollectives, GiveTheUpdatesOfOneDevice) {
  const Scratch scratch;
  for (const int ranks : {2, 3, 4}) {
    for (const char* how : {"all_reduce: native", "all_reduce: native, all_reduce_buckets: 3",
                            "all_reduce: native, all_reduce_buckets: 2, zero: 1", "all_reduce: native, zero: 2",
                            "all_reduce: native, zero: 3"}) {
      SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, how));
      const std::string scenario = scratch.write("s.yaml", replicas(ranks, how));
      const Outcome lowered = nlsim(fmt::format("lower {} --plan copies", scenario));
      ASSERT_EQ(lowered.code, 0) << lowered.err;
      EXPECT_THAT(lowered.out, AnyOf(HasSubstr(" native gradients_0["), HasSubstr(" native bucket_0_0[")));
      const Outcome ran = mpirun(ranks, fmt::format("run {} --plan copies --check --repeats 2", scenario));
      EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
      EXPECT_THAT(ran.out, HasSubstr("check"));
    }
  }
}

// A session of many steps that overlap. Sums are made in another order than by messages: near, and not more.
TEST(NativeCollectives, TrainAsMessagesDo) {
  const Scratch scratch;
  const auto last_loss = [&](const std::string& how) {
    const std::string scenario = scratch.write("s.yaml", replicas(2, how + ", all_reduce_buckets: 2"));
    const Outcome ran = mpirun(2, fmt::format("train {} --plan copies --steps 12 --json -", scenario));
    EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
    return ran.code == 0 ? nlohmann::json::parse(ran.out)["losses"].back().get<double>() : 0;
  };
  const double by_messages = last_loss("all_reduce: ring");
  EXPECT_GT(by_messages, 0);
  EXPECT_NEAR(last_loss("all_reduce: native"), by_messages, 1e-3 * by_messages);
}

TEST(NativeCollectives, AreRefusedWhereTheTransportHasNone) {
  const Scratch scratch;
  const std::string scenario = scratch.write("s.yaml", replicas(2, "all_reduce: native"));
  const Outcome ran = nlbench(fmt::format("run {} --plan copies --transport threads", scenario));
  EXPECT_EQ(ran.code, 2) << ran.out;
  EXPECT_THAT(ran.err, AllOf(HasSubstr("collective all-reduce tree of m0, m1"),
                             HasSubstr("this transport has no collectives of its own")));
}

}  // namespace
}  // namespace nlsplit
