// `nlbench network` as a user meets it: which pairs of hosts are measured, and what becomes of the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Compute is emulated, so nothing is measured of ends that compute.
std::string scenario_with(const std::string& topology) {
  return "model: zoo:simple_cnn\nworkload: {batch: 8, micro_batches: [2]}\ntopology: " + topology +
         "\ndevices:\n  D: {hosts: all, memory: 64MiB, isa: v2, slowdown: 1, costs: {roofline: {compute: 10GFLOPS, "
         "memory: 10GBps}}}\nsource: h0\nsink: h0\n";
}

TEST(NetworkSet, HasSomePairsOfEachKind) {
  const Scratch scratch;
  const std::string scenario = scratch.write(
      "s.yaml", scenario_with("{kind: racks, racks: 2, hosts: 3, link: {bandwidth: 1Gbps, latency: 5us}, uplink: "
                              "{bandwidth: 1Gbps, latency: 5us}}"));
  const auto set_of = [&](const std::string& name, const std::string& more) {
    const Outcome lowered =
        nlsim(fmt::format("lower {} --network-set {} --eager-limit 64KiB {}", scenario, scratch / name, more));
    EXPECT_EQ(lowered.code, 0) << lowered.err;
    return json::parse(value_of(read_file(scratch / (name + "/network.json"))));
  };
  const json some = set_of("some", "");
  EXPECT_EQ(some["tests"].size(), 4u);
  EXPECT_EQ(some["crossings"].size(), 4u);
  ASSERT_EQ(some["alike"].size(), 2u) << "within a rack, and between racks";
  EXPECT_EQ(some["alike"][0]["others"].size(), 4u);
  EXPECT_EQ(some["alike"][1]["others"].size(), 7u);
  const json all = set_of("all", "--pairs all");
  EXPECT_EQ(all["tests"].size(), 15u);
  EXPECT_EQ(all["alike"].size(), 0u);
  for (const std::string& command :
       {"lower " + scenario + " --network-set " + scratch / "none" + " --eager-limit 64KiB --pairs 0",
        "network " + scenario + " -o " + scratch / "n.json" + " --transport threads --pairs 0"}) {
    const Outcome refused = command.starts_with("lower") ? nlsim(command) : nlbench(command);
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("--pairs: '0' is neither a number of pairs, from 1 on, nor all"));
  }
}

TEST(Network, OnePairIsMeasuredForAllThatAreAlike) {
  const Scratch scratch;
  const std::string network = "network: {profile: n.json}\n";
  const std::string scenario = scratch.write(
      "s.yaml", scenario_with("{kind: star, hosts: 3, link: {bandwidth: 1Gbps, latency: 50us}}") + network);
  const Outcome measured =
      nlbench(fmt::format("network {} -o {} --transport threads --pairs 1", scenario, scratch / "n.json"));
  ASSERT_EQ(measured.code, 0) << measured.err;
  EXPECT_THAT(measured.out, HasSubstr("2 more pairs like h0 > h2"));
  const json routes = json::parse(value_of(read_file(scratch / "n.json")))["routes"];
  ASSERT_EQ(routes.size(), 6u);
  EXPECT_EQ(routes[0]["from"], "h0");
  EXPECT_EQ(routes[0]["to"], "h2");
  for (size_t r = 0; r < 6; ++r) {
    EXPECT_EQ(routes[r].contains("median_of"), r >= 2) << r;
    EXPECT_EQ(routes[r]["rendezvous"], routes[0]["rendezvous"]) << r;
    if (r >= 2) {
      EXPECT_EQ(routes[r]["median_of"].size(), 2u) << r;
    }
  }
  const Outcome ranked = nlsim("rank " + scenario);
  EXPECT_EQ(ranked.code, 0) << ranked.err << "no pair is missing";
}

}  // namespace
}  // namespace nlsplit
