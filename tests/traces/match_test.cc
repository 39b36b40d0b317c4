// Whose time each event is: by names, by order, beside another one.
#include "traces/match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two layers alike, one unlike them.
const Graph& network() {
  static const Graph graph = value_of(parse_graph(R"(graph "g"
input %x f32[1,8]
weight %w f32[8,8] content 1
weight %v f32[8,4] content 2
%a f32[1,8] = MatMul(%x, %w) as "first"
%b f32[1,8] = Relu(%a) as "relu1"
%c f32[1,8] = MatMul(%b, %w) as "second"
%d f32[1,8] = Relu(%c) as "relu2"
%y f32[1,4] = MatMul(%d, %v) as "last"
output %y
)",
                                                  "network"));
  return graph;
}

OperatorTime op(const std::string& name, const std::string& kind, Beside beside = Beside::none) {
  OperatorTime one{name, kind};
  one.nodes = {name};
  one.kinds = {kind};
  one.beside = beside;
  return one;
}
OperatorTime op(const std::string& name, const std::string& kind, Shape output) {
  OperatorTime one = op(name, kind);
  one.output = std::move(output);
  return one;
}

// 1 s each, one after the other.
ProfiledRun run_of(std::vector<OperatorTime> events) {
  for (size_t e = 0; e < events.size(); ++e) {
    events[e].start_s = static_cast<double>(e);
    events[e].seconds = 1;
  }
  return {static_cast<double>(events.size()), std::move(events)};
}

std::vector<int> nodes_of(const ProfiledRun& run) {
  std::vector<int> nodes;
  for (const EventNode& one : NodeFinder(network()).find(run)) nodes.push_back(one.node);
  return nodes;
}

TEST(Match, NamesOfNodesAndOfResults) {
  EXPECT_THAT(nodes_of(run_of({op("first", "MatMul"), op("b", "Relu"), op("d", "Relu"), op("relu1", "Relu")})),
              ElementsAre(0, 1, 3, 1));
  OperatorTime several = op("kernel", "?");
  several.nodes = {"unknown", "", "second", "first"};
  EXPECT_THAT(nodes_of(run_of({several})), ElementsAre(2));
}

TEST(Match, OrderOfAKindWhereThereAreAsMany) {
  const OperatorTime product = op("?", "MatMul"), relu = op("?", "Relu");
  EXPECT_THAT(nodes_of(run_of({product, relu, product, relu, product})), ElementsAre(0, 1, 2, 3, 4));
  // Nodes with a name are no longer counted.
  EXPECT_THAT(nodes_of(run_of({op("second", "MatMul"), product, product})), ElementsAre(2, 0, 4));
}

TEST(Match, NoOrderWhereThereAreMoreOrFewer) {
  const OperatorTime product = op("?", "MatMul"), relu = op("?", "Relu");
  EXPECT_THAT(nodes_of(run_of({product, product})), ElementsAre(-1, -1));
  EXPECT_THAT(nodes_of(run_of({relu, relu, relu})), ElementsAre(-1, -1, -1));
}

TEST(Match, ShapesTellOperatorsOfAKindApart) {
  const OperatorTime wide = op("?", "MatMul", Shape{1, 8}), narrow = op("?", "MatMul", Shape{1, 4});
  EXPECT_THAT(nodes_of(run_of({narrow, wide, wide})), ElementsAre(4, 0, 2));
  EXPECT_THAT(nodes_of(run_of({wide, narrow})), ElementsAre(-1, 4));
  EXPECT_THAT(nodes_of(run_of({op("?", "MatMul", Shape{1, 5})})), ElementsAre(-1));
  OperatorTime by_weight = op("?", "MatMul");
  by_weight.inputs = {{1, 8}, {4, 8}};  // as PyTorch stores it
  EXPECT_THAT(nodes_of(run_of({by_weight})), ElementsAre(4));
}

