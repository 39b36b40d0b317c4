// Transposes on their way down, golden before and after.
#include <gtest/gtest.h>

#include "graph/pass_text.h"
#include "testing/tensors.h"

namespace nlsplit {
namespace {

TEST(SinkTransposes, ThroughFunctionsAndConstantsToMeetAnother) {
  constexpr std::string_view text = R"(graph "g"
input %x f32[1,3,8,6]
%a f32[1,8,6,3] = Transpose(%x) {perm=[0,2,3,1]} as "to NHWC"
weight %bias f32[3] content 1
%b f32[1,8,6,3] = Add(%bias, %a) as "bias"
weight %two f32[1] content 2
%c f32[1,8,6,3] = Div(%two, %b) as "ratio"
%d f32[1,8,6,3] = Softplus(%c) as "softplus"
%e f16[1,8,6,3] = Cast(%d) {to="f16"} as "cast"
%f f16[1,3,8,6] = Transpose(%e) {perm=[0,3,1,2]} as "to NCHW"
output %f
)";
  EXPECT_EQ(after("sink_transposes", text), R"(graph "g"
input %x f32[1,3,8,6]
weight %bias.turned f32[1,3,1,1]
%a f32[1,3,8,6] = Add(%bias.turned, %x) as "bias"
weight %two f32[1]
%b f32[1,3,8,6] = Div(%two, %a) as "ratio"
%c f32[1,3,8,6] = Softplus(%b) as "softplus"
%d f16[1,3,8,6] = Cast(%c) {to="f16"} as "cast"
%f f16[1,3,8,6] = Identity(%d) as "to NCHW"
output %f
)") << "an output keeps its name";
}

// What is behind a pair that cancels is reached, and so is what is behind one that does not.
TEST(SinkTransposes, PastEachOther) {
  EXPECT_EQ(after("sink_transposes", R"(graph "g"
input %x f32[2,3,4]
%a f32[2,4,3] = Transpose(%x) {perm=[0,2,1]} as "there"
%b f32[2,4,3] = Relu(%a) as "relu"
%c f32[2,3,4] = Transpose(%b) {perm=[0,2,1]} as "back"
%d f32[2,3,4] = Tanh(%c) as "tanh"
%e f32[3,2,4] = Transpose(%d) {perm=[1,0,2]} as "one"
%f f32[3,4,2] = Transpose(%e) {perm=[0,2,1]} as "two"
%g f32[3,4,2] = Sigmoid(%f) as "sigmoid"
output %g
)"),
            R"(graph "g"
input %x f32[2,3,4]
%a f32[2,3,4] = Relu(%x) as "relu"
%d f32[2,3,4] = Tanh(%a) as "tanh"
%f f32[2,3,4] = Sigmoid(%d) as "sigmoid"
%g f32[3,4,2] = Transpose(%f) {perm=[1,2,0]} as "two"
output %g
)");
}

TEST(SinkTransposes, OfTwoOperandsTurnedAlike) {
  EXPECT_EQ(after("sink_transposes", R"(graph "g"
input %x f32[1,3,8]
input %y f32[1,3,8]
%a f32[1,8,3] = Transpose(%x) {perm=[0,2,1]} as "turn x"
%r f32[1,8,3] = Relu(%a) as "relu"
%b f32[1,8,3] = Transpose(%y) {perm=[0,2,1]} as "turn y"
%s f32[1,8,3] = Sub(%r, %b) as "sub"
output %s
)"),
            R"(graph "g"
input %x f32[1,3,8]
input %y f32[1,3,8]
%a f32[1,3,8] = Relu(%x) as "relu"
%b f32[1,3,8] = Sub(%a, %y) as "sub"
%s f32[1,8,3] = Transpose(%b) {perm=[0,2,1]} as "turn y"
output %s
)");
}

TEST(SinkTransposes, NotWhereItWouldBeAnother) {
  constexpr std::string_view text = R"(graph "g"
input %x f32[1,3,3]
input %y f32[1,3,3]
%a f32[1,3,3] = Transpose(%x) {perm=[0,2,1]} as "read twice"
%b f32[1,3,3] = Relu(%a) as "relu"
%c f32[1,3,3] = Add(%a, %y) as "one turned"
%d f32[1,3,3] = Transpose(%b) {perm=[0,2,1]} as "turn"
%e f32[3,1,3] = Transpose(%c) {perm=[1,0,2]} as "another turn"
%f f32[3,3,3] = Add(%d, %e) as "two turns"
%g f32[3,3,3] = Transpose(%f) {perm=[2,1,0]} as "then"
weight %m f32[3,3] content 1
%h f32[3,3,3] = Mul(%g, %m) as "two axes"
output %h
)";
  EXPECT_EQ(after("sink_transposes", text), without_contents(to_string(parse(text))));
}

TEST(SinkTransposes, KeepsWhatIsComputed) {
  WeightStore weights;
  const ContentId bias = weights.add_random({DType::f32, {5}}, 3, 1);
  Graph graph = parse(R"(graph "g"
input %x f32[2,5,4,3]
%a f32[2,4,3,5] = Transpose(%x) {perm=[0,2,3,1]} as "to"
weight %w f32[5] content 1
%b f32[2,4,3,5] = Sub(%w, %a) as "sub"
%c f32[2,4,3,5] = Sigmoid(%b) as "sigmoid"
weight %v f32[4,1,1] content 1
%d f32[2,4,3,5] = Mul(%c, %v) as "mul"
output %d
)");
  const ContentId rows = weights.add_random({DType::f32, {4}}, 4, 1);
  for (Value& value : graph.values) {
    if (value.kind == ValueKind::weight) value.content = value.name == "w" ? bias : rows;
  }
  const Graph sunk = pass("sink_transposes").run(graph, weights).value();
  EXPECT_EQ(sunk.nodes.back().op, Op::Transpose);
  const std::vector<Tensor> inputs = random_inputs(graph, 1);
  expect_same_bits(evaluate(sunk, weights, inputs).value(), evaluate(graph, weights, inputs).value());
}

}  // namespace
}  // namespace nlsplit
