// Each pass, golden before and after; with_batch and batched_values.
#include "graph/passes/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/file.h"
#include "graph/pass_text.h"
#include "graph/zoo/zoo.h"
#include "testing/paths.h"
#include "testing/random_graph.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

TEST(Passes, RemoveIdentity) {
  EXPECT_EQ(after("remove_identity", R"(graph "g"
input %x f32[1,4]
%a f32[1,4] = Identity(%x) as "dropout"
%b f32[1,4] = Reshape(%a) {shape=[0,-1]} as "nothing"
%c f32[1,4] = Relu(%b) as "relu"
%d f32[4] = Reshape(%c) {shape=[4]} as "reshape"
%e f32[4] = Identity(%d) as "last"
output %e
)"),
            R"(graph "g"
input %x f32[1,4]
%c f32[1,4] = Relu(%x) as "relu"
%d f32[4] = Reshape(%c) {shape=[4]} as "reshape"
%e f32[4] = Identity(%d) as "last"
output %e
)") << "an output keeps its name, so its node stays";
}

constexpr std::string_view normed = R"(graph "g"
input %x f32[1,2,3,3]
weight %w f32[4,2,1,1] content 1
%a f32[1,4,3,3] = Conv(%x, %w) as "conv"
weight %scale f32[4] content 2
weight %bias f32[4] content 3
weight %mean f32[4] content 4
weight %var f32[4] content 5
%b f32[1,4,3,3] = BatchNormalization(%a, %scale, %bias, %mean, %var) {epsilon=0.001} as "norm"
%c f32[1,4,3,3] = Relu(%b) as "relu"
output %c
)";

TEST(Passes, FoldBatchNorm) {
  WeightStore weights;
  EXPECT_EQ(after("fold_batch_norm", normed, &weights), R"(graph "g"
input %x f32[1,2,3,3]
weight %norm.folded_weight f32[4,2,1,1]
weight %norm.folded_bias f32[4]
%b f32[1,4,3,3] = Conv(%x, %norm.folded_weight, %norm.folded_bias) as "conv"
%c f32[1,4,3,3] = Relu(%b) as "relu"
output %c
)");
  // The recipes are the ones the store knows.
  WeightStore again;
  const ContentId w = again.add_derived(Derivation::bn_weight, {{1}, {2}, {5}}, 0.001, {DType::f32, {4, 2, 1, 1}});
  const ContentId b = again.add_derived(Derivation::bn_bias, {{2}, {3}, {4}, {5}}, 0.001, {DType::f32, {4}});
  EXPECT_TRUE(weights.contains(w));
  EXPECT_TRUE(weights.contains(b));
}

TEST(Passes, FoldBatchNormOnlyWhereNobodyElseReadsTheConv) {
  std::string twice(normed);
  twice += "output %a\n";
  EXPECT_EQ(after("fold_batch_norm", twice), without_contents(to_string(parse(twice))));
}

TEST(Passes, FuseBias) {
  EXPECT_EQ(after("fuse_bias", R"(graph "g"
input %x f32[1,2,3,3]
weight %w f32[4,2,1,1] content 1
%a f32[1,4,3,3] = Conv(%x, %w) as "conv"
weight %b f32[1,4,1,1] content 2
%s f32[1,4,3,3] = Add(%b, %a) as "add"
%a2 f32[1,4,3,3] = Conv(%x, %w) as "conv2"
weight %b2 f32[4,1,3] content 3
%s2 f32[1,4,3,3] = Add(%a2, %b2) as "no bias"
output %s
output %s2
)"),
            R"(graph "g"
input %x f32[1,2,3,3]
weight %w f32[4,2,1,1]
weight %b.flat f32[4]
%s f32[1,4,3,3] = Conv(%x, %w, %b.flat) as "conv"
%a2 f32[1,4,3,3] = Conv(%x, %w) as "conv2"
weight %b2 f32[4,1,3]
%s2 f32[1,4,3,3] = Add(%a2, %b2) as "no bias"
output %s
output %s2
)");
}

