// Networks in float16 and bfloat16: golden before and after, what stays float32, and what is computed then.
#include "graph/passes/precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/pass_text.h"
#include "graph/zoo/families.h"
#include "graph/zoo/zoo.h"
#include "testing/tensors.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

std::string converted(std::string_view text, DType type = DType::f16, Purpose purpose = Purpose::inference) {
  WeightStore weights;
  auto out = with_precision(parse(text), weights, type, purpose);
  if (!out.ok()) return out.error().message;
  EXPECT_TRUE(verify(*out).ok());
  return without_contents(to_string(*out));
}

TEST(Precision, EverythingBetweenInputsAndOutputs) {
  EXPECT_EQ(converted(R"(graph "block"
input %x f32[1,4,6,6]
input %ids i64[2]
weight %w f32[4,4,3,3] content 1
weight %b f32[4] content 2
%sum f32[1,4,6,6] = Conv(%x, %w, %b) {pads=[1,1,1,1]} as "conv1" + Add(%x) as "add1" + Relu as "relu1"
weight %table f32[9,8] content 3
%rows f32[2,8] = Gather(%table, %ids) as "embed"
output %sum
output %rows
output %x
)"),
            R"(graph "block"
input %x f32[1,4,6,6]
input %ids i64[2]
%x.f16 f16[1,4,6,6] = Cast(%x) {to="f16"} as "x.f16.cast"
weight %w.f16 f16[4,4,3,3]
weight %b.f16 f16[4]
%sum.f16 f16[1,4,6,6] = Conv(%x.f16, %w.f16, %b.f16) {pads=[1,1,1,1]} as "conv1" + Add(%x.f16) as "add1" + Relu as "relu1"
%sum f32[1,4,6,6] = Cast(%sum.f16) {to="f32"} as "sum.cast"
weight %table.f16 f16[9,8]
%rows.f16 f16[2,8] = Gather(%table.f16, %ids) as "embed"
%rows f32[2,8] = Cast(%rows.f16) {to="f32"} as "rows.cast"
output %sum
output %rows
output %x
)");
}

// Weights stay float32, and each node that reads one has a Cast of its own. Scalars are constants.
TEST(Precision, TrainingKeepsWeightsAndNormalizationsInFloat32) {
  const std::string text = R"(graph "g"
input %x f32[4,8]
weight %w f32[8,8] content 1
%y f32[4,8] = MatMul(%x, %w) as "first"
weight %scale f32[8] content 2
%n f32[4,8] = LayerNormalization(%y, %scale) {axis=1, epsilon=1e-05} as "norm"
weight %half f32[] content 3
%m f32[4,8] = Mul(%n, %half) as "scaled"
%z f32[4,8] = MatMul(%m, %w) as "second"
output %z
)";
  EXPECT_EQ(converted(text, DType::bf16, Purpose::training), R"(graph "g"
input %x f32[4,8]
%x.bf16 bf16[4,8] = Cast(%x) {to="bf16"} as "x.bf16.cast"
weight %w f32[8,8]
%w.bf16.first bf16[8,8] = Cast(%w) {to="bf16"} as "w.bf16.first.cast"
%y bf16[4,8] = MatMul(%x.bf16, %w.bf16.first) as "first"
%y.f32 f32[4,8] = Cast(%y) {to="f32"} as "y.f32.cast"
weight %scale f32[8]
%n f32[4,8] = LayerNormalization(%y.f32, %scale) {axis=1, epsilon=1e-05} as "norm"
%n.bf16 bf16[4,8] = Cast(%n) {to="bf16"} as "n.bf16.cast"
weight %half.bf16 bf16[]
%m bf16[4,8] = Mul(%n.bf16, %half.bf16) as "scaled"
%w.bf16.second bf16[8,8] = Cast(%w) {to="bf16"} as "w.bf16.second.cast"
%z.bf16 bf16[4,8] = MatMul(%m, %w.bf16.second) as "second"
%z f32[4,8] = Cast(%z.bf16) {to="f32"} as "z.cast"
output %z
)");
  EXPECT_EQ(converted(text, DType::f16, Purpose::training),
            "float16 is for inference: its gradients need loss scaling; bfloat16 trains");
}