// A bias that the exporter adds by an operator of its own is none of PyTorch's additions; products of attention, of two
// activations, are none of its linear layers.
TEST(Match, OperandsTellLayersFromAttention) {
  const Graph graph = value_of(parse_graph(R"(graph "g"
input %x f32[1,6,8]
weight %w f32[8,8] content 1
weight %b f32[8] content 2
%p f32[1,6,8] = MatMul(%x, %w) as "layer"
%q f32[1,6,8] = Add(%p, %b) as "bias"
%h f32[1,6,2,4] = Reshape(%q) {shape=[1,6,2,4]} as "heads"
%k f32[1,2,4,6] = Transpose(%h) {perm=[0,2,3,1]} as "k"
%s f32[1,6,2,4] = Reshape(%q) {shape=[1,6,2,4]} as "heads2"
%t f32[1,2,6,4] = Transpose(%s) {perm=[0,2,1,3]} as "v"
%o f32[1,2,6,6] = MatMul(%t, %k) as "scores"
%y f32[1,6,8] = Add(%q, %x) as "residual"
output %o
output %y
)",
                                           "network"));
  OperatorTime linear = op("?", "MatMul"), product = op("?", "MatMul"), sum = op("?", "Add");
  linear.inputs = {{1, 6, 8}, {8, 8}, {8}};
  product.inputs = {{2, 6, 4}, {2, 4, 6}};  // batch and heads as one axis
  sum.inputs = {{1, 6, 8}, {1, 6, 8}};
  std::vector<std::string> nodes;
  for (const EventNode& one : NodeFinder(graph).find(run_of({linear, product, sum})))
    nodes.push_back(one.node < 0 ? "none" : graph.nodes[static_cast<size_t>(one.node)].name);
  EXPECT_THAT(nodes, ElementsAre("layer", "scores", "residual"));
}

TEST(Match, TheFirstKindThatThereIs) {
  OperatorTime one = op("?", "linear", Shape{1, 4});
  one.kinds = {"Gemm", "MatMul", "Relu"};
  EXPECT_THAT(nodes_of(run_of({one})), ElementsAre(4));
}

TEST(Match, WhatTheNetworkLacksCountsBesideAnotherOperator) {
  EXPECT_THAT(nodes_of(run_of({op("?", "Cast", Beside::before), op("first", "MatMul"), op("relu1", "Relu"),
                               op("?", "Norm", Beside::after), op("?", "Strange"), op("last", "MatMul")})),
              ElementsAre(0, 0, 1, 1, -1, 4));
}

TEST(Match, TimesOfExecutionsAndWhatIsLeft) {
  const ProfiledRun run = run_of({op("first", "MatMul", Shape{3, 8}), op("odd", "Strange")});
  const OperatorTrace trace{"t.json", "test", {run, run, run}};
  const Matched matched = value_of(match({trace}, network(), {}));
  ASSERT_EQ(matched.sizes.size(), 1U);
  EXPECT_EQ(matched.sizes[0].batch, 3);
  EXPECT_EQ(matched.sizes[0].left_out, 1);
  EXPECT_THAT(matched.sizes[0].nodes[0], ElementsAre(1, 1));
  EXPECT_THAT(matched.sizes[0].nodes[1], IsEmpty());
  EXPECT_EQ(matched.by_name, 0.5);
  EXPECT_EQ(matched.not_matched, 0.5);
  ASSERT_EQ(matched.events.size(), 1U);
  EXPECT_EQ(matched.events[0].name, "odd");
}

TEST(Match, OtherInputSizesAreRefused) {
  const OperatorTrace trace{"t.json", "test", {run_of({op("first", "MatMul", Shape{1, 9})})}};
  const auto matched = match({trace}, network(), {0, 0});
  ASSERT_FALSE(matched.ok());
  EXPECT_THAT(matched.error().to_string(), HasSubstr("t.json: 'first' has the result [1,9] in this profile"));
}

}  // namespace
}  // namespace nlsplit
