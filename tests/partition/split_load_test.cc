// What a split stage asks of devices and links, held against the graph that it expands to.
#include "partition/split_load.h"

#include <algorithm>
#include <map>
#include <set>

#include "graph/passes/passes.h"
#include "partition/chains.h"
#include "partition/cuts.h"
#include "partition/expand_cases.h"
#include "partition/plan_scorer.h"
#include "testing/random_graph.h"
#include "testing/random_sequence.h"

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
  SplitLoads loads(graph, at.cluster, at.network, at.costs, {});
  const Plan plan = split_plan(graph, split);
  const SplitLoad load = loads.of(plan.stages).value()[0][0];
  const SplitLoad again = loads.of(plan.stages).value()[0][0];  // remembered: the same
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
  SplitLoads loads(graph, at.cluster, at.network, at.costs, {});
  EXPECT_FALSE(loads.of(split_plan(graph, {SplitAxis::sequence, false, {1, 1}}).stages).has_value());
}

// What an expanded node makes of its layer: along its region, or of the sum.
double part_of(const Graph& graph, const Expanded& expanded, size_t n, const Layout& layout) {
  const Node& made = expanded.graph.nodes[n];
  const Node& whole = graph.nodes[static_cast<size_t>(expanded.origin[n])];
  const auto extent = [](const Graph& of, ValueId value, int axis) {
    return static_cast<double>(of.value(value).type.shape[static_cast<size_t>(axis)]);
  };
  if (layout.sums()) {
    const int axis = summed_axis(graph, whole);
    return extent(expanded.graph, made.inputs[0], axis) / extent(graph, whole.inputs[0], axis);
  }
  const Region& region = expanded.regions[n];
  if (region.axis < 0) return 1;
  return static_cast<double>(region.end - region.begin) / extent(graph, whole.outputs[0], region.axis);
}

// A stage computes the parts that the expanded graph does: every layer by itself, so that errors do not cancel.
// multiples: of the nodes, as kernels ask for.
void expect_parts_of_expanded(const Graph& graph, const Plan& plan, const std::vector<int64_t>& multiples,
                              size_t& compared, size_t& unread) {
  const auto expanded = expand_splits(graph, plan, {bytes(0), multiples});
  if (!expanded.ok()) return;
  const auto at = std::ranges::find_if(plan.stages, [](const Stage& stage) { return stage.split.has_value(); });
  const Stage& stage = *at;
  const auto shards = stage.devices.size();
  std::vector<Layout> layouts(graph.values.size());
  const std::vector<bool> alike{false};
  std::vector<bool> batched(graph.values.size(), false);
  if (auto by_sample = batched_values(graph); by_sample.ok()) batched = *by_sample;
  Pieces pieces(graph, batched);
  const ImageMultiples images = image_multiples(graph, stage, multiples);
  choose_layouts({graph, stage, 0, alike, batched, bytes(0), images, pieces}, layouts);
  std::vector<std::vector<double>> parts(graph.nodes.size(), std::vector<double>(shards, 0));
  for (const Stage& made : expanded->plan.stages) {
    for (size_t n = made.begin; n < made.end; ++n) {
      const int origin = expanded->origin[n];
      if (origin < 0) continue;
      const auto layer = static_cast<size_t>(origin);
      if (layer < stage.begin || layer >= stage.end) continue;
      const auto shard = std::ranges::find(stage.devices, made.devices[0]) - stage.devices.begin();
      parts[layer][static_cast<size_t>(shard)] +=
          part_of(graph, *expanded, n, layouts[graph.nodes[layer].outputs[0].index()]);
    }
  }
  const size_t devices = shards + 1;
  for (size_t n = stage.begin; n < stage.end; ++n) {
    const Layout& layout = layouts[graph.nodes[n].outputs[0].index()];
    if (is_view(graph.nodes[n].op) || (layout.axis < 0 && !layout.sums())) continue;
    SCOPED_TRACE(graph.nodes[n].name);
    Case of(graph, devices, 1e9);
    for (std::vector<double>& seconds : of.costs.node_seconds) {
      std::ranges::fill(seconds, 0.0);
      seconds[n] = 1;
    }
    SplitLoads loads(graph, of.cluster, of.network, of.costs, multiples);
    const std::vector<double> compute =
        loads.of(plan.stages).value()[static_cast<size_t>(at - plan.stages.begin())][0].compute;
    for (size_t k = 0; k < shards; ++k) {
      if (parts[n][k] == 0) {  // left out of the expanded graph: nobody reads it
        ++unread;
        continue;
      }
      ++compared;
      if (stage.split->recompute_halo)
        EXPECT_LE(compute[k], parts[n][k] + 1e-12);
      else
        EXPECT_NEAR(compute[k], parts[n][k], 1e-12);
    }
  }
}

TEST(SplitLoad, HasThePartsOfTheExpandedGraph) {
  size_t compared = 0, unread = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const bool tokens = seed % 3 == 2;
    const Model model = tokens ? random_sequence(seed, 8) : random_graph(seed, 10);
    const Graph graph = with_batch(model.graph, 4).value();
    std::vector<int64_t> multiples(graph.nodes.size(), 1);
    for (size_t n = 0; n < multiples.size(); ++n) {
      if (graph.nodes[n].op == Op::Conv && random.below(2) == 0) multiples[n] = 2;
    }
    for (const std::vector<int64_t>& shares : {std::vector<int64_t>{1, 1}, {2, 1}, {1, 1, 2}}) {
      for (const SplitAxis axis : all_split_axes) {
        SCOPED_TRACE(fmt::format("seed {}: {} {}", seed, name_of(axis), fmt::join(shares, ":")));
        const bool rows = axis == SplitAxis::height || axis == SplitAxis::width;
        Plan plan = split_plan(graph, {axis, rows && random.below(3) == 0, shares});
        expect_parts_of_expanded(graph, plan, multiples, compared, unread);
        if (!rows) continue;
        // A stage in the middle: it is cut as its own layers ask for.
        const std::vector<size_t> cuts = find_cuts(graph);
        if (cuts.size() < 3) continue;
        const DeviceId other(shares.size());
        plan.stages[0].begin = cuts[random.below(cuts.size() / 2)];
        plan.stages[0].end = cuts[cuts.size() / 2 + random.below(cuts.size() / 2)];
        plan.stages.insert(plan.stages.begin(), Stage{0, plan.stages[0].begin, {other}});
        if (plan.stages[1].end < graph.nodes.size())
          plan.stages.push_back({plan.stages[1].end, graph.nodes.size(), {other}});
        expect_parts_of_expanded(graph, plan, multiples, compared, unread);
      }
    }
  }
  EXPECT_GT(compared, 6000u);
  EXPECT_LT(unread, compared / 1000);
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
