// Pieces remembers what the rules say of one node for all that are alike; so it must say the same of each.
#include "partition/pieces.h"

#include <gtest/gtest.h>

#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"

namespace nlsplit {
namespace {

bool same(const std::optional<NodePiece>& a, const std::optional<NodePiece>& b) {
  return a.has_value() == b.has_value() && (!a || (a->inputs == b->inputs && a->attrs == b->attrs));
}

void expect_what_the_rules_say(const Graph& graph) {
  const std::vector<bool> batched = batched_values(graph).value();
  Pieces pieces(graph, batched);
  size_t parts = 0, sums = 0;
  for (const Node& node : graph.nodes) {
    const Shape& shape = graph.value(node.outputs[0]).type.shape;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      for (const int64_t end : {int64_t{1}, shape[axis] / 2, shape[axis]}) {
        const auto made = piece_of(graph, node, static_cast<int>(axis), 0, end);
        EXPECT_TRUE(same(pieces.of(node, static_cast<int>(axis), 0, end), made)) << node.name << " axis " << axis;
        parts += made ? 1 : 0;
      }
    }
    EXPECT_TRUE(same(pieces.of(node, SplitAxis::batch, 0, 0, 1), samples_of_node(graph, node, batched, 0, 1)))
        << node.name;
    for (const bool with_bias : {false, true}) {
      const auto made = partial_sum_of(graph, node, 0, 32, with_bias);
      EXPECT_TRUE(same(pieces.sum_of(node, 0, 32, with_bias), made)) << node.name;
      sums += made ? 1 : 0;
    }
  }
  EXPECT_GT(parts, graph.nodes.size());
  EXPECT_GT(sums, 0u);
}

TEST(Pieces, AreWhatTheRulesSayOfEveryNode) {
  for (const char* name : {"resnet18", "gpt2?layers=2&hidden=64&heads=4&vocab=96&length=16"}) {
    const Model model = zoo_model(name).value();
    expect_what_the_rules_say(with_batch(model.graph, 4).value());
  }
}

}  // namespace
}  // namespace nlsplit
