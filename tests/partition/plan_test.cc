// Plans as text: what names mean, what cuts are called, and what is wrong with a wrong one.
#include "partition/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "graph/builder.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "testing/random_graph.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

Cluster cluster_of(const std::vector<std::string>& names) {
  Cluster cluster;
  for (const std::string& name : names) {
    cluster.devices.push_back({name, HostId(cluster.hosts.size()), DeviceKind::cpu, bytes(1 << 30), Isa::v3});
    cluster.hosts.push_back({"host_" + name, false});
  }
  return cluster;
}

Graph optimized(std::string_view name) {
  Model model = zoo_model(name).value();
  return optimize(model.graph, model.weights).value();
}

// Relus with these names in a row.
Graph named(const std::vector<std::string>& names) {
  GraphBuilder builder("named");
  ValueId value = builder.input("x", {DType::f32, {1, 4}});
  for (const std::string& name : names) value = builder.add(Op::Relu, name, {value}, {}).value();
  builder.output(value);
  return std::move(builder).finish();
}

class Plans : public ::testing::Test {
 protected:
  std::vector<Stage> stages(const std::vector<std::string>& parts, const Graph& graph) {
    notes.clear();
    auto parsed = parse_stages(parts, graph, cluster, &notes);
    EXPECT_TRUE(parsed.ok()) << parsed.error().message;
    return parsed.ok() ? *parsed : std::vector<Stage>{};
  }
  std::string error(const std::vector<std::string>& parts, const Graph& graph) {
    auto parsed = parse_stages(parts, graph, cluster, nullptr);
    return parsed.ok() ? "no error" : parsed.error().message;
  }
  // The names of the last node of each stage.
  static std::string ends(const std::vector<Stage>& stages, const Graph& graph) {
    std::string text;
    for (const Stage& stage : stages) text += (text.empty() ? "" : " ") + graph.nodes[stage.end - 1].name;
    return text;
  }
  std::string text(std::vector<Stage> stages, const Graph& graph) {
    Plan plan;
    plan.stages = std::move(stages);
    return to_string(plan, graph, cluster);
  }

  Cluster cluster = cluster_of({"A", "B", "C", "D"});
  std::vector<PlanNote> notes;
};

TEST_F(Plans, ReadsNodesAndTheStepsFusedIntoThem) {
  const Graph graph = optimized("simple_cnn");  // conv1+relu1, conv2+relu2, flatten, fc1+relu3, fc2
  EXPECT_EQ(ends(stages({"..relu1@A", "..relu2@B", "rest@C"}, graph), graph), "conv1 conv2 fc2");
  EXPECT_TRUE(notes.empty());
}

TEST_F(Plans, ACutInsideAFusedNodeMovesBehindItWithANote) {
  const Graph graph = optimized("simple_cnn");
  EXPECT_EQ(stages({"..conv1@A", "rest@B"}, graph), stages({"..relu1@A", "rest@B"}, graph));
  stages({"..conv1@A", "rest@B"}, graph);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].text, "conv1 is fused with relu1; the cut is after relu1");
}

TEST_F(Plans, AScopeMeansTheLastLayerBelowIt) {
  const Graph graph = named(
      {"stem", "layer1.0.conv", "layer1.0.relu", "layer1.1.conv", "layer10.0.conv", "block/a", "block/b", "head"});
  EXPECT_EQ(ends(stages({"..layer1.0@A", "..layer1@B", "..block@C", "rest@D"}, graph), graph),
            "layer1.0.relu layer1.1.conv block/b head");
  const Graph resnet = optimized("resnet50");
  EXPECT_EQ(text(stages({"..layer1@A", "..layer2.3@B", "rest@C"}, resnet), resnet), "A ..layer1 | B ..layer2 | C rest");
  EXPECT_EQ(text(stages({"..layer2.2@A", "rest@C"}, resnet), resnet), "A ..layer2.2 | C rest");
}

TEST_F(Plans, ReplicasAreJoinedWithAPlusAndSpaceIsFree) {
  const Graph graph = named({"a", "b"});
  EXPECT_EQ(text(stages({" ..a @ B + A", "rest@D"}, graph), graph), "B+A ..a | D rest");
  EXPECT_EQ(text(stages({"rest@B+C"}, graph), graph), "B+C all");
}

TEST_F(Plans, ALayerThatOthersAreBelowCanBeNamedExactly) {
  const Graph graph = named({"a", "b", "a.c", "d"});
  EXPECT_EQ(cut_name(graph, 1), "=a");
  EXPECT_EQ(cut_name(graph, 3), "a");
  EXPECT_EQ(ends(stages({"..=a@A", "..a@B", "rest@C"}, graph), graph), "a a.c d");
}

