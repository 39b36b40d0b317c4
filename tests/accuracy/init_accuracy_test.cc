// `nlsim init` on an emulated cluster of four unequal hosts: how near its links come to those that were emulated, and
// whether the ranking is the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using nlohmann::json;

struct TrueLink {
  const char *host, *bandwidth, *latency;
  double bits_per_s, latency_s;
};
constexpr std::array truth = {TrueLink{"a", "1Gbps", "800us", 1e9, 800e-6}, TrueLink{"b", "1Gbps", "1ms", 1e9, 1e-3},
                              TrueLink{"c", "500Mbps", "1ms", 500e6, 1e-3},
                              TrueLink{"d", "200Mbps", "2ms", 200e6, 2e-3}};

std::string network_of_truth() {
  std::string text = "switches: [sw]\nlinks:\n";
  for (const TrueLink& link : truth)
    text +=
        fmt::format("  - {{between: [{}, sw], bandwidth: {}, latency: {}}}\n", link.host, link.bandwidth, link.latency);
  return text + "source: a\nsink: a\n";
}

// The number behind `key` in a line, in the unit's base.
double figure(const std::string& line, const std::string& key) {
  const size_t at = line.find(key) + key.size();
  size_t used = 0;
  const double number = std::stod(line.substr(at), &used);
  const std::string unit = line.substr(at + used, line.find_first_of(",}", at) - at - used);
  for (const auto& [name, factor] : {std::pair{"Gbps", 1e9}, {"Mbps", 1e6}, {"kbps", 1e3}, {"ms", 1e-3}, {"us", 1e-6}})
    if (unit == name) return number * factor;
  ADD_FAILURE() << "another unit in " << line;
  return 0;
}

std::vector<std::string> plans_of(const std::string& scenario, const Scratch& scratch) {
  const Outcome ranked = nlsim(fmt::format("rank {} --json {}", scenario, scratch / "ranking.json"));
  EXPECT_EQ(ranked.code, 0) << ranked.err;
  std::vector<std::string> plans;
  const json ranking = json::parse(value_of(read_file(scratch / "ranking.json")));
  for (const json& plan : ranking.at("plans"))
    plans.push_back(fmt::format("{} in {}", plan.at("plan").dump(), plan.at("micro_batches").get<int>()));
  return plans;
}

TEST(Accuracy, OfInitOnAnEmulatedCluster) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer slows messages down";
#endif
  std::array<double, 1> load{};
  if (::getloadavg(load.data(), 1) == 1 && load[0] > 0.5 * std::thread::hardware_concurrency())
    GTEST_SKIP() << "a load of " << load[0] << ": other programs take the processors";
  const Scratch scratch;
  std::string emulated = "model: zoo:mobilenet_v2\nworkload: {batch: 32}\ndevices:\n";
  for (const TrueLink& link : truth)
    emulated += fmt::format(
        "  {0}: {{host: {0}, memory: 4GiB, costs: {{roofline: {{compute: 60GFLOPS, memory: 10GBps}}}}}}\n", link.host);
  const std::string cluster = scratch.write("truth.yaml", emulated + network_of_truth());
  const std::string hosts = scratch.write("hosts", "a slots=2\nb slots=2\nc slots=1\nd slots=1\n");
  const Outcome can = run_command(fmt::format("{}/nlemulate {}", NLS_BIN_DIR, cluster));
  if (can.code == 2) GTEST_SKIP() << "clusters cannot be emulated here: " << can.err;
  const Outcome made = run_command(fmt::format("{}/nlemulate {} -- nlsim init --hostfile {} -o {}", NLS_BIN_DIR,
                                               cluster, hosts, scratch / "found.yaml"));
  ASSERT_EQ(made.code, 0) << made.err;
  const std::string found = value_of(read_file(scratch / "found.yaml"));
  for (const TrueLink& link : truth) {
    const size_t at = found.find(fmt::format("between: [{}, sw]", link.host));
    ASSERT_NE(at, std::string::npos) << found;
    const std::string line = found.substr(at, found.find('\n', at) - at);
    const double bandwidth = figure(line, "bandwidth: ") / link.bits_per_s - 1;
    const double latency = figure(line, "latency: ") / link.latency_s - 1;
    fmt::print("{}: {} {}, found {}: {:+.1f} % and {:+.1f} %\n", link.host, link.bandwidth, link.latency, line,
               bandwidth * 100, latency * 100);
    EXPECT_LT(std::abs(bandwidth), 0.05);
    EXPECT_LT(std::abs(latency), 0.05);
  }
  // The truth's links between devices as they were measured: of those nobody knows a truth.
  const size_t devices = found.find("devices:"), network = found.find("# Latency:");
  const std::string with_costs = "model: zoo:mobilenet_v2\nworkload: {batch: 32}\n" +
                                 found.substr(devices, network - devices) + network_of_truth();
  const std::vector<std::string> expected = plans_of(scratch.write("with_costs.yaml", with_costs), scratch);
  const std::vector<std::string> plans = plans_of(scratch / "found.yaml", scratch);
  ASSERT_GE(plans.size(), 10u);
  ASSERT_GE(expected.size(), 10u);
  EXPECT_EQ(plans[0], expected[0]);
  int same = 0;
  for (size_t i = 0; i < 10; ++i) same += plans[i] == expected[i] ? 1 : 0;
  fmt::print("first plan {}; {} of the first 10 at the same place\n", plans[0], same);
}

}  // namespace
}  // namespace nlsplit
