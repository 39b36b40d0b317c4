// What a split stage asks of devices and links, held against the graph that it expands to.
#include "partition/split_load.h"

#include <algorithm>
#include <map>
#include <set>

#include "partition/chains.h"
#include "partition/expand_cases.h"
#include "partition/plan_scorer.h"

namespace nlsplit {
namespace {

using namespace testing;

// Two products over [2, 6, 16] with an activation between: columns, then rows, whose sums are added.
Model perceptrons(size_t count) {
  SmallNet net("perceptrons");
  ValueId x = net.input({2, 6, 16});
  for (size_t i = 0; i < count; ++i)
    x = net.project(net.node(Op::Gelu, {net.project(x, 32)}, {{"approximate", std::string("none")}}), 16);
  return net.finish({x});
}

// Bytes between the shards of the only stage, each value once to each device that reads it.
std::vector<double> expanded_bytes(const Graph& graph, const Split& split) {
  const Expanded expanded = expand_splits(graph, split_plan(graph, split)).value();
  const size_t shards = split.shares.size();
  std::vector<size_t> shard_of(expanded.graph.nodes.size(), 0);
  for (const Stage& stage : expanded.plan.stages)
    std::fill(shard_of.begin() + static_cast<std::ptrdiff_t>(stage.begin),
              shard_of.begin() + static_cast<std::ptrdiff_t>(stage.end), stage.devices[0].index());
  std::vector<double> bytes(shards * shards, 0);
  std::set<std::pair<size_t, size_t>> sent;  // value, shard
  for (size_t n = expanded.input_parts; n < shard_of.size(); ++n) {
    for (const ValueId read : reads_of(expanded.graph.nodes[n])) {
      const Value& value = expanded.graph.value(read);
      if (value.kind != ValueKind::node || value.producer.index() < expanded.input_parts) continue;
      const size_t from = shard_of[value.producer.index()], to = shard_of[n];
      if (from != to && sent.insert({read.index(), to}).second)
        bytes[from * shards + to] += static_cast<double>(size_of(value.type).value());
    }
  }
  return bytes;
}

struct Case {
  Cluster cluster;
  Network network;
  SearchCosts costs;
  Case(const Graph& graph, size_t devices, double bytes_per_s)
      : cluster(star(devices, bytes_per_s)),
        network(make_network(cluster, HostId(0), HostId(0))),
        costs(costs_of(graph.nodes.size(), std::vector<double>(devices, 1.0), 1000, 4)) {}
};

SplitLoad load_of_all(const Graph& graph, const Split& split, double bytes_per_s) {
  const Case at(graph, split.shares.size(), bytes_per_s);
  SplitLoads loads(graph, at.cluster, at.network, at.costs);
  const Plan plan = split_plan(graph, split);
  const SplitLoad load = loads.of(plan.stages[0], 0).value();
  const SplitLoad again = loads.of(plan.stages[0], 0).value();  // remembered: the same
  EXPECT_EQ(load.seconds, again.seconds);
  EXPECT_EQ(load.compute, again.compute);
  EXPECT_EQ(load.message_bytes, again.message_bytes);
  EXPECT_EQ(load.weight_bytes, again.weight_bytes);
  EXPECT_EQ(load.messages, again.messages);
  return load;
}

TEST(SplitLoad, HasTheMessagesOfTheExpandedGraph) {
  const Graph windows = convolutions(4);
  for (const std::vector<int64_t>& shares : {std::vector<int64_t>{1, 1}, {2, 1}, {1, 1, 1}, {1, 2, 1}}) {
    for (const SplitAxis axis : {SplitAxis::height, SplitAxis::width, SplitAxis::batch}) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(axis), fmt::join(shares, ":")));
      // The last layer's pieces are joined, by the shard that has the output: no shard waits for that.
      const Split split{axis, false, shares};
      std::vector<double> expanded = expanded_bytes(windows, split),
                          found = load_of_all(windows, split, 1e6).message_bytes;
      for (size_t from = 0; from < shares.size(); ++from)
        expanded[from * shares.size()] = found[from * shares.size()] = 0;
      EXPECT_EQ(found, expanded);
    }
  }
}

