#include "partition/search_orders.h"

#include <gmock/gmock.h>

#include <numeric>

#include "base/random.h"
#include "partition/chains.h"
#include "partition/device_orders.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::ElementsAre;

SearchResult search(const Graph& graph, const Cluster& cluster, const SearchCosts& costs, SearchOptions options = {}) {
  options.method = "orders";
  return search_layers(graph, cluster, HostId(0), HostId(0), costs, options).value();
}

size_t devices_of(const Plan& plan) {
  size_t count = 0;
  for (const Stage& stage : plan.stages) count += stage.devices.size();
  return count;
}

// A star of more machines than chains.h has letters for.
Cluster large_star(size_t devices, double bytes_per_s) {
  Cluster cluster;
  for (size_t i = 0; i < devices; ++i) {
    cluster.hosts.push_back({fmt::format("h{}", i), false});
    cluster.devices.push_back({fmt::format("D{}", i), HostId(i), DeviceKind::cpu, bytes(1 << 30), Isa::v3});
  }
  cluster.hosts.push_back({"sw", true});
  for (size_t i = 0; i < devices; ++i) {
    cluster.links.push_back({"", HostId(i), HostId(devices), bytes_per_second(bytes_per_s), seconds(0), true});
  }
  return cluster;
}

TEST(SearchOrders, EvenStagesOverEqualDevices) {
  // 32 layers of 1 s on 16 devices, links for free: two layers each; or replicas of larger stages, as good.
  const size_t nodes = 32;
  SearchOptions options;
  options.replicate = false;
  const SearchResult result =
      search(chain(nodes, 1), large_star(16, 1e15), costs_of(nodes, std::vector<double>(16, 1.0), 4, 1000), options);
  EXPECT_NEAR(result.plans[0].bound_seconds, 1000 * 2.0 + 30, 1e-6);
  EXPECT_EQ(result.plans[0].plan.stages.size(), 16u);
}