TEST(Passes, FuseBiasOfProducts) {
  EXPECT_EQ(after("fuse_bias", R"(graph "g"
input %x f32[2,3,4]
weight %w f32[4,5] content 1
%a f32[2,3,5] = MatMul(%x, %w) as "fc"
weight %b f32[5] content 2
%c f32[2,3,5] = Add(%b, %a) as "fc.add"
weight %w2 f32[5,5] content 3
%d f32[2,3,5] = MatMul(%c, %w2) as "fc2"
weight %row f32[1,1,5] content 4
%e f32[2,3,5] = Add(%d, %row) as "fc2.add"
%f f32[6,5] = Reshape(%e) {shape=[6,5]} as "rows"
%g f32[6,5] = Gemm(%f, %w2) {alpha=2.0, beta=0.5, transA=0, transB=0} as "gemm"
%h f32[6,5] = Add(%g, %b) as "gemm.add"
output %h
)"),
            R"(graph "g"
input %x f32[2,3,4]
weight %w f32[4,5]
weight %b f32[5]
%c f32[2,3,5] = MatMul(%x, %w, %b) as "fc"
weight %w2 f32[5,5]
weight %row.flat f32[5]
%e f32[2,3,5] = MatMul(%c, %w2, %row.flat) as "fc2"
%f f32[6,5] = Reshape(%e) {shape=[6,5]} as "rows"
%h f32[6,5] = Gemm(%f, %w2, %b) {alpha=2.0} as "gemm"
output %h
)");
}

// No bias: one value a row, a result of more axes, a product by a vector, one that has a bias, one that others read.
TEST(Passes, FuseBiasLeavesOtherSums) {
  constexpr std::string_view text = R"(graph "g"
input %x f32[3,4]
weight %w f32[4,3] content 1
%a f32[3,3] = MatMul(%x, %w) as "a"
weight %rows f32[3,1] content 4
%a2 f32[3,3] = Add(%a, %rows) as "a2"
%c f32[3,3] = MatMul(%x, %w) as "c"
weight %three f32[1,1,3] content 5
%c2 f32[1,3,3] = Add(%c, %three) as "c2"
weight %v f32[4] content 3
%d f32[3] = MatMul(%x, %v) as "d"
weight %b f32[3] content 2
%d2 f32[3] = Add(%d, %b) as "d2"
%e f32[3,3] = MatMul(%x, %w, %b) as "e"
%e2 f32[3,3] = Add(%e, %b) as "e2"
%f f32[3,3] = MatMul(%x, %w) as "f"
%f2 f32[3,3] = Add(%f, %b) as "f2"
output %a2
output %c2
output %d2
output %e2
output %f
output %f2
)";
  EXPECT_EQ(after("fuse_bias", text), without_contents(to_string(parse(text))));
}

// The skip connection goes behind the later convolution, whose operand is there by then; the earlier could not wait for
// it.
TEST(Passes, FuseElementwise) {
  EXPECT_EQ(after("fuse_elementwise", R"(graph "g"
input %x f32[1,2,3,3]
weight %w f32[2,2,1,1] content 1
%a f32[1,2,3,3] = Conv(%x, %w) as "left"
%b f32[1,2,3,3] = Conv(%x, %w) as "right"
%r f32[1,2,3,3] = Clip(%b) {max=6.0, min=0.0} as "clip"
%s f32[1,2,3,3] = Add(%a, %r) as "add"
%t f32[1,2,3,3] = Relu(%s) as "relu"
%u f32[1,2,3,3] = Exp(%t) as "exp"
output %u
)"),
            R"(graph "g"
input %x f32[1,2,3,3]
weight %w f32[2,2,1,1]
%a f32[1,2,3,3] = Conv(%x, %w) as "left"
%t f32[1,2,3,3] = Conv(%x, %w) as "right" + Clip {max=6.0, min=0.0} as "clip" + Add(%a) as "add" + Relu as "relu"
%u f32[1,2,3,3] = Exp(%t) as "exp"
output %u
)");
}

