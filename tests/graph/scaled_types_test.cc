// q8_0 and q4_0: weights of which 32 neighbours share a scale.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/random.h"
#include "graph/builder.h"
#include "graph/differentiate/step_graph.h"
#include "graph/elements.h"
#include "graph/half.h"
#include "graph/onnx/export.h"
#include "graph/passes/precision.h"
#include "graph/reference/evaluate.h"
#include "testing/tensors.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

std::string block(float scale, const std::string& behind) {
  const uint16_t bits = f16_bits(scale);
  std::string raw(reinterpret_cast<const char*>(&bits), sizeof bits);
  return raw + behind;
}

TEST(ScaledTypes, SizesAreOfWholeBlocks) {
  EXPECT_EQ(size_of({DType::q8_0, {3, 64}}).value(), 3 * 2 * 34);
  EXPECT_EQ(size_of({DType::q4_0, {3, 64}}).value(), 3 * 2 * 18);
  for (const char* text : {"q8_0[3,64]", "q4_0[32]", "q8_0[2,0]"}) {
    const auto type = parse_tensor_type(text);
    ASSERT_TRUE(type.ok()) << type.error().to_string();
    EXPECT_EQ(to_string(*type), text);
  }
  for (const char* text : {"q8_0[]", "q8_0[64,3]", "q4_0[3,33]", "q4_0[1,32,2,2]c4"})
    EXPECT_FALSE(parse_tensor_type(text).ok()) << text;
  EXPECT_THAT(parse_tensor_type("q8_0[3,40]").error().message, HasSubstr("q8_0[3,40]: 32 elements of q8_0 share"));
}

// Every step of either type by hand; the products of an f16 scale and a small integer are exact.
TEST(ScaledTypes, ElementsAreStepsOfTheScale) {
  std::string steps;
  for (int i = 0; i < 32; ++i) steps += static_cast<char>(i * 8 - 128);
  const std::vector<double> eight = reals_of(DType::q8_0, block(0.25f, steps) + block(-3, std::string(32, '\x7f')));
  ASSERT_EQ(eight.size(), 64u);
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(eight[i], 0.25 * (static_cast<double>(i) * 8 - 128));
    EXPECT_EQ(eight[32 + i], -3.0 * 127);
  }
  std::string pairs;
  for (int i = 0; i < 16; ++i) pairs += static_cast<char>(i | (15 - i) << 4);
  const std::vector<double> four = reals_of(DType::q4_0, block(1.5f, pairs));
  ASSERT_EQ(four.size(), 32u);
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(four[i], 1.5 * (static_cast<double>(i) - 8)) << "low half: element i";
    EXPECT_EQ(four[16 + i], 1.5 * (7 - static_cast<double>(i))) << "high half: element i + 16";
  }
}

TEST(ScaledTypes, ValuesAreWrittenToTheNearestStep) {
  Random random(3);
  for (const DType type : {DType::q8_0, DType::q4_0}) {
    std::vector<double> values(96);
    for (double& value : values) value = random.normal();
    for (size_t i = 64; i < 96; ++i) values[i] = 0;
    const std::string raw = raw_of(type, std::span<const double>(values));
    ASSERT_EQ(static_cast<int64_t>(raw.size()), size_of(type, 96));
    const std::vector<double> read = reals_of(type, raw);
    for (size_t b = 0; b < 3; ++b) {
      double largest = 0;
      for (size_t i = b * 32; i < b * 32 + 32; ++i) largest = std::max(largest, std::abs(values[i]));
      // Half a step; of q4_0 the largest value's other sign ends one step earlier. The scale has 11 bits.
      const double most = type == DType::q8_0 ? largest / 127 * 0.51 + largest * 0x1p-11 : largest / 8 * 1.01;
      for (size_t i = b * 32; i < b * 32 + 32; ++i) EXPECT_NEAR(read[i], values[i], most) << name_of(type) << " " << i;
    }
    EXPECT_EQ(raw_of(type, std::span<const double>(read)), raw) << "what it holds it holds exactly";
  }
}

TEST(ScaledTypes, SlicesOfWeightsAreWholeBlocks) {
  const TensorType type{DType::q4_0, {4, 64}};
  const Tensor values = random_tensor({DType::f32, {4, 64}}, 1);
  const std::vector<double> reals(values.values.begin(), values.values.end());
  const std::string raw = raw_of(DType::q4_0, std::span<const double>(reals));
  WeightStore store;
  const ContentId id = store.add_bytes(type, raw);
  EXPECT_EQ(store.materialise(store.add_slice(id, 0, 1, 3, type)).value(), raw.substr(36, 72)) << "rows 1 and 2";
  std::string right;
  for (size_t row = 0; row < 4; ++row) right += raw.substr(row * 36 + 18, 18);
  EXPECT_EQ(store.materialise(store.add_slice(id, 1, 32, 64, type)).value(), right) << "columns 32 … 63";
}

constexpr const char* scaled_graph =
    "graph \"scaled\"\n"
    "input %x f32[2,64]\n"
    "input %i i64[3]\n"
    "weight %w WTYPE content 00000000000000aa\n"
    "%y f32[2,32] = MatMul(%x, %w) as \"product\"\n"
    "%rows f32[3,32] = Gather(%w, %i) {axis=0} as \"rows\"\n"
    "%all f32[64,32] = Cast(%w) {to=\"f32\"} as \"all\"\n"
    "output %y\noutput %rows\noutput %all\n";