TEST_F(Plans, ErrorsNameTheLayerAndTheNearest) {
  const Graph graph = optimized("simple_cnn");
  const std::string folded =
      "a layer that was folded into another, like a BatchNormalization, has no name left: cut after the layer it was "
      "folded into)";
  EXPECT_EQ(error({"..cnov1@A", "rest@B"}, graph),
            "'..cnov1@A': no layer is called 'cnov1' (did you mean 'conv1'? " + folded);
  EXPECT_EQ(error({"..zebra@A", "rest@B"}, graph), "'..zebra@A': no layer is called 'zebra' (" + folded);
  const Graph resnet = named({"layer1.0.conv1", "layer1.0.relu", "fc"});
  EXPECT_EQ(error({"..layer1.0.normalise@A", "rest@B"}, resnet),
            "'..layer1.0.normalise@A': no layer is called 'layer1.0.normalise' (the last layer below 'layer1.0' is "
            "'layer1.0.relu'; " +
                folded);
}

TEST_F(Plans, AFoldedBatchNormalizationIsAnErrorWithAHint) {
  const Graph resnet = optimized("resnet18");
  const std::string message = error({"..layer1.0.bn1@A", "rest@B"}, resnet);
  EXPECT_NE(message.find("no layer is called 'layer1.0.bn1'"), std::string::npos) << message;
  EXPECT_NE(message.find("layer1.0"), message.rfind("layer1.0")) << message;  // a neighbour is named
  EXPECT_NE(message.find("folded"), std::string::npos) << message;
}

TEST_F(Plans, ErrorsNameTheStage) {
  const Graph graph = named({"conv1", "relu1", "fc"});
  EXPECT_EQ(error({}, graph), "a plan without stages; the shortest is [rest@DEVICE]");
  EXPECT_EQ(error({"..conv1@A", "..relu1@B"}, graph),
            "'..relu1@B': the last stage must be 'rest@B', so that every layer has a device");
  EXPECT_EQ(error({"rest@A", "..relu1@B"}, graph), "'rest@A': only the last stage may be 'rest'");
  EXPECT_EQ(error({"..fc@A", "rest@B"}, graph),
            "'rest@B': nothing is left for it: '..fc@A' already ends with the last layer");
  EXPECT_EQ(error({"..relu1@A", "..conv1@B", "rest@C"}, graph),
            "'..conv1@B': comes before '..relu1@A', where the stage before it ends, so the layers are out of order");
  EXPECT_EQ(error({"..conv1@A", "..conv1@B", "rest@C"}, graph),
            "'..conv1@B': is the same cut as '..conv1@A', where the stage before it ends, so the stage is empty");
  EXPECT_EQ(error({"..conv1@A+A", "rest@C"}, graph), "'..conv1@A+A': device A twice in one stage");
  EXPECT_EQ(error({"..conv1@X", "rest@C"}, graph), "'..conv1@X': no device is called 'X' (there are A, B, C, D)");
  EXPECT_EQ(error({"..conv1", "rest@C"}, graph),
            "'..conv1': a stage is written ..LAYER@DEVICE or rest@DEVICE; the '@' is missing");
  EXPECT_EQ(error({"conv1@A", "rest@C"}, graph), "'conv1@A': a stage is written ..LAYER@DEVICE or rest@DEVICE");
  EXPECT_EQ(error({"..@A", "rest@C"}, graph), "'..@A': a stage is written ..LAYER@DEVICE or rest@DEVICE");
  EXPECT_EQ(error({"rest@height(A:2x+B)"}, graph),
            "'rest@height(A:2x+B)': the share of A must be a whole number from 1 to 1000000, not '2x'");
  EXPECT_EQ(error({"..conv1@", "rest@C"}, graph), "'..conv1@': a device is missing after '@' or '+'");
  EXPECT_EQ(error({"..conv1@A+", "rest@C"}, graph), "'..conv1@A+': a device is missing after '@' or '+'");
  cluster = cluster_of({"worker1", "worker2"});
  EXPECT_EQ(error({"rest@worker"}, graph),
            "'rest@worker': no device is called 'worker'; did you mean 'worker1'? (there are worker1, worker2)");
}

