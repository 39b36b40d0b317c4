// verify() and GraphBuilder: each rule, broken once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "graph/builder.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

// x → relu1 → a; (a, w) → add1 → b; b is the output
Graph two_nodes() {
  GraphBuilder g("two");
  const TensorType type{DType::f32, {2, 3}};
  const ValueId x = g.input("x", type);
  const ValueId a = g.add(Op::Relu, "relu1", {x}, {}, "a").value();
  const ValueId w = g.weight("w", type, {1});
  g.output(g.add(Op::Add, "add1", {a, w}, {}, "b").value());
  return std::move(g).finish();
}

std::string error_of_broken_graph(const std::function<void(Graph&)>& change) {
  Graph graph = two_nodes();
  change(graph);
  const Status status = verify(graph);
  return status.ok() ? "accepted" : status.error().message;
}

TEST(Verify, AcceptsWhatIsSound) {
  EXPECT_EQ(error_of_broken_graph([](Graph&) {}), "accepted");
}

TEST(Verify, NamesTheTrouble) {
  EXPECT_THAT(error_of_broken_graph([](Graph& g) { g.values[1].name = "x"; }), HasSubstr("two values are called x"));
  EXPECT_THAT(error_of_broken_graph([](Graph& g) { g.values[1].name = ""; }), HasSubstr("a value without a name"));
  EXPECT_THAT(error_of_broken_graph([](Graph& g) { g.nodes[1].name = "relu1"; }),
              HasSubstr("two nodes are called relu1"));
  EXPECT_THAT(error_of_broken_graph([](Graph& g) { std::swap(g.nodes[0], g.nodes[1]); }),
              HasSubstr("node add1 (Add): reads a before it is made"));
  EXPECT_THAT(error_of_broken_graph([](Graph& g) { g.nodes[0].inputs[0] = ValueId(99); }),
              HasSubstr("reads a value that does not exist"));
  EXPECT_THAT(error_of_broken_graph([](Graph& g) { g.nodes[0].outputs[0] = ValueId(99); }),
              HasSubstr("writes a value that does not exist"));
  EXPECT_THAT(error_of_broken_graph([](Graph& g) { g.nodes[0].outputs.clear(); }),
              HasSubstr("another number of outputs"));
  EXPECT_THAT(error_of_broken_graph([](Graph& g) { g.values[1].producer = NodeId(1); }),
              HasSubstr("value a has another producer"));
  EXPECT_THAT(error_of_broken_graph([](Graph& g) { g.nodes[1].outputs[0] = ValueId(2); }),
              HasSubstr("its output w stands before w"));
  EXPECT_THAT(error_of_broken_graph([](Graph& g) {
                g.values[3].type.shape = {3, 2};
              }),
              HasSubstr("output b is said to be f32[3,2], but is f32[2,3]"));
  EXPECT_THAT(error_of_broken_graph([](Graph& g) { g.values[2].type.shape = {4}; }), HasSubstr("do not broadcast"));
  EXPECT_THAT(error_of_broken_graph([](Graph& g) { g.values[0].type.shape = {-2}; }),
              HasSubstr("value x: f32[-2] has a negative extent"));
  EXPECT_THAT(error_of_broken_graph([](Graph& g) {
                g.nodes[0].inputs = {ValueId(), ValueId(0)};
              }),
              HasSubstr("an input left out before one that is there"));
  EXPECT_THAT(error_of_broken_graph([](Graph& g) { g.inputs.clear(); }), HasSubstr("the list of inputs"));
  EXPECT_THAT(error_of_broken_graph([](Graph& g) { g.inputs[0] = ValueId(2); }), HasSubstr("the list of inputs"));
  EXPECT_THAT(error_of_broken_graph([](Graph& g) { g.outputs.clear(); }), HasSubstr("without outputs"));
  EXPECT_THAT(error_of_broken_graph([](Graph& g) { g.outputs[0] = ValueId(); }),
              HasSubstr("an output that nobody makes"));
  EXPECT_THAT(error_of_broken_graph([](Graph& g) {
                g.nodes[0].epilogue = {{Op::Exp, {}, {}, "e"}};
              }),
              HasSubstr("Exp cannot be fused"));
  EXPECT_THAT(error_of_broken_graph([](Graph& g) {
                g.nodes[0].epilogue = {{Op::Clip, {}, {}, "c"}};
              }),
              HasSubstr("attribute max is missing"));
  EXPECT_THAT(error_of_broken_graph([](Graph& g) {
                g.nodes[0].epilogue = {{Op::Add, ValueId(3), {}, "c"}};
              }),
              HasSubstr("reads b before it is made"));
}

TEST(Verify, ValuesStandInTheOrderOfTheText) {
  // w behind the node that reads it: the text could not be parsed back
  EXPECT_THAT(error_of_broken_graph([](Graph& g) {
                std::swap(g.values[2], g.values[3]);
                g.nodes[1].inputs[1] = ValueId(3);
                g.nodes[1].outputs[0] = g.outputs[0] = ValueId(2);
              }),
              HasSubstr("node add1 (Add): its output b stands before w"));
}

TEST(Builder, ErrorsNameTheNode) {
  GraphBuilder g("toy");
  const ValueId x = g.input("x", {DType::f32, {1, 3}});
  EXPECT_EQ(g.add(Op::Softmax, "soft", {x}, {{"axis", int64_t{5}}}).error().message,
            "node soft (Softmax): axis 5 of a tensor with 2 axes");
  ASSERT_TRUE(g.add(Op::Relu, "relu", {x}, {}).ok());
  EXPECT_EQ(g.add(Op::Relu, "relu", {x}, {}).error().message, "two nodes are called relu");
  EXPECT_EQ(g.add(Op::Relu, "relu2", {x}, {}, "x").error().message, "two values are called x");
}

}  // namespace
}  // namespace nlsplit
