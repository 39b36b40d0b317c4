// The closed loop on this machine's own processors: profile, network, two plans run. So a change that spoils the
// predictions is seen; the tables of docs/validations.md come from scripts/validate_all.
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

// Recorded, not wished for: on a virtual machine that shares its chip with others, and while other programs ran, the
// errors were 7 to 18 %; processors of such a machine may be a third slower for a while.
constexpr double recorded_bound = 0.5;

TEST(Accuracy, OfTwoPlansOverLoopback) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer slows kernels and messages down by different factors";
#endif
  std::array<double, 1> load{};
  if (::getloadavg(load.data(), 1) == 1 && load[0] > 1.5 * std::thread::hardware_concurrency())
    GTEST_SKIP() << "a load of " << load[0] << ": other programs take the processors";
  const Scratch scratch;
  const std::string scenario = scratch.write("s.yaml", R"(model: zoo:mobilenet_v2
workload: {batch: 32, micro_batches: [8]}
devices:
  A: &core {host: here, machine: here, memory: 2GiB, costs: profile.json}
  B: *core
links: [{between: [here, here], bandwidth: 4GBps, latency: 10us}]
network: {profile: network.json}
source: here
sink: here
)");
  const std::string mpi =
      fmt::format(" --launcher 'mpirun {} --oversubscribe'", ::geteuid() == 0 ? "--allow-run-as-root" : "");
  Outcome done = nlbench(fmt::format("profile {} -o {} --budget 6s --beside 1", scenario, scratch / "profile.json"));
  ASSERT_EQ(done.code, 0) << done.err;
  done = nlbench(fmt::format("network {} -o {}", scenario, scratch / "network.json") + mpi);
  ASSERT_EQ(done.code, 0) << done.err;
  done = nlbench(fmt::format("validate {} -o {} --top 1 --also 1 --duration 1s", scenario, scratch / "v") + mpi);
  ASSERT_EQ(done.code, 0) << done.err;
  const json report = json::parse(value_of(read_file(scratch / "v/report.json")));
  ASSERT_EQ(report["plans"].size(), 2u);
  for (const json& plan : report["plans"]) {
    const double error = plan["error"]["throughput"];
    fmt::print("{}: {:+.1f} %\n", plan["plan"].get<std::string>(), error * 100);
    EXPECT_LT(std::abs(error), recorded_bound) << done.out;
  }
}

}  // namespace
}  // namespace nlsplit