TEST_F(Plans, CheckNamesTheStage) {
  const Graph graph = named({"a", "b", "c"});
  const auto check = [&](Plan plan, int64_t batch) {
    const Status status = check_plan(plan, graph, cluster, batch);
    return status.ok() ? std::string("fine") : status.error().message;
  };
  Plan plan;
  plan.stages = {{0, 2, {DeviceId(0)}}, {2, 3, {DeviceId(1), DeviceId(2)}}};
  plan.micro_batches = 4;
  EXPECT_EQ(check(plan, 8), "fine");
  EXPECT_EQ(check(plan, 6), "plan: 4 micro-batches do not divide the batch of 6");
  plan.name = "mine";
  plan.micro_batches = 0;
  EXPECT_EQ(check(plan, 6), "plan mine: 0 micro-batches; there must be at least one");
  plan.micro_batches = 1;
  Plan wrong = plan;
  wrong.stages.clear();
  EXPECT_EQ(check(wrong, 1), "plan mine: no stages");
  wrong = plan;
  wrong.stages[0].split = Split{};
  EXPECT_EQ(check(wrong, 1), "plan mine: stage 0 is split into 0 shards; two are the least");
  wrong.stages[0].split->shares = {1};
  EXPECT_EQ(check(wrong, 1), "plan mine: stage 0 is split into 1 shard; two are the least");
  wrong = plan;
  wrong.stages[1].begin = 1;
  EXPECT_EQ(check(wrong, 1), "plan mine: stage 1 begins at node 1, but the one before it ends at 2");
  wrong = plan;
  wrong.stages[1].end = 7;
  EXPECT_EQ(check(wrong, 1), "plan mine: stage 1 ends at node 7 of 3");
  wrong = plan;
  wrong.stages.pop_back();
  EXPECT_EQ(check(wrong, 1), "plan mine: the last stage ends after 'b', so 1 layers have no device");
  wrong = plan;
  wrong.stages[1].devices[1] = DeviceId(1);
  EXPECT_EQ(check(wrong, 1), "plan mine: stage 1 has device B twice");
  wrong.stages[1].devices[1] = DeviceId(9);
  EXPECT_EQ(check(wrong, 1), "plan mine: stage 1 is on a device that does not exist");
  wrong.stages[1].devices.clear();
  EXPECT_EQ(check(wrong, 1), "plan mine: stage 1 has no device");
}

void every_cut_reads_back(const Graph& graph, const Cluster& cluster) {
  for (size_t end = 1; end < graph.nodes.size(); ++end) {
    Plan plan;
    plan.stages = {{0, end, {DeviceId(0)}}, {end, graph.nodes.size(), {DeviceId(1)}}};
    std::vector<PlanNote> notes;
    const auto parsed = parse_stages(stage_parts(plan, graph, cluster), graph, cluster, &notes);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(*parsed, plan.stages) << cut_name(graph, end);
    EXPECT_TRUE(notes.empty()) << notes[0].text;
  }
}

TEST_F(Plans, EveryCutOfEveryNetworkReadsBackWithoutANote) {
  for (const ZooEntry& entry : zoo()) {
    SCOPED_TRACE(entry.name);
    every_cut_reads_back(optimized(entry.name), cluster);
  }
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    Model model = random_graph(seed, 12);
    every_cut_reads_back(optimize(model.graph, model.weights).value(), cluster);
  }
}

// Numbered devices may be written as a range, and are shown as one.
TEST(PlanText, RangesOfDevices) {
  const Graph graph = optimized("simple_cnn");
  const Cluster cluster = cluster_of({"M0", "M1", "M2", "M3", "X"});
  const auto stages = parse_stages({"..relu1@M0..M2", "rest@X+M3"}, graph, cluster, nullptr);
  ASSERT_TRUE(stages.ok()) << stages.error().to_string();
  EXPECT_EQ((*stages)[0].devices, (std::vector<DeviceId>{DeviceId(0), DeviceId(1), DeviceId(2)}));
  Plan plan;
  plan.stages = *stages;
  EXPECT_EQ(to_string(plan, graph, cluster), "M0..M2 ..relu1 | X+M3 rest");
  EXPECT_EQ(stage_parts(plan, graph, cluster)[0], "..relu1@M0..M2");
  const Cluster odd = cluster_of({"M0..M1"});  // one device, called like a range
  EXPECT_EQ(value_of(parse_stages({"rest@M0..M1"}, graph, odd, nullptr))[0].devices, std::vector{DeviceId(0)});
  EXPECT_FALSE(parse_stages({"rest@M2..M4"}, graph, cluster, nullptr).ok());
  EXPECT_FALSE(parse_stages({"rest@M0..M2+M1"}, graph, cluster, nullptr).ok());
}

TEST(PlanText, StagesThatAreRecomputed) {
  const Graph graph = optimized("simple_cnn");
  const Cluster cluster = cluster_of({"A", "B", "recomputed"});
  const std::vector<std::string> parts = {"..relu1@A recomputed", "..relu2@tensor(A+B) recomputed", "rest@recomputed"};
  Plan plan;
  plan.stages = value_of(parse_stages(parts, graph, cluster, nullptr));
  EXPECT_TRUE(plan.stages[0].recompute && plan.stages[1].recompute && !plan.stages[2].recompute);
  EXPECT_EQ(stage_parts(plan, graph, cluster), parts);
  EXPECT_EQ(to_string(plan, graph, cluster), "A ..relu1 recomputed | tensor(A+B) ..relu2 recomputed | recomputed rest");
  EXPECT_FALSE(parse_stages({"rest@A recompute"}, graph, cluster, nullptr).ok());
}

}  // namespace
}  // namespace nlsplit
