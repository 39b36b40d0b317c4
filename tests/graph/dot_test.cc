#include "graph/dot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/operators/operator.h"
#include "graph/passes/passes.h"
#include "testing/random_graph.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

TEST(Dot, ASmallNetworkReadsLikeThis) {
  const auto graph = parse_graph(R"(graph "a \"block\""
input %x f32[1,4]
weight %w f32[4,4] content 00000000000000aa
%y f32[1,4] = MatMul(%x, %w) as "back\\slash" + Add(%x) as "skip" + Relu as "relu"
%z f32[4] = Reshape(%y) {shape=[4]} as "flat"
output %z
output %y
)",
                                 "block");
  ASSERT_TRUE(graph.ok()) << graph.error().to_string();
  EXPECT_EQ(to_dot(*graph), R"(digraph "a \"block\"" {
  node [shape=box];
  v0 [shape=oval, label="x\nf32[1,4]"];
  n0 [label="back\\slash, skip, relu\nMatMul + Add + Relu\n16 weights\nf32[1,4]"];
  v0 -> n0;
  v0 -> n0;
  n1 [label="flat\nReshape\nf32[4]", style=dashed];
  n0 -> n1;
  o0 [shape=oval, label="z\nf32[4]"];
  n1 -> o0;
  o1 [shape=oval, label="y\nf32[1,4]"];
  n0 -> o1;
}
)");
}

// A line for every node, input and output, an edge for every activation that is read.
TEST(Dot, NothingIsLeftOut) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Model model = random_graph(seed, 20);
    const Graph graph = optimize(model.graph, model.weights).value();
    const std::string dot = to_dot(graph);
    size_t edges = graph.outputs.size(), found = 0;
    for (const Node& node : graph.nodes) {
      for (const ValueId read : reads_of(node)) edges += graph.value(read).kind == ValueKind::weight ? 0 : 1;
      EXPECT_THAT(dot, HasSubstr("[label=\"" + node.name));
    }
    for (size_t at = dot.find(" -> "); at != std::string::npos; at = dot.find(" -> ", at + 1)) ++found;
    EXPECT_EQ(found, edges);
    EXPECT_EQ(static_cast<size_t>(std::count(dot.begin(), dot.end(), '\n')),
              3 + graph.inputs.size() + graph.nodes.size() + graph.outputs.size() + edges);
  }
}

}  // namespace
}  // namespace nlsplit
