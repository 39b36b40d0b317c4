// Passes that take out what is not needed, golden before and after.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "graph/pass_text.h"

namespace nlsplit {
namespace {

TEST(Passes, RemoveDropoutButOfAnOutput) {
  EXPECT_EQ(after("remove_dropout", R"(graph "g"
input %x f32[1,4]
%a f32[1,4] = Dropout(%x) {ratio=0.25} as "first"
%b f32[1,4] = Relu(%a) as "relu"
%c f32[1,4] = Dropout(%b) {ratio=0.25} as "last"
output %c
)"),
            R"(graph "g"
input %x f32[1,4]
%b f32[1,4] = Relu(%x) as "relu"
%c f32[1,4] = Dropout(%b) {ratio=0.25} as "last"
output %c
)");
}

TEST(RemoveIdentity, TakesOutEveryKindOfNothing) {
  EXPECT_EQ(after("remove_identity", R"(graph "g"
input %x f32[2,4]
%a f32[2,4] = Cast(%x) {to="f32"} as "cast"
%b f32[2,4] = Expand(%a) {shape=[1,4]} as "expand"
%c f32[2,4] = Transpose(%b) {perm=[0,1]} as "transpose"
%d f32[2,4] = Pad(%c) {pads=[0,0,0,0], value=0.0} as "pad"
%e f32[2,4] = Tile(%d) {repeats=[1,1]} as "tile"
%f f32[2,4] = Slice(%e) {axes=[1], ends=[9], starts=[0], steps=[1]} as "slice"
%g f32[2,4] = Concat(%f) {axis=1} as "concat"
%h f32[2,4] = Sum(%g) as "sum"
%i f32[2,4] = Max(%h) as "max"
%j f32[2,4] = Relu(%i) as "relu"
output %j
)"),
            R"(graph "g"
input %x f32[2,4]
%j f32[2,4] = Relu(%x) as "relu"
output %j
)");
}

// Of these each moves or changes an element, or would at another batch.
TEST(RemoveIdentity, LeavesWhatOnlyLooksLikeIt) {
  constexpr std::string_view text = R"(graph "g"
input %x f32[1,4,4]
%a f32[1,4,4] = Transpose(%x) {perm=[0,2,1]} as "turn"
%b f32[1,4,4] = Slice(%a) {axes=[1], ends=[-9], starts=[3], steps=[-1]} as "reverse"
%c f32[1,4,4] = Slice(%b) {axes=[0], ends=[1], starts=[0], steps=[1]} as "first sample"
%d f32[1,4,4] = Slice(%c) {axes=[-3], ends=[1], starts=[0], steps=[1]} as "first sample again"
%e f32[1,4,4] = Pad(%d) {pads=[0,1,0,0,-1,0]} as "shift"
%f f32[1,4,4] = Sum(%e, %e) as "twice"
%g f16[1,4,4] = Cast(%f) {to="f16"} as "cast"
output %g
)";
  EXPECT_EQ(after("remove_identity", text), text);
}

TEST(FoldConstantViews, AConstantTakesTheShape) {
  EXPECT_EQ(after("fold_constant_views", R"(graph "g"
input %x f32[1,4,3]
weight %w f32[4] content 1
%column f32[4,1] = Reshape(%w) {shape=[4,1]} as "column"
%a f32[1,4,3] = Mul(%x, %column) as "mul"
weight %v f32[4,3] content 2
%flat f32[4,3] = Flatten(%v) {axis=1} as "flatten"
%row f32[1,4,3] = Reshape(%flat) {shape=[1,4,3]} as "row"
%b f32[1,4,3] = Add(%a, %row) as "add"
output %b
)"),
            R"(graph "g"
input %x f32[1,4,3]
weight %column f32[4,1]
%a f32[1,4,3] = Mul(%x, %column) as "mul"
weight %row f32[1,4,3]
%b f32[1,4,3] = Add(%a, %row) as "add"
output %b
)");
}

TEST(FoldConstantViews, NotOneThatOthersReadNorAnOutput) {
  constexpr std::string_view text = R"(graph "g"
input %x f32[4]
weight %w f32[4] content 0000000000000001
%column f32[4,1] = Reshape(%w) {shape=[4,1]} as "column"
%a f32[4,4] = Mul(%w, %column) as "mul"
weight %v f32[4] content 0000000000000002
%b f32[2,2] = Reshape(%v) {shape=[2,2]} as "made here"
%c f32[4] = Relu(%x) as "relu"
output %a
output %b
output %c
)";
  WeightStore weights;
  EXPECT_EQ(to_string(pass("fold_constant_views").run(parse(text), weights).value()), text);
}