// Each of these kernels applies steps to its own result; x * sigmoid(x) reads x twice, which is there both times.
TEST(Passes, FuseElementwiseBehindWhateverTakesSteps) {
  EXPECT_EQ(after("fuse_elementwise", R"(graph "g"
input %x f32[2,3]
weight %s f32[3] content 1
%a f32[2,3] = LayerNormalization(%x, %s) {axis=1, epsilon=0.1} as "norm"
%b f32[2,3] = Gelu(%a) {approximate="tanh"} as "gelu"
%c f32[2,3] = Sigmoid(%b) as "sigmoid"
%d f32[2,3] = Mul(%b, %c) as "swish"
%e f32[2,3] = Sub(%d, %s) as "sub"
%f f32[2,3] = Relu(%e) as "relu"
%g f32[2,3] = Div(%f, %s) as "div"
%h f32[2,3] = Tanh(%g) as "tanh"
%i f32[2,3] = Sum(%h, %x, %h) as "sum"
%j f32[2,3] = Relu(%i) as "relu2"
%k f32[2,3] = Softmax(%j) {axis=1} as "softmax"
%l f32[2,3] = Relu(%k) as "relu3"
output %l
)"),
            R"(graph "g"
input %x f32[2,3]
weight %s f32[3]
%b f32[2,3] = LayerNormalization(%x, %s) {axis=1, epsilon=0.1} as "norm" + Gelu {approximate="tanh"} as "gelu"
%d f32[2,3] = Sigmoid(%b) as "sigmoid" + Mul(%b) as "swish"
%f f32[2,3] = Sub(%d, %s) as "sub" + Relu as "relu"
%h f32[2,3] = Div(%f, %s) as "div" + Tanh as "tanh"
%j f32[2,3] = Sum(%h, %x, %h) as "sum" + Relu as "relu2"
%k f32[2,3] = Softmax(%j) {axis=1} as "softmax"
%l f32[2,3] = Relu(%k) as "relu3"
output %l
)");
}

TEST(Passes, FuseElementwiseLeavesWhatItMust) {
  // a: read twice; b: its Add broadcasts; c: a constant operand, which has no batch
  const std::string_view text = R"(graph "g"
input %x f32[1,2,3,3]
weight %w f32[2,2,1,1]
%a f32[1,2,3,3] = Conv(%x, %w) as "a"
%a2 f32[1,2,3,3] = Relu(%a) as "relu a"
%b f32[1,2,3,3] = Conv(%a, %w) as "b"
%m f32[1,2,1,1] = GlobalAveragePool(%a2) as "mean"
%b2 f32[1,2,3,3] = Mul(%b, %m) as "gate"
%c f32[1,2,3,3] = Conv(%b2, %w) as "c"
weight %k f32[1,2,3,3]
%c2 f32[1,2,3,3] = Add(%c, %k) as "constant"
output %c2
)";
  std::string with_contents(text);
  for (const char* weight : {"%w f32[2,2,1,1]", "%k f32[1,2,3,3]"}) {
    with_contents.replace(with_contents.find(weight), std::strlen(weight), std::string(weight) + " content 1");
  }
  EXPECT_EQ(after("fuse_elementwise", with_contents), text);
}

TEST(Passes, RemoveDead) {
  EXPECT_EQ(after("remove_dead", R"(graph "g"
input %x f32[1,4]
weight %unused f32[4] content 1
%a f32[1,4] = Relu(%x) as "needed"
%b f32[1,4] = Tanh(%x) as "dead"
%c f32[1,4] = Add(%b, %unused) as "dead too"
output %a
)"),
            R"(graph "g"
input %x f32[1,4]
%a f32[1,4] = Relu(%x) as "needed"
output %a
)");
}