TEST(SplitLoad, AddsUpPartialSums) {
  const Model model = perceptrons(3);
  const Split split{SplitAxis::tensor, false, {1, 1}};
  const SplitLoad load = load_of_all(model.graph, split, 1e6);
  // Of each pair both take the other's sums, 2 x 6 x 16 floats, after which everybody has all; the output is wanted by
  // one of them only.
  EXPECT_EQ(load.message_bytes, (std::vector<double>{0, 3 * 768, 3 * 768, 0}));
  EXPECT_EQ(load.messages, 6u);
  // Of the weights each has half, and all of the second products' biases.
  const double weights = 3 * (16 * 32 / 2 + 32 / 2 + 32 * 16 / 2 + 16) * 4;
  EXPECT_NEAR(load.weight_bytes[0], weights, 3 * 16 * 4);
}

TEST(SplitLoad, ComputesAndWaitsInTurn) {
  const Graph graph = convolutions(3);
  const SplitLoad fast = load_of_all(graph, {SplitAxis::height, false, {3, 1}}, 1e12);
  EXPECT_DOUBLE_EQ(fast.compute[0], 3 * 0.75);
  EXPECT_DOUBLE_EQ(fast.compute[1], 3 * 0.25);
  EXPECT_NEAR(fast.seconds, 3 * 0.75, 1e-6);
  // A row of 4 samples x 8 channels x 16 x 4 bytes each way before the second and the third.
  const SplitLoad slow = load_of_all(graph, {SplitAxis::height, false, {1, 1}}, 1000);
  EXPECT_DOUBLE_EQ(slow.seconds, 3 * 0.5 + 2 * 2.048);
  EXPECT_EQ(slow.messages, 4u);
  const SplitLoad alone = load_of_all(graph, {SplitAxis::height, true, {1, 1}}, 1000);
  EXPECT_EQ(alone.messages, 0u) << "rows of others are computed";
}

TEST(SplitLoad, IsUnknownWhereNothingCanBeSplit) {
  const Graph graph = convolutions(3);
  const Case at(graph, 2, 1e6);
  SplitLoads loads(graph, at.cluster, at.network, at.costs);
  EXPECT_FALSE(loads.of(split_plan(graph, {SplitAxis::sequence, false, {1, 1}}).stages[0], 0).has_value());
}

// Two groups take turns: each has half of the micro-batches, and the devices and links of both count.
TEST(PlanScorer, CountsWhatIsExchangedWithinAStage) {
  const Graph graph = convolutions(3);
  const Case at(graph, 4, 1e9);
  PlanScorer scorer(graph, at.cluster, at.network, HostId(0), HostId(0), at.costs);
  const std::vector<DeviceId> devices = {DeviceId(0), DeviceId(1), DeviceId(2), DeviceId(3)};
  const ScoredPlan pairs = scorer.score({{0, 3, devices, Split{SplitAxis::height, false, {1, 1}}}});
  EXPECT_NEAR(pairs.bound_seconds, 2 * 1.5, 0.01);
  EXPECT_NEAR(pairs.latency_seconds, 1.5, 0.01);
  EXPECT_NEAR(pairs.busiest_seconds, 2 * 1.5, 1e-9);
  EXPECT_GT(pairs.bound_seconds, 2 * 1.5);
  const Case slow(graph, 4, 1000);
  PlanScorer slow_scorer(graph, slow.cluster, slow.network, HostId(0), HostId(0), slow.costs);
  const ScoredPlan waits = slow_scorer.score({{0, 3, devices, Split{SplitAxis::height, false, {1, 1}}}});
  EXPECT_GE(waits.latency_seconds, 1.5 + 2 * 2.048);
  EXPECT_EQ(scorer.score({{0, 3, devices, Split{SplitAxis::sequence, false, {1, 1}}}}).bound_seconds, never);
}

}  // namespace
}  // namespace nlsplit
