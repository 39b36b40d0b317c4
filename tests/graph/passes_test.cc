// Each pass, golden before and after; with_batch and batched_values.
#include "graph/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "graph/zoo.h"
#include "testing/random_graph.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

const Pass& pass(std::string_view name) {
  const auto found = std::ranges::find(all_passes(), name, &Pass::name);
  CHECK(found != all_passes().end(), name);
  return *found;
}

// Contents are hashes: golden texts leave them out.
std::string without_contents(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t mark = std::min(text.find(" content ", at), text.size());
    out += text.substr(at, mark - at);
    at = mark == text.size() ? mark : std::min(text.find('\n', mark), text.size());
  }
  return out;
}

Graph parse(std::string_view text) {
  auto graph = parse_graph(text, "test");
  CHECK(graph.ok(), graph.ok() ? "" : graph.error().to_string());
  return std::move(graph).value();
}

std::string after(std::string_view name, std::string_view text, WeightStore* weights = nullptr) {
  WeightStore none;
  auto out = pass(name).run(parse(text), weights != nullptr ? *weights : none);
  if (!out.ok()) return out.error().message;
  const Status sound = verify(*out);
  EXPECT_TRUE(sound.ok()) << sound.error().message;
  return without_contents(to_string(*out));
}

#define CONV1 "{dilations=[1,1], group=1, kernel_shape=[1,1], pads=[0,0,0,0], strides=[1,1]}"

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
%a f32[1,4,3,3] = Conv(%x, %w) )" CONV1 R"( as "conv"
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
%b f32[1,4,3,3] = Conv(%x, %norm.folded_weight, %norm.folded_bias) )" CONV1 R"( as "conv"
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
%a f32[1,4,3,3] = Conv(%x, %w) )" CONV1 R"( as "conv"
weight %b f32[1,4,1,1] content 2
%s f32[1,4,3,3] = Add(%b, %a) as "add"
%a2 f32[1,4,3,3] = Conv(%x, %w) )" CONV1 R"( as "conv2"
weight %b2 f32[4,1,3] content 3
%s2 f32[1,4,3,3] = Add(%a2, %b2) as "no bias"
output %s
output %s2
)"),
            R"(graph "g"
input %x f32[1,2,3,3]
weight %w f32[4,2,1,1]
weight %b.flat f32[4]
%s f32[1,4,3,3] = Conv(%x, %w, %b.flat) )" CONV1 R"( as "conv"
%a2 f32[1,4,3,3] = Conv(%x, %w) )" CONV1 R"( as "conv2"
weight %b2 f32[4,1,3]
%s2 f32[1,4,3,3] = Add(%a2, %b2) as "no bias"
output %s
output %s2
)");
}

// The skip connection goes behind the later convolution, whose operand is there by then; the earlier could not wait for
// it.
TEST(Passes, FuseElementwise) {
  EXPECT_EQ(after("fuse_elementwise", R"(graph "g"
input %x f32[1,2,3,3]
weight %w f32[2,2,1,1] content 1
%a f32[1,2,3,3] = Conv(%x, %w) )" CONV1 R"( as "left"
%b f32[1,2,3,3] = Conv(%x, %w) )" CONV1 R"( as "right"
%r f32[1,2,3,3] = Clip(%b) {max=6.0, min=0.0} as "clip"
%s f32[1,2,3,3] = Add(%a, %r) as "add"
%t f32[1,2,3,3] = Relu(%s) as "relu"
%u f32[1,2,3,3] = Exp(%t) as "exp"
output %u
)"),
            R"(graph "g"
input %x f32[1,2,3,3]
weight %w f32[2,2,1,1]
%a f32[1,2,3,3] = Conv(%x, %w) )" CONV1 R"( as "left"
%t f32[1,2,3,3] = Conv(%x, %w) )" CONV1
            R"( as "right" + Clip {max=6.0, min=0.0} as "clip" + Add(%a) as "add" + Relu as "relu"
%u f32[1,2,3,3] = Exp(%t) as "exp"
output %u
)");
}

TEST(Passes, FuseElementwiseLeavesWhatItMust) {
  // a: read twice; b: its Add broadcasts; c: a constant operand, which has no batch
  const std::string_view text = R"(graph "g"
input %x f32[1,2,3,3]
weight %w f32[2,2,1,1]
%a f32[1,2,3,3] = Conv(%x, %w) )" CONV1 R"( as "a"
%a2 f32[1,2,3,3] = Relu(%a) as "relu a"
%b f32[1,2,3,3] = Conv(%a, %w) )" CONV1 R"( as "b"
%m f32[1,2,1,1] = GlobalAveragePool(%a2) as "mean"
%b2 f32[1,2,3,3] = Mul(%b, %m) as "gate"
%c f32[1,2,3,3] = Conv(%b2, %w) )" CONV1 R"( as "c"
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
%e f32[1,4,3,3] = Conv(%x, %w) )" CONV1 R"( as "conv2"
%f f32[1,4,3,3] = Add(%e, %d) as "skip"
%g f32[1,4,3,3] = Relu(%f) as "relu2"
output %g
)");
  const Graph fused = optimize(parse(text), weights).value();
  EXPECT_EQ(without_contents(to_string(fused)), R"(graph "g"
input %x f32[1,2,3,3]
weight %norm.folded_weight f32[4,2,1,1]
weight %norm.folded_bias f32[4]
%c f32[1,4,3,3] = Conv(%x, %norm.folded_weight, %norm.folded_bias) )" CONV1 R"( as "conv" + Relu as "relu"
weight %w f32[4,2,1,1]
%g f32[1,4,3,3] = Conv(%x, %w) )" CONV1 R"( as "conv2" + Add(%c) as "skip" + Relu as "relu2"
output %g
)");
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
%a f32[] = Pad(%x) {pads=[], value=0.0} as "pad"
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