// conv + norm + skip + relu of a residual block, all passes: one node, called like the Conv.
TEST(Passes, OptimizeDoesThemAll) {
  WeightStore weights;
  std::string text(normed);
  text.replace(text.find("output %c\n"), 10, R"(%d f32[1,4,3,3] = Identity(%c) as "dropout"
weight %w2 f32[4,2,1,1] content 6
%e f32[1,4,3,3] = Conv(%x, %w2) as "conv2"
%f f32[1,4,3,3] = Add(%e, %d) as "skip"
%g f32[1,4,3,3] = Relu(%f) as "relu2"
output %g
)");
  const Graph fused = optimize(parse(text), weights).value();
  EXPECT_EQ(without_contents(to_string(fused)), R"(graph "g"
input %x f32[1,2,3,3]
weight %norm.folded_weight f32[4,2,1,1]
weight %norm.folded_bias f32[4]
%c f32[1,4,3,3] = Conv(%x, %norm.folded_weight, %norm.folded_bias) as "conv" + Relu as "relu"
weight %w2 f32[4,2,1,1]
%g f32[1,4,3,3] = Conv(%x, %w2) as "conv2" + Add(%c) as "skip" + Relu as "relu2"
output %g
)");
}

std::string selected(std::string_view names) {
  const auto passes = select_passes(names);
  if (!passes) return passes.error().message;
  std::string text;
  for (const Pass& one : *passes) text += (text.empty() ? "" : " ") + std::string(one.name);
  return text;
}

TEST(Passes, AreSelectedByTheirNames) {
  std::string all;
  for (const Pass& one : all_passes()) all += (all.empty() ? "" : " ") + std::string(one.name);
  EXPECT_EQ(selected("all"), all);
  EXPECT_EQ(selected("none"), "");
  EXPECT_EQ(selected("remove_dead,fuse_bias,remove_dead"), "remove_dead fuse_bias remove_dead");
  EXPECT_EQ(selected("fuse_bias,remove_dead,fuse_bias,-fuse_bias"), "remove_dead");
  EXPECT_EQ(selected("all,-remove_dead") + " remove_dead", all) << "it is the last";
  EXPECT_EQ(selected("fuse_bias,-remove_dead"),
            "remove_dead cannot be left out: it is not among the passes named before");
  EXPECT_THAT(selected("fuse_bia"), HasSubstr("no pass is called \"fuse_bia\", did you mean fuse_bias?; there are "));
  for (const char* wrong : {"", "fuse_bias,", "none,fuse_bias", "-none", "ALL"})
    EXPECT_THAT(selected(wrong), HasSubstr("no pass is called")) << wrong;
}

// "## NAME" for each, in their order, and below it what `--help` says.
TEST(Passes, StandInTheirManualInOrder) {
  const auto manual = read_file(NLS_SOURCE_DIR "/docs/optimizer.md");
  ASSERT_TRUE(manual.ok());
  std::string expected, headings;
  for (const Pass& one : all_passes())
    expected += "## " + std::string(one.name) + "\n\n" + std::string(one.what) + "\n";
  for (size_t at = manual->find("\n## "); at != std::string::npos; at = manual->find("\n## ", at + 1)) {
    headings += manual->substr(at + 1, manual->find('\n', manual->find("\n\n", at) + 2) - at);
  }
  EXPECT_EQ(headings, expected);
}

TEST(Passes, OptimizeIsIdempotent) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    Model model = random_graph(seed, 12);
    const Graph once = optimize(model.graph, model.weights).value();
    EXPECT_EQ(to_string(optimize(once, model.weights).value()), to_string(once));
  }
}

TEST(WithBatch, ReshapesFollow) {
  const Graph graph = parse(R"(graph "g"
input %x f32[1,2,3,3]
%a f32[1,18] = Reshape(%x) {shape=[1,18]} as "literal"
%b f32[1,3,6] = Reshape(%a) {shape=[-1,3,6]} as "inferred"
%c f32[1,3,6] = Relu(%b) as "relu"
output %c
)");
  EXPECT_EQ(to_string(with_batch(graph, 8).value()), R"(graph "g"
input %x f32[8,2,3,3]
%a f32[8,18] = Reshape(%x) {shape=[0,18]} as "literal"
%b f32[8,3,6] = Reshape(%a) {shape=[0,3,6]} as "inferred"
%c f32[8,3,6] = Relu(%b) as "relu"
output %c
)");
}