// The values that other nodes read of an output are the halves themselves; what an operator must have in float32 is
// the output.
TEST(Precision, PositionsAndScalesStay) {
  EXPECT_EQ(converted(R"(graph "g"
input %x f32[1,2,8,8]
input %rois f32[3,4]
input %which i64[3]
%y f32[1,2,8,8] = Relu(%x) as "relu"
%r f32[3,2,2,2] = RoiAlign(%y, %rois, %which) {coordinate_transformation_mode="half_pixel", mode="avg", output_height=2, output_width=2, sampling_ratio=0, spatial_scale=1.0} as "roi"
%n f32[3,2,2,2] = Neg(%r) as "neg"
output %y
output %n
)",
                      DType::bf16),
            R"(graph "g"
input %x f32[1,2,8,8]
input %rois f32[3,4]
input %which i64[3]
%x.bf16 bf16[1,2,8,8] = Cast(%x) {to="bf16"} as "x.bf16.cast"
%y.bf16 bf16[1,2,8,8] = Relu(%x.bf16) as "relu"
%y f32[1,2,8,8] = Cast(%y.bf16) {to="f32"} as "y.cast"
%r f32[3,2,2,2] = RoiAlign(%y, %rois, %which) {output_height=2, output_width=2} as "roi"
%r.bf16 bf16[3,2,2,2] = Cast(%r) {to="bf16"} as "r.bf16.cast"
%n.bf16 bf16[3,2,2,2] = Neg(%r.bf16) as "neg"
%n f32[3,2,2,2] = Cast(%n.bf16) {to="f32"} as "n.cast"
output %y
output %n
)");
}

// A mask made of 0 and 1: (1 - mask) * -1e9 is beyond float16, and becomes its lowest.
TEST(Precision, WhatIsMadeOfIntegersStays) {
  EXPECT_EQ(converted(R"(graph "g"
input %x f32[1,8]
input %mask i64[1,8]
%m f32[1,8] = Cast(%mask) {to="f32"} as "cast"
weight %one f32[] content 1
%off f32[1,8] = Sub(%one, %m) as "off"
weight %low f32[] content 2
%add f32[1,8] = Mul(%off, %low) as "low"
%y f32[1,8] = Add(%x, %add) as "add"
%i i64[1,8] = Cast(%y) {to="i64"} as "places"
output %i
)"),
            R"(graph "g"
input %x f32[1,8]
input %mask i64[1,8]
%m f32[1,8] = Cast(%mask) {to="f32"} as "cast"
weight %one f32[]
%off f32[1,8] = Sub(%one, %m) as "off"
weight %low f32[]
%add f32[1,8] = Mul(%off, %low) as "low"
%x.f16 f16[1,8] = Cast(%x) {to="f16"} as "x.f16.cast"
%add.finite f32[1,8] = Clip(%add) {max=65504.0, min=-65504.0} as "add.finite"
%add.f16 f16[1,8] = Cast(%add.finite) {to="f16"} as "add.f16.cast"
%y f16[1,8] = Add(%x.f16, %add.f16) as "add"
%i i64[1,8] = Cast(%y) {to="i64"} as "places"
output %i
)");
}

TEST(Precision, NamesThatAreTakenGetANumber) {
  const std::string text = converted(R"(graph "g"
input %x f32[4]
input %x.f16 f32[4]
%y f32[4] = Add(%x, %x.f16) as "x.f162.cast"
output %y
)");
  EXPECT_THAT(text, HasSubstr("%x.f162 f16[4] = Cast(%x) {to=\"f16\"} as \"x.f162.cast2\""));
}

// A model that has halves of its own keeps them, and gets no others.
TEST(Precision, OtherTypesStayWhatTheyAre) {
  constexpr std::string_view text = R"(graph "g"
input %x bf16[4]
weight %w bf16[4]
%y bf16[4] = Mul(%x, %w) as "mul"
%z f64[4] = Cast(%y) {to="f64"} as "cast"
output %z
)";
  const std::string with_content = std::string(text).replace(text.find("bf16[4]\n%y"), 7, "bf16[4] content 1");
  EXPECT_EQ(converted(with_content), text);
}