TEST(MergePairs, TransposesCancelOrBecomeOne) {
  EXPECT_EQ(after("merge_pairs", R"(graph "g"
input %x f32[1,3,8,6]
%a f32[1,8,6,3] = Transpose(%x) {perm=[0,2,3,1]} as "to NHWC"
%b f32[1,3,8,6] = Transpose(%a) {perm=[0,3,1,2]} as "to NCHW"
%c f32[1,3,8,6] = Relu(%b) as "relu"
%d f32[1,8,3,6] = Transpose(%c) {perm=[0,2,1,3]} as "first"
%e f32[6,8,3,1] = Transpose(%d) {perm=[3,1,2,0]} as "second"
%f f32[8,6,3,1] = Transpose(%e) {perm=[1,0,2,3]} as "third"
%g f32[8,6,3,1] = Tanh(%f) as "tanh"
output %g
)"),
            R"(graph "g"
input %x f32[1,3,8,6]
%c f32[1,3,8,6] = Relu(%x) as "relu"
%f f32[8,6,3,1] = Transpose(%c) {perm=[2,3,1,0]} as "third"
%g f32[8,6,3,1] = Tanh(%f) as "tanh"
output %g
)");
}

TEST(MergePairs, OneThatOthersReadStays) {
  EXPECT_EQ(after("merge_pairs", R"(graph "g"
input %x f32[1,3,8]
%a f32[1,8,3] = Transpose(%x) {perm=[0,2,1]} as "there"
%b f32[1,3,8] = Transpose(%a) {perm=[0,2,1]} as "back"
output %a
output %b
)"),
            R"(graph "g"
input %x f32[1,3,8]
%a f32[1,8,3] = Transpose(%x) {perm=[0,2,1]} as "there"
%b f32[1,3,8] = Identity(%x) as "back"
output %a
output %b
)") << "an output keeps its name";
}

TEST(MergePairs, ReshapesBecomeOneThatFollowsTheBatch) {
  constexpr std::string_view text = R"(graph "g"
input %x f32[2,3,8]
%a f32[2,24] = Flatten(%x) {axis=1} as "flatten"
%b f32[2,4,6] = Reshape(%a) {shape=[2,4,-1]} as "reshape"
%c f32[2,4,6] = Relu(%b) as "relu"
%d f32[48] = Reshape(%c) {shape=[-1]} as "all in a row"
%e f32[2,4,6] = Reshape(%d) {shape=[2,4,6]} as "as before"
%f f32[2,4,6] = Tanh(%e) as "tanh"
%g f32[8,6] = Reshape(%f) {shape=[-1,6]} as "rows"
%h f32[48,1] = Reshape(%g) {shape=[48,1]} as "column"
output %h
)";
  constexpr std::string_view merged = R"(graph "g"
input %x f32[2,3,8]
%b f32[2,4,6] = Reshape(%x) {shape=[0,4,6]} as "reshape"
%c f32[2,4,6] = Relu(%b) as "relu"
%f f32[2,4,6] = Tanh(%c) as "tanh"
%h f32[48,1] = Reshape(%f) {shape=[48,1]} as "column"
output %h
)";
  EXPECT_EQ(after("merge_pairs", text), merged);
}

// An extent of 0 is nothing that an attribute could say.
TEST(MergePairs, AnEmptyTensorIsLeftAlone) {
  constexpr std::string_view text = R"(graph "g"
input %x f32[0,2,3]
%a f32[0,6] = Reshape(%x) {shape=[0,6]} as "there"
%b f32[0,2,3] = Reshape(%a) {shape=[0,2,3]} as "back"
%c f32[0,2,3] = Relu(%b) as "relu"
output %c
)";
  EXPECT_EQ(after("merge_pairs", text), text);
}