TEST(SearchOrders, LooksAtAllDevicesOfALargeCluster) {
  const size_t nodes = 400;
  const Cluster cluster = large_star(200, 1e15);
  SearchOptions options;
  options.replicate = false;
  const SearchResult result =
      search(chain(nodes, 1), cluster, costs_of(nodes, std::vector<double>(200, 1.0), 4, 100'000), options);
  EXPECT_EQ(result.devices, 200u);
  // With 128 cuts to choose from none of the pipelines has more stages; then its stages are refined.
  EXPECT_GE(devices_of(result.plans[0].plan), 100u);
  EXPECT_LE(result.plans[0].bound_seconds, 100'000 * 4.0 + 400);
  options.method = "beam";
  EXPECT_EQ(search_layers(chain(nodes, 1), cluster, HostId(0), HostId(0),
                          costs_of(nodes, std::vector<double>(200, 1.0), 4, 8), options)
                .value()
                .devices,
            64u);
}

// Chains of layers that differ, on equal devices, no replicas, links for free: the least largest sum of consecutive
// layers, which a table by hand knows too.
TEST(SearchOrders, EqualsATableByHandOnEqualDevices) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    const size_t nodes = 10 + random.below(30), devices = 9 + random.below(6);
    SearchCosts costs = costs_of(nodes, std::vector<double>(devices, 1.0), 0, 1'000'000);
    for (size_t n = 0; n < nodes; ++n) {
      const double s = random.uniform(0.1, 3);
      for (auto& row : costs.node_seconds) row[n] = s;
    }
    std::vector<double> sums = {0};
    for (const double s : costs.node_seconds[0]) sums.push_back(sums.back() + s);
    std::vector<double> least(sums.begin(), sums.end());  // [layers]: on one device; then one more each turn
    for (size_t d = 1; d < devices; ++d) {
      std::vector<double> next = least;
      for (size_t j = 1; j <= nodes; ++j) {
        for (size_t i = 0; i < j; ++i) next[j] = std::min(next[j], std::max(least[i], sums[j] - sums[i]));
      }
      least = next;
    }
    SearchOptions options;
    options.replicate = false;
    const SearchResult result = search(chain(nodes, 1), large_star(devices, 1e15), costs, options);
    EXPECT_NEAR(result.plans[0].bound_seconds / (1e6 * least[nodes]), 1, 1e-3) << "seed " << seed;
  }
}

TEST(SearchOrders, KeepsToMemoryAndLimits) {
  // Twelve products of 64 KiB of weights each on devices that hold three of them.
  GraphBuilder builder("dense");
  ValueId value = builder.input("x", {DType::f32, {1, 128}});
  for (size_t i = 0; i < 12; ++i) {
    const ValueId weight = builder.weight(fmt::format("w{}", i), {DType::f32, {128, 128}}, ContentId{i + 1});
    value = builder.add(Op::MatMul, fmt::format("m{}", i), {value, weight}, {}).value();
  }
  builder.output(value);
  const Graph graph = std::move(builder).finish();
  Cluster cluster = large_star(12, 1e9);
  for (Device& device : cluster.devices) device.memory = bytes(3 * 65536);
  const SearchCosts costs = costs_of(12, std::vector<double>(12, 0.1), 512, 8);
  SearchOptions options;
  size_t pipelines = 0;
  for (const ScoredPlan& plan : search(graph, cluster, costs, options).plans) {
    if (plan.plan.stages.size() == 1) continue;  // whole models are always in the answer
    ++pipelines;
    for (const Stage& stage : plan.plan.stages) EXPECT_LE(stage.end - stage.begin, 3u);
  }
  EXPECT_GT(pipelines, 5u);
  options.max_stages = 6;
  options.max_devices = 8;
  for (const ScoredPlan& plan : search(graph, cluster, costs, options).plans) {
    EXPECT_LE(plan.plan.stages.size(), 6u);
    EXPECT_LE(devices_of(plan.plan), 8u);
  }
}

TEST(DeviceOrders, FastestFirstListedAndNeighbours) {
  // Two racks of two, a slow link between them; D2 is the fastest, D3 slow.
  Cluster cluster = large_star(4, 1e9);
  cluster.hosts.push_back({"other", true});
  cluster.links[2].b = cluster.links[3].b = HostId(5);
  cluster.links.push_back({"", HostId(4), HostId(5), bytes_per_second(1e6), seconds(0), true});
  const Network network = make_network(cluster, HostId(0), HostId(0));
  const std::vector<DeviceId> fastest = {DeviceId(2), DeviceId(0), DeviceId(1), DeviceId(3)};
  const auto orders = device_orders(cluster, network, HostId(0), fastest, {2, 2, 1.5, 9}, 1e6);
  const auto order = [](std::initializer_list<size_t> devices) {
    std::vector<DeviceId> ids;
    for (const size_t d : devices) ids.emplace_back(d);
    return ids;
  };
  EXPECT_THAT(orders, ElementsAre(order({2, 0, 1, 3}), order({0, 1, 2, 3})));
}

TEST(Seeds, AreInTheAnswerIfTheyKeepToTheLimits) {
  const Graph graph = chain(30, 1);
  const Cluster cluster = large_star(12, 1e6);
  const SearchCosts costs = costs_of(30, std::vector<double>(12, 0.01), 4, 8);
  // Nobody would choose it.
  const std::vector<Stage> odd = {{0, 1, {DeviceId(11)}}, {1, 29, {DeviceId(7)}}, {29, 30, {DeviceId(3)}}};
  SearchOptions options;
  options.max_candidates = 50;
  const auto has = [&](const SearchResult& result) {
    return std::ranges::count(result.plans, odd, [](const ScoredPlan& plan) { return plan.plan.stages; });
  };
  EXPECT_EQ(has(search_layers(graph, cluster, HostId(0), HostId(0), costs, options).value()), 0);
  EXPECT_EQ(has(search_layers(graph, cluster, HostId(0), HostId(0), costs, options, {odd, odd}).value()), 1);
  // Five replicas of eight micro-batches are no faster than four, and so not looked at but as a seed.
  const std::vector<Stage> five = {{0, 30, {DeviceId(1), DeviceId(3), DeviceId(5), DeviceId(7), DeviceId(9)}}};
  const std::vector<Stage> fastest = {{0, 30, {DeviceId(0), DeviceId(1), DeviceId(2), DeviceId(3), DeviceId(4)}}};
  for (const std::vector<Stage>& seed : {five, fastest}) {
    const SearchResult result = search_layers(graph, cluster, HostId(0), HostId(0), costs, options, {seed}).value();
    EXPECT_EQ(std::ranges::count(result.plans, seed, [](const ScoredPlan& plan) { return plan.plan.stages; }), 1);
  }
  options.max_devices = 2;
  EXPECT_EQ(has(search_layers(graph, cluster, HostId(0), HostId(0), costs, options, {odd}).value()), 0);
}

}  // namespace
}  // namespace nlsplit