TEST(Precision, WeightsAreRoundedWhenTheyAreRead) {
  WeightStore store;
  const std::vector<double> values{0, 1, 1 + 0x1p-11, 1 + 0x3p-11, -70000, 1e30, HUGE_VAL, 1e-9};
  const TensorType type{DType::f32, {8}};
  const ContentId w = store.add_bytes(type, raw_of(DType::f32, std::span<const double>(values)));
  const Bytes before = store.stored_bytes();
  const ContentId half = store.add_derived(Derivation::to_f16, {w}, 0, {DType::f16, {8}});
  const ContentId brain = store.add_derived(Derivation::to_bf16, {w}, 0, {DType::bf16, {8}});
  EXPECT_NE(half, brain);
  EXPECT_EQ(store.stored_bytes(), before);
  EXPECT_EQ(reals_of(DType::f16, store.materialise(half).value()),
            (std::vector<double>{0, 1, 1, 1 + 0x1p-9, -65504, 65504, HUGE_VAL, 0}));
  const std::vector<double> got = reals_of(DType::bf16, store.materialise(brain).value());
  EXPECT_EQ(got[4], -70144) << "137 * 2^9";
  EXPECT_NEAR(got[5], 1e30, 1e30 / 256);
  EXPECT_GT(got[7], 0);
}

int64_t bytes_of_weights(const Graph& graph) {
  int64_t sum = 0;
  for (const Value& value : graph.values) sum += value.kind == ValueKind::weight ? size_of(value.type).value() : 0;
  return sum;
}

TEST(Precision, PlanningALargeModelNeedsNoWeights) {
  Model model = zoo_model("llama?layers=80&hidden=8192").value();
  const Bytes before = model.weights.stored_bytes();
  const Graph half = with_precision(model.graph, model.weights, DType::bf16).value();
  EXPECT_EQ(2 * bytes_of_weights(half), bytes_of_weights(model.graph));
  EXPECT_EQ(model.weights.stored_bytes(), before);
}

// Rounding errors of values about 1: a unit in the last place is 2^-10 or 2^-7. What the layers behind make of one is
// about as large again for each, and errors of many roundings add up as a random walk.
void expect_near(Model model, DType type) {
  model.graph = optimize(model.graph, model.weights).value();
  const Graph half = with_precision(model.graph, model.weights, type).value();
  const std::vector<Tensor> inputs = random_inputs(model.graph, 3);
  const auto want = evaluate(model.graph, model.weights, inputs), got = evaluate(half, model.weights, inputs);
  ASSERT_TRUE(want.ok() && got.ok());
  const double unit = type == DType::f16 ? 0x1p-10 : 0x1p-7;
  double largest = 0;
  for (const float value : (*want)[0].values) largest = std::max(largest, std::abs(static_cast<double>(value)));
  const double layers = static_cast<double>(half.nodes.size());
  expect_close(*got, *want, {.relative = 0, .absolute = unit * largest * std::sqrt(layers)});
  EXPECT_FALSE(compare((*got)[0], (*want)[0], {.relative = 0, .absolute = unit * largest / 1000})) << "not converted";
}

TEST(Precision, SimpleCnnComesNear) {
  for (const DType type : {DType::f16, DType::bf16}) expect_near(build_simple_cnn(1), type);
}
TEST(Precision, ResnetComesNear) { expect_near(build_resnet(18, 1, 32), DType::f16); }

TEST(Precision, AnotherBatchFollows) {
  Model model = build_simple_cnn(1);
  model.graph = optimize(model.graph, model.weights).value();
  const Graph half = with_precision(model.graph, model.weights, DType::f16).value();
  const Graph four = with_batch(half, 4).value();
  EXPECT_EQ(four, with_precision(with_batch(model.graph, 4).value(), model.weights, DType::f16).value());
}

TEST(Precision, Float32ChangesNothing) {
  const std::string text = R"(graph "g"
input %x f32[1,4]
%y f32[1,4] = Relu(%x) as "relu"
output %y
)";
  EXPECT_EQ(converted(text, DType::f32), text);
}

TEST(Precision, Float32IsNoWideningOfWhatHasFewerBits) {
  EXPECT_EQ(converted(R"(graph "g"
input %x f32[1,4]
%half f16[1,4] = Cast(%x) {to="f16"} as "cast"
%y f16[1,4] = Relu(%half) as "relu"
output %y
)",
                      DType::f32),
            "value half is f16[1,4]: only a network in float32 has that precision; without 'precision' it is computed "
            "as it is");
}

TEST(Precision, Words) {
  EXPECT_EQ(parse_precision("float32").value(), DType::f32);
  EXPECT_EQ(parse_precision("float16").value(), DType::f16);
  EXPECT_EQ(parse_precision("bfloat16").value(), DType::bf16);
  EXPECT_EQ(parse_precision("fp16").error().message, "unknown precision \"fp16\"; it is float32, float16, bfloat16");
}

}  // namespace
}  // namespace nlsplit