TEST(MergeCommon, OneComputationForAll) {
  EXPECT_EQ(after("merge_common", R"(graph "g"
input %x f32[1,4]
weight %w f32[4] content 1
weight %again f32[4] content 1
weight %other f32[4] content 2
weight %column f32[4,1] content 1
%a f32[1,4] = Mul(%x, %w) as "a"
%b f32[1,4] = Mul(%x, %again) as "b"
%c f32[1,4] = Mul(%x, %other) as "another weight"
%d f32[4,4] = Mul(%x, %column) as "another shape"
%e f32[1,4] = Clip(%a) {max=6.0, min=0.0} as "e"
%f f32[1,4] = Clip(%b) {max=6.0, min=0.0} as "f"
%g f32[1,4] = Clip(%b) {max=6.0, min=-1.0} as "another limit"
%h f32[1,4] = Sub(%e, %f) as "h"
%i f32[1,4] = Sub(%f, %g) as "i"
%j f32[4,4] = Add(%d, %i) as "j"
%k f32[4,4] = Add(%j, %h) as "k"
%l f32[4,4] = Add(%k, %c) as "l"
output %l
)"),
            R"(graph "g"
input %x f32[1,4]
weight %w f32[4]
%a f32[1,4] = Mul(%x, %w) as "a"
weight %other f32[4]
%c f32[1,4] = Mul(%x, %other) as "another weight"
weight %column f32[4,1]
%d f32[4,4] = Mul(%x, %column) as "another shape"
%e f32[1,4] = Clip(%a) {max=6.0, min=0.0} as "e"
%g f32[1,4] = Clip(%a) {max=6.0, min=-1.0} as "another limit"
%h f32[1,4] = Sub(%e, %e) as "h"
%i f32[1,4] = Sub(%e, %g) as "i"
%j f32[4,4] = Add(%d, %i) as "j"
%k f32[4,4] = Add(%j, %h) as "k"
%l f32[4,4] = Add(%k, %c) as "l"
output %l
)");
}

// What is fused behind a node belongs to what it computes, and every result of several is merged.
TEST(MergeCommon, EpiloguesAndSeveralResults) {
  constexpr std::string_view recurrent = R"({direction="reverse"})";
  const std::string text = fmt::format(R"(graph "g"
input %x f32[1,2,3]
weight %w f32[1,4,3] content 1
weight %r f32[1,4,4] content 2
weight %b f32[1,8] content 3
%a f32[1,2,1,4], %s f32[1,1,4] = RNN(%x, %w, %r, %b) {0} as "rnn"
%c f32[1,2,1,4], %t f32[1,1,4] = RNN(%x, %w, %r, %b) {0} as "rnn again"
%d f32[1,2,1,4] = Add(%a, %s) as "d" + Relu as "d relu"
%e f32[1,2,1,4] = Add(%c, %t) as "e" + Relu as "e relu"
%f f32[1,2,1,4] = Add(%c, %t) as "f" + Tanh as "f tanh"
%g f32[1,2,1,4] = Add(%a, %s) as "g" + Tanh as "an output"
%h f32[1,2,1,4] = Sum(%d, %e, %f, %g) as "h"
output %h
output %g
)",
                                       recurrent);
  EXPECT_EQ(after("merge_common", text), fmt::format(R"(graph "g"
input %x f32[1,2,3]
weight %w f32[1,4,3]
weight %r f32[1,4,4]
weight %b f32[1,8]
%a f32[1,2,1,4], %s f32[1,1,4] = RNN(%x, %w, %r, %b) {0} as "rnn"
%d f32[1,2,1,4] = Add(%a, %s) as "d" + Relu as "d relu"
%f f32[1,2,1,4] = Add(%a, %s) as "f" + Tanh as "f tanh"
%g f32[1,2,1,4] = Add(%a, %s) as "g" + Tanh as "an output"
%h f32[1,2,1,4] = Sum(%d, %d, %f, %g) as "h"
output %h
output %g
)",
                                                     recurrent));
}

}  // namespace
}  // namespace nlsplit