Graph graph_of(const std::string& type) {
  std::string own = scaled_graph;
  own.replace(own.find("WTYPE"), 5, type);
  const auto graph = parse_graph(own, "scaled.graph");
  EXPECT_TRUE(graph.ok()) << graph.error().to_string();
  EXPECT_TRUE(verify(*graph).ok()) << verify(*graph).error().to_string();
  EXPECT_NE(to_string(*graph).find("weight %w " + type), std::string::npos);
  return *graph;
}

// Bit for bit what the operators make of the same weights in f32.
TEST(ScaledTypes, OperatorsReadThem) {
  for (const DType type : {DType::q8_0, DType::q4_0}) {
    const TensorType weight{type, {64, 32}};
    Graph graph = graph_of(to_string(weight)), wide = graph_of("f32[64,32]");
    const Tensor values = random_tensor({DType::f32, {64, 32}}, 5);
    const std::vector<double> reals(values.values.begin(), values.values.end());
    const std::string raw = raw_of(type, std::span<const double>(reals));
    const std::vector<double> held = reals_of(type, raw);
    WeightStore store;
    graph.values[2].content = store.add_bytes(weight, raw);
    wide.values[2].content = store.add_bytes({DType::f32, {64, 32}}, raw_of(DType::f32, std::span<const double>(held)));
    const std::vector<int64_t> indices = {63, 0, 7};
    const std::vector<Tensor> inputs = {
        random_tensor({DType::f32, {2, 64}}, 6),
        tensor_of({DType::i64, {3}}, raw_of(DType::i64, std::span<const int64_t>(indices)))};
    const auto got = evaluate(graph, store, inputs), want = evaluate(wide, store, inputs);
    ASSERT_TRUE(got.ok()) << got.error().to_string();
    ASSERT_TRUE(want.ok()) << want.error().to_string();
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ((*got)[i].values, (*want)[i].values) << name_of(type) << ", output " << i;
  }
}

std::string refused(const std::string& line) {
  const std::string graph =
      "graph \"g\"\ninput %x f32[64,32]\nweight %w q8_0[64,32] content 00000000000000aa\n" + line + "output %y\n";
  const auto parsed = parse_graph(graph, "g.graph");
  if (!parsed.ok()) return parsed.error().to_string();
  const Status status = verify(*parsed);
  return status.ok() ? "accepted" : status.error().to_string();
}

TEST(ScaledTypes, WhatDoesNotReadThemSaysSo) {
  EXPECT_THAT(refused("%y f32[64,32] = Add(%x, %w) as \"add1\"\n"), HasSubstr("Add does not read q8_0[64,32]"));
  EXPECT_THAT(refused("%y f32[32,64] = Transpose(%w) {perm=[1,0]} as \"turn\"\n"),
              HasSubstr("Transpose does not read q8_0[64,32]"));
  EXPECT_THAT(refused("%y f32[64,32] = Cast(%x) {to=\"q4_0\"} as \"cast\"\n"),
              HasSubstr("a Cast to q4_0: only weights are of this type"));
  EXPECT_THAT(refused("%y q8_0[64,32] = Cast(%x) {to=\"q8_0\"} as \"cast\"\n"),
              HasSubstr("y is q8_0[64,32], which only weights are"));
  EXPECT_THAT(refused("%y q8_0[64,32] = Relu(%x) as \"relu1\"\n"),
              HasSubstr("y is q8_0[64,32], which only weights are"));
  EXPECT_EQ(refused("%y f16[64,32] = Cast(%w) {to=\"f16\"} as \"cast\"\n"), "accepted");
  EXPECT_THAT(export_onnx(graph_of("q4_0[64,32]"), WeightStore(), "/nowhere/x.onnx", {}).error().message,
              HasSubstr("weight w is q4_0[64,32], a type that ONNX does not have"));
}

// Its kernel rounds x to blocks of bytes.
TEST(ScaledTypes, LinearIsAsCoarseAsBfloat16) {
  const auto graph_with = [](const std::string& type) {
    const std::string text = "graph \"g\"\ninput %x f32[2,64]\nweight %w " + type +
                             "[64,64] content 00000000000000aa\n%y f32[2,64] = Linear(%x, %w) as \"y\"\noutput %y\n";
    return value_of(parse_graph(text, "g.graph"));
  };
  EXPECT_EQ(coarsest_type(graph_with("q4_0")), DType::bf16);
  EXPECT_EQ(coarsest_type(graph_with("f16")), DType::f16);
  EXPECT_EQ(coarsest_type(graph_with("f32")), DType::f32);
  EXPECT_EQ(coarsest_type(graph_of("q4_0[64,32]")), DType::f32) << "MatMul rounds nothing";
  const std::string refused = step_graph(graph_with("bf16"), TrainingOptions()).error().message;
  EXPECT_EQ(refused.substr(0, refused.find(';')), "weight w is bf16[64,64]: training needs f32");
}

}  // namespace
}  // namespace nlsplit