// The pages are those of all samples, however many there are.
TEST(WithBatch, PagesStay) {
  const Model model = zoo_model(
                          "llama?layers=1&hidden=16&heads=2&kv_heads=2&ffn=32&vocab=40&length=1&context=12&page=4&"
                          "pages=5",
                          1)
                          .value();
  const Graph three = with_batch(model.graph, 3).value();
  int states = 0;
  for (const Value& value : three.values) {
    const Shape& shape = value.type.shape;
    EXPECT_TRUE(!value.state || shape == (Shape{5, 2, 4, 8})) << value.name;
    EXPECT_TRUE(value.name != "pages" || shape == (Shape{3, 3}));
    EXPECT_TRUE(value.name != "scores" || shape[0] == 3);
    states += value.state ? 1 : 0;
  }
  EXPECT_EQ(states, 2);
  EXPECT_EQ(with_batch(three, 1).value().values, model.graph.values);
}

TEST(WithBatch, WorkScalesAndComesBack) {
  for (const ZooEntry& entry : zoo()) {
    SCOPED_TRACE(entry.name);
    Model model = entry.build(1).value();
    const Graph graph = optimize(model.graph, model.weights).value();
    const Graph eight = with_batch(graph, 8).value();
    ASSERT_EQ(eight.nodes.size(), graph.nodes.size());
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      EXPECT_EQ(work_of(eight, eight.nodes[i]).flops, work_of(graph, graph.nodes[i]).flops * 8.0)
          << graph.nodes[i].name;
    }
    const Graph back = with_batch(eight, 1).value();
    EXPECT_EQ(back.values, graph.values);
  }
}

std::string mixes(std::string_view text) {
  const auto values = batched_values(parse(text));
  return values.ok() ? "kept apart" : values.error().message;
}

TEST(WithBatch, NamesTheNodeThatMixesSamples) {
  EXPECT_EQ(mixes(R"(graph "g"
input %x f32[4,4]
%a f32[4,4] = Transpose(%x) {perm=[1,0]} as "turn"
output %a
)"),
            "node turn (Transpose) mixes samples of the batch");
  EXPECT_EQ(mixes(R"(graph "g"
input %x f32[1,4]
weight %w f32[4] content 1
%a f32[4] = Relu(%w) as "constant"
output %a
)"),
            "output a does not depend on the input");
  EXPECT_THAT(mixes(R"(graph "g"
input %x f32[1,4]
input %y f32[2,4]
%a f32[2,4] = Add(%x, %y) as "add"
output %a
)"),
              HasSubstr("the inputs do not agree on a batch axis"));
  EXPECT_THAT(mixes(R"(graph "g"
input %x f32[]
%a f32[] = Pad(%x) {pads=[]} as "pad"
output %a
)"),
              HasSubstr("input x is f32[]"));
}

TEST(WithBatch, MoreOperandsThanAMaskHolds) {
  GraphBuilder g("wide");
  const ValueId x = g.input("x", {DType::f32, {1, 2}});
  g.output(g.add(Op::Sum, "sum", std::vector<ValueId>(65, x), {}).value());
  EXPECT_EQ(batched_values(std::move(g).finish()).error().message, "node sum (Sum) has more than 64 operands");
}

TEST(WithBatch, ImpossibleBatchesAreErrors) {
  const Graph graph = zoo_model("simple_cnn").value().graph;
  const auto huge = with_batch(graph, int64_t{1} << 45);
  ASSERT_FALSE(huge.ok());
  EXPECT_THAT(huge.error().message, HasSubstr("too large"));
}

}  // namespace
}  // namespace nlsplit
