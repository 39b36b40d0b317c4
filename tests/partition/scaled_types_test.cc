// Splits of products with weights of q8_0 and q4_0: no cut is between elements that share a scale.
#include "expand_cases.h"
#include "partition/split_rules.h"
#include "testing/scaled_weight.h"

namespace nlsplit {
namespace {

using testing::Bits;
using testing::expect_expands;
using testing::shares_of_tests;
using testing::split_plan;

Model scaled_products() {
  GraphBuilder builder("scaled");
  WeightStore weights;
  const auto weight = [&](const std::string& name, const TensorType& type, uint64_t seed) {
    return scaled_weight(builder, weights, name, type, seed);
  };
  const ValueId x = builder.input("x", {DType::f32, {8, 64}});
  const ValueId h = builder.add(Op::MatMul, "h", {x, weight("w8", {DType::q8_0, {64, 96}}, 1)}, {}).value();
  const ValueId r = builder.add(Op::Relu, "r", {h}, {}).value();
  const Attrs turned = {{"alpha", 1.0}, {"beta", 1.0}, {"transA", int64_t{0}}, {"transB", int64_t{1}}};
  builder.output(builder.add(Op::Gemm, "y", {r, weight("w4", {DType::q4_0, {40, 96}}, 2)}, turned).value());
  return {std::move(builder).finish(), std::move(weights)};
}

TEST(ScaledTypes, CutsAreBetweenBlocks) {
  const Graph graph = scaled_products().graph;
  const Node &matmul = graph.nodes[0], &gemm = graph.nodes[2];
  // The blocks of w8 lie along the columns of the result, those of w4 along the axis that is summed over.
  EXPECT_TRUE(piece_of(graph, matmul, 1, 32, 96));
  EXPECT_FALSE(piece_of(graph, matmul, 1, 0, 48));
  EXPECT_FALSE(piece_of(graph, matmul, 1, 48, 96));
  EXPECT_TRUE(partial_sum_of(graph, matmul, 5, 9, true));
  EXPECT_TRUE(piece_of(graph, gemm, 1, 7, 11));
  EXPECT_TRUE(partial_sum_of(graph, gemm, 32, 64, true));
  EXPECT_FALSE(partial_sum_of(graph, gemm, 0, 48, true));
  EXPECT_TRUE(piece_of(graph, matmul, 0, 1, 2));
}

TEST(ScaledTypes, SplitProductsAreThoseOfTheWhole) {
  const Model model = scaled_products();
  for (const std::vector<int64_t>& shares : shares_of_tests()) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(shares, ":")));
    expect_expands(model, split_plan(model.graph, {SplitAxis::channels, false, shares}), Bits::equal);
    expect_expands(model, split_plan(model.graph, {SplitAxis::tensor, false, shares}), Bits::close, {1e-5, 1e-5});
    expect_expands(model, split_plan(model.graph, {SplitAxis::batch, false, shares}), Bits::equal);
  }
  // Three equal shares of 96 columns are a block each.
  const auto expanded = expand_splits(model.graph, split_plan(model.graph, {SplitAxis::channels, false, {1, 1, 1}}));
  ASSERT_TRUE(expanded.ok()) << expanded.error().to_string();
  EXPECT_EQ(std::ranges::count(expanded->slices, TensorType{DType::q8_0, {64, 96}}, &WeightSlice::whole), 3);
}

}  // namespace
}  // namespace nlsplit
