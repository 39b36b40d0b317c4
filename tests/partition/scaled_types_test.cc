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

// A feed-forward layer with blocks along the axis that is summed over: the columns of the first product are cut where
// the blocks of the second are.
TEST(ScaledTypes, ColumnsAreCutWhereTheNextProductsBlocksAre) {
  GraphBuilder builder("layer");
  Model model;
  const ValueId x = builder.input("x", {DType::f32, {1, 3, 64}});
  const auto weight = [&](const std::string& name, const TensorType& type, uint64_t seed) {
    return scaled_weight(builder, model.weights, name, type, seed);
  };
  const ValueId up = builder.add(Op::Linear, "up", {x, weight("w1", {DType::q8_0, {160, 64}}, 1)}, {}).value();
  const ValueId open = builder.add(Op::Relu, "open", {up}, {}).value();
  builder.output(builder.add(Op::Linear, "down", {open, weight("w2", {DType::q4_0, {64, 160}}, 2)}, {}).value());
  model.graph = std::move(builder).finish();
  const Graph& graph = model.graph;
  EXPECT_EQ(summed_grain(graph, graph.nodes[2]), 32);
  EXPECT_EQ(summed_axis(graph, graph.nodes[2]), 2);
  EXPECT_EQ(column_axis(graph, graph.nodes[2]), 2);
  EXPECT_EQ(column_grain(graph, graph.nodes[2]), 1);
  EXPECT_TRUE(partial_sum_of(graph, graph.nodes[2], 64, 160, true));
  EXPECT_FALSE(partial_sum_of(graph, graph.nodes[2], 80, 160, true));
  for (const std::vector<int64_t>& shares : {std::vector<int64_t>{1, 1}, {2, 3}, {1, 1, 1}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(shares, ":")));
    for (const SplitAxis axis : {SplitAxis::channels, SplitAxis::sequence})
      expect_expands(model, split_plan(graph, {axis, false, shares}), Bits::equal);
    const auto expanded = expand_splits(graph, split_plan(graph, {SplitAxis::tensor, false, shares}));
    ASSERT_TRUE(expanded.ok()) << expanded.error().to_string();
    // Neither weight is whole anywhere: of one the rows are cut, of the other the columns.
    for (const Value& value : expanded->graph.values)
      EXPECT_NE(element_count(value.type.shape), 160 * 64) << value.name;
    expect_expands(model, split_plan(graph, {SplitAxis::tensor, false, shares}), Bits::close, {1e-5, 1e-5});
  }
}

}  // namespace
}  // namespace nlsplit
