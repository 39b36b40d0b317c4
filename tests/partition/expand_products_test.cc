// Channels, tensor, sequence and batch: which products are cut how, what is summed, what is gathered.
#include <algorithm>

#include "expand_cases.h"

namespace nlsplit {
namespace {

using testing::Bits;
using testing::expect_expands;
using testing::SmallNet;
using testing::split_plan;

constexpr Tolerance sums{1e-5, 1e-5};

size_t count(const Graph& graph, Op op) { return static_cast<size_t>(std::ranges::count(graph.nodes, op, &Node::op)); }

void expect_all_shares(const Model& model, SplitAxis axis, Bits bits) {
  for (const std::vector<int64_t>& shares : testing::shares_of_tests()) {
    SCOPED_TRACE(fmt::format("{} {}", name_of(axis), fmt::join(shares, ":")));
    expect_expands(model, split_plan(model.graph, {axis, false, shares}), bits, sums);
  }
}

// Attention of `heads` over [batch, tokens, width], and an MLP, both with residuals.
Model transformer(int64_t batch) {
  constexpr int64_t tokens = 6, width = 12, heads = 4, each = width / heads;
  SmallNet net("layer");
  const ValueId x = net.input({batch, tokens, width});
  const auto norm = [&](ValueId value) {
    return net.node(Op::LayerNormalization, {value, net.positive({width}), net.weight({width})},
                    {{"axis", int64_t{-1}}, {"epsilon", 1e-5}});
  };
  const auto split_heads = [&](ValueId value, std::vector<int64_t> perm) {
    const ValueId apart =
        net.node(Op::Reshape, {net.project(value, width)}, {{"shape", std::vector<int64_t>{0, 0, heads, each}}});
    return net.node(Op::Transpose, {apart}, {{"perm", std::move(perm)}});
  };
  const ValueId y = norm(x);
  const ValueId q = split_heads(y, {0, 2, 1, 3}), k = split_heads(y, {0, 2, 3, 1}), v = split_heads(y, {0, 2, 1, 3});
  const ValueId scores = net.node(Op::Softmax, {net.node(Op::MatMul, {q, k})}, {{"axis", int64_t{-1}}});
  const ValueId mixed =
      net.node(Op::Transpose, {net.node(Op::MatMul, {scores, v})}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  const ValueId joined = net.node(Op::Reshape, {mixed}, {{"shape", std::vector<int64_t>{0, 0, width}}});
  const ValueId z = net.node(Op::Add, {net.project(joined, width), x});
  const ValueId hidden = net.node(Op::Gelu, {net.project(norm(z), 4 * width)}, {{"approximate", std::string("none")}});
  return net.finish({net.node(Op::Add, {net.project(hidden, width), z})});
}

Model cnn() {
  SmallNet net("cnn");
  ValueId x = net.relu(net.conv(net.input({3, 3, 9, 8}), 8));
  x = net.node(Op::BatchNormalization, {x, net.positive({8}), net.weight({8}), net.weight({8}), net.positive({8})},
               {{"epsilon", 1e-5}});
  x = net.relu(net.conv(x, 8, {3, 1, 1, 1, 1, 8}));
  const ValueId skip = x;
  x = net.conv(net.relu(net.conv(x, 12, {3, 2, 1, 1, 1, 4})), 8, {1, 1, 1, 0, 0, 1});
  x = net.concat({x, net.conv(skip, 4, {3, 2, 1, 1, 1, 1})});
  x = net.node(Op::Flatten, {net.node(Op::GlobalAveragePool, {x})}, {{"axis", int64_t{1}}});
  const Attrs gemm = {{"alpha", 0.5}, {"beta", 2.0}, {"transA", int64_t{0}}, {"transB", int64_t{1}}};
  x = net.relu(net.node(Op::Gemm, {x, net.weight({10, 12}), net.weight({10})}, gemm));
  x = net.node(Op::Gemm, {x, net.weight({5, 10}), net.weight({1, 5})}, gemm);
  return net.finish({net.node(Op::Softmax, {x}, {{"axis", int64_t{-1}}})});
}

TEST(ExpandProducts, ConvolutionsGroupsAndGemms) {
  expect_all_shares(cnn(), SplitAxis::channels, Bits::equal);
  expect_all_shares(cnn(), SplitAxis::tensor, Bits::close);
  expect_all_shares(cnn(), SplitAxis::height, Bits::equal);
}
TEST(ExpandProducts, ChannelsOfATransformer) {
  expect_all_shares(transformer(1), SplitAxis::channels, Bits::equal);
  expect_all_shares(transformer(2), SplitAxis::channels, Bits::equal);
}
TEST(ExpandProducts, TensorOfATransformer) {
  expect_all_shares(transformer(1), SplitAxis::tensor, Bits::close);
  expect_all_shares(transformer(2), SplitAxis::tensor, Bits::close);
}
TEST(ExpandProducts, SequenceOfATransformer) { expect_all_shares(transformer(2), SplitAxis::sequence, Bits::equal); }

// As audio models begin: windows slide over the last axis, which is the tokens' behind the Transpose.
TEST(ExpandProducts, SequenceOfWindowsOverOneAxis) {
  using Ints = std::vector<int64_t>;
  SmallNet net("front_end");
  ValueId x = net.input({2, 4, 13});
  for (const int64_t stride : {1, 2}) {
    x = net.node(Op::Conv, {x, net.weight({6, net.shape(x)[1], 3}), net.weight({6})},
                 {{"dilations", Ints{1}},
                  {"group", int64_t{1}},
                  {"kernel_shape", Ints{3}},
                  {"pads", Ints{1, 1}},
                  {"strides", Ints{stride}}});
    x = net.relu(x);
  }
  x = net.node(Op::Transpose, {x}, {{"perm", Ints{0, 2, 1}}});
  const Model model = net.finish({net.project(x, 10)});
  expect_all_shares(model, SplitAxis::sequence, Bits::equal);
  const Expanded expanded =
      expand_splits(model.graph, split_plan(model.graph, {SplitAxis::sequence, false, {1, 1}})).value();
  EXPECT_TRUE(expanded.notes.empty());
  std::vector<int64_t> places;
  for (const Node& node : expanded.graph.nodes) {
    if (node.op == Op::Conv) places.push_back(expanded.graph.value(node.outputs[0]).type.shape[2]);
  }
  std::ranges::sort(places);
  EXPECT_EQ(places, (Ints{3, 4, 6, 7}));
}

TEST(ExpandProducts, SamplesOfABatch) {
  const Model model = transformer(4), images = cnn();
  expect_all_shares(model, SplitAxis::batch, Bits::equal);
  expect_expands(images, split_plan(images.graph, {SplitAxis::batch, false, {2, 1}}), Bits::equal);
  const auto expanded = expand_splits(model.graph, split_plan(model.graph, {SplitAxis::batch, false, {1, 1}}));
  ASSERT_TRUE(expanded.ok());
  EXPECT_EQ(expanded->plan.stages.size(), 3u) << "samples exchange nothing: two shards and the join";
  EXPECT_TRUE(expanded->slices.empty()) << "each has the same weights";
  EXPECT_TRUE(expanded->notes.empty());
}

// Megatron's two all-reduces a layer: heads stay where their columns are, from the projections to the product behind
// the attention.
TEST(ExpandProducts, ATransformerLayerHasTwoSumsAndNoOtherExchange) {
  const Model model = transformer(1);
  const auto expanded = expand_splits(model.graph, split_plan(model.graph, {SplitAxis::tensor, false, {1, 1}}));
  ASSERT_TRUE(expanded.ok()) << expanded.error().to_string();
  const Graph& graph = expanded->graph;
  // Two shards add two times; the last sum is wanted by one of them.
  EXPECT_EQ(count(graph, Op::Sum), 3u) << to_string(graph);
  EXPECT_EQ(count(graph, Op::Slice), 0u) << to_string(graph);
  EXPECT_EQ(count(graph, Op::Concat), 0u) << to_string(graph);
  EXPECT_TRUE(expanded->notes.empty());
  for (const WeightSlice& slice : expanded->slices)
    EXPECT_EQ(slice.end - slice.begin, slice.whole.shape[static_cast<size_t>(slice.axis)] / 2);
}

// One operator for all of a layer's attention, as the optimizer makes it: 8 heads over `groups` of keys and values, and
// the product behind it.
struct AttentionForm {
  int64_t batch = 1, groups = 8;
  bool causal = false;
  Shape mask = {};  // over [batch, heads, queries, keys]; empty: none
};

Model attending(const AttentionForm& form) {
  constexpr int64_t tokens = 6, heads = 8, each = 3;
  SmallNet net("attention");
  const ValueId x = net.input({form.batch, tokens, 10});
  const auto split_heads = [&](int64_t count) {
    const ValueId apart =
        net.node(Op::Reshape, {net.project(x, count * each)}, {{"shape", std::vector<int64_t>{0, 0, count, each}}});
    return net.node(Op::Transpose, {apart}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  };
  std::vector<ValueId> inputs{split_heads(heads), split_heads(form.groups), split_heads(form.groups)};
  if (!form.mask.empty()) inputs.push_back(net.weight(form.mask));
  const ValueId mixed =
      net.node(Op::Attention, std::move(inputs), {{"causal", int64_t{form.causal ? 1 : 0}}, {"scale", 0.5}});
  const ValueId turned = net.node(Op::Transpose, {mixed}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  const ValueId joined = net.node(Op::Reshape, {turned}, {{"shape", std::vector<int64_t>{0, 0, heads * each}}});
  return net.finish({net.project(joined, 10)});
}

std::vector<AttentionForm> attention_forms() {
  std::vector<AttentionForm> forms;
  for (const bool causal : {false, true}) {
    for (const int64_t groups : {8, 4, 1}) {
      for (const Shape& mask : {Shape{}, Shape{6}, Shape{6, 6}, Shape{8, 1, 6}, Shape{2, 1, 1, 6}, Shape{2, 8, 6, 6}})
        forms.push_back({2, groups, causal, mask});
    }
  }
  return forms;
}

TEST(ExpandProducts, AttentionIsSplitByHeadsQueriesAndSamples) {
  for (const AttentionForm& form : attention_forms()) {
    SCOPED_TRACE(fmt::format("{} groups, causal {}, mask [{}]", form.groups, form.causal, fmt::join(form.mask, ",")));
    const Model model = attending(form);
    for (const auto& shares : std::vector<std::vector<int64_t>>{{1, 1}, {1, 2, 1}}) {
      expect_expands(model, split_plan(model.graph, {SplitAxis::tensor, false, shares}), Bits::close, sums);
      expect_expands(model, split_plan(model.graph, {SplitAxis::channels, false, shares}), Bits::equal);
      expect_expands(model, split_plan(model.graph, {SplitAxis::sequence, false, shares}), Bits::equal);
    }
    if (form.mask.size() == 4) continue;  // of each of these very samples: no axis of a batch
    expect_expands(model, split_plan(model.graph, {SplitAxis::batch, false, {1, 1}}), Bits::equal);
  }
}

// Each shard has its heads' queries, keys and values, or its groups of them: one sum and no other exchange.
TEST(ExpandProducts, HeadsOfAttentionStayWhereTheirColumnsAre) {
  for (const int64_t groups : {8, 4}) {
    for (const auto& shares : std::vector<std::vector<int64_t>>{{1, 1}, {3, 1}, {1, 2, 1}}) {
      const Model model = attending({1, groups});
      const auto expanded =
          expand_splits(model.graph, split_plan(model.graph, {SplitAxis::tensor, false, shares}), {bytes(1 << 30)});
      ASSERT_TRUE(expanded.ok()) << expanded.error().to_string();
      EXPECT_EQ(count(expanded->graph, Op::Attention), shares.size());
      EXPECT_EQ(count(expanded->graph, Op::Slice), 0u) << to_string(expanded->graph);
      EXPECT_EQ(count(expanded->graph, Op::Concat), 0u) << to_string(expanded->graph);
      EXPECT_EQ(count(expanded->graph, Op::Sum), 1u) << to_string(expanded->graph);
      EXPECT_TRUE(expanded->notes.empty());
    }
  }
}

TEST(ExpandProducts, PiecesOfAttention) {
  const Model model = attending({2, 4, false, {2, 8, 6, 6}});
  const auto attention = std::ranges::find(model.graph.nodes, Op::Attention, &Node::op);
  ASSERT_NE(attention, model.graph.nodes.end());
  const auto regions = [&](int axis, int64_t begin, int64_t end) {
    const auto piece = piece_of(model.graph, *attention, axis, begin, end);
    return piece ? piece->inputs : std::vector<Region>{};
  };
  using Regions = std::vector<Region>;
  EXPECT_EQ(regions(0, 1, 2), (Regions{{0, 1, 2}, {0, 1, 2}, {0, 1, 2}, {0, 1, 2}}));
  EXPECT_EQ(regions(1, 2, 6), (Regions{{1, 2, 6}, {1, 1, 3}, {1, 1, 3}, {1, 2, 6}}));
  EXPECT_EQ(regions(1, 3, 4), (Regions{{1, 3, 4}, {1, 1, 2}, {1, 1, 2}, {1, 3, 4}})) << "one head of a group";
  EXPECT_EQ(regions(1, 1, 3), Regions{}) << "halves of two groups";
  EXPECT_EQ(regions(2, 1, 5), (Regions{{2, 1, 5}, {}, {}, {2, 1, 5}}));
  EXPECT_EQ(regions(3, 0, 2), (Regions{{}, {}, {3, 0, 2}, {}}));
}

// Keys that a shard's queries do not see are not gathered: the first of two needs none of the other's.
TEST(ExpandProducts, CausalQueriesNeedNoLaterKeys) {
  const Model model = attending({.causal = true});
  const auto expanded = expand_splits(model.graph, split_plan(model.graph, {SplitAxis::sequence, false, {1, 1}}));
  ASSERT_TRUE(expanded.ok()) << expanded.error().to_string();
  std::vector<int64_t> keys;
  for (const Node& node : expanded->graph.nodes) {
    if (node.op == Op::Attention) keys.push_back(expanded->graph.value(node.inputs[1]).type.shape[2]);
  }
  EXPECT_EQ(keys, (std::vector<int64_t>{3, 6}));
  // A mask along both axes would have to be cut twice: then each shard computes all of it.
  const Model masked = attending({.causal = true, .mask = {6, 6}});
  const auto whole = expand_splits(masked.graph, split_plan(masked.graph, {SplitAxis::sequence, false, {1, 1}}));
  ASSERT_TRUE(whole.ok()) << whole.error().to_string();
  EXPECT_EQ(whole->notes.size(), 1u);
}

// As exporters write it: one product for queries, keys and values, reshaped, then cut in three.
TEST(ExpandProducts, AFusedProjectionIsCutByItsReaders) {
  constexpr int64_t tokens = 5, width = 8, heads = 4;
  SmallNet net("fused_qkv");
  const ValueId rows =
      net.node(Op::Reshape, {net.input({1, tokens, width})}, {{"shape", std::vector<int64_t>{-1, width}}});
  const ValueId all =
      net.node(Op::Reshape, {net.project(rows, 3 * width)}, {{"shape", std::vector<int64_t>{1, tokens, 3 * width}}});
  const auto part = [&](int64_t i, std::vector<int64_t> perm) {
    const ValueId cut = net.node(Op::Slice, {all},
                                 {{"axes", std::vector<int64_t>{2}},
                                  {"ends", std::vector<int64_t>{(i + 1) * width}},
                                  {"starts", std::vector<int64_t>{i * width}},
                                  {"steps", std::vector<int64_t>{1}}});
    const ValueId apart =
        net.node(Op::Reshape, {cut}, {{"shape", std::vector<int64_t>{1, tokens, heads, width / heads}}});
    return net.node(Op::Transpose, {apart}, {{"perm", std::move(perm)}});
  };
  const ValueId scores = net.node(Op::MatMul, {part(0, {0, 2, 1, 3}), part(1, {0, 2, 3, 1})});
  const ValueId mixed =
      net.node(Op::MatMul, {net.node(Op::Softmax, {scores}, {{"axis", int64_t{-1}}}), part(2, {0, 2, 1, 3})});
  const ValueId turned = net.node(Op::Transpose, {mixed}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  const ValueId joined = net.node(Op::Reshape, {turned}, {{"shape", std::vector<int64_t>{-1, width}}});
  const Model model = net.finish({net.project(joined, width)});
  expect_all_shares(model, SplitAxis::tensor, Bits::close);
  expect_all_shares(model, SplitAxis::channels, Bits::equal);
  const auto expanded = expand_splits(model.graph, split_plan(model.graph, {SplitAxis::tensor, false, {1, 1}}));
  ASSERT_TRUE(expanded.ok()) << expanded.error().to_string();
  EXPECT_EQ(count(expanded->graph, Op::Slice), 0u) << to_string(expanded->graph);
  EXPECT_EQ(count(expanded->graph, Op::Concat), 0u) << to_string(expanded->graph);
  EXPECT_EQ(count(expanded->graph, Op::Sum), 1u) << to_string(expanded->graph);
}

TEST(ExpandProducts, LargeSumsOfManyShardsAreAddedInSlices) {
  const Model model = transformer(1);
  const Plan plan = split_plan(model.graph, {SplitAxis::tensor, false, {1, 1, 1, 1}});
  const auto sliced = expand_splits(model.graph, plan);
  const auto whole = expand_splits(model.graph, plan, {bytes(1 << 30)});
  ASSERT_TRUE(sliced.ok() && whole.ok());
  EXPECT_GT(count(sliced->graph, Op::Slice), 0u);
  EXPECT_EQ(count(whole->graph, Op::Slice), 0u);
  testing::expect_computes(*sliced, model, Bits::close, sums);
  testing::expect_computes(*whole, model, Bits::close, sums);
}

// Two convolutions with a product's weights each: a shard has half of the bytes, and no content twice.
TEST(ExpandProducts, WeightsAreCutNotCopied) {
  SmallNet net("weights");
  const ValueId x = net.relu(net.conv(net.input({1, 4, 6, 6}), 8));
  const Model model = net.finish({net.conv(x, 4)});
  const auto expanded = expand_splits(model.graph, split_plan(model.graph, {SplitAxis::tensor, false, {1, 1}}));
  ASSERT_TRUE(expanded.ok()) << expanded.error().to_string();
  int64_t split = 0, unsplit = 0;
  for (const Value& value : expanded->graph.values) {
    if (value.kind == ValueKind::weight) split += element_count(value.type.shape);
  }
  for (const Value& value : model.graph.values) {
    if (value.kind == ValueKind::weight) unsplit += element_count(value.type.shape);
  }
  EXPECT_EQ(split, unsplit);
  // Filters and biases of the first, channels of the second; its bias is added once.
  EXPECT_EQ(expanded->slices.size(), 6u);
  const auto rows = expand_splits(model.graph, split_plan(model.graph, {SplitAxis::height, false, {1, 1}}));
  ASSERT_TRUE(rows.ok());
  EXPECT_TRUE(rows->slices.empty());
}

// A skip, and an activation, fused onto the product whose sums come first.
TEST(ExpandProducts, AnEpilogueIsAppliedToTheSum) {
  SmallNet net("fused");
  const ValueId x = net.input({1, 4, 6, 6});
  const ValueId y = net.conv(net.relu(net.conv(x, 8)), 4);
  Model model = net.finish({y});
  model.graph.nodes.back().epilogue = {{Op::Add, x, {}, "add"}, {Op::Relu, ValueId(), {}, "relu"}};
  expect_all_shares(model, SplitAxis::tensor, Bits::close);
  expect_all_shares(model, SplitAxis::channels, Bits::equal);
  expect_all_shares(model, SplitAxis::height, Bits::equal);
}

// Stages next to each other: pieces go where they are needed and nowhere else.
TEST(ExpandProducts, PiecesPassToASecondStageThatIsSplitAlike) {
  SmallNet net("chain");
  ValueId x = net.input({1, 4, 8, 8});
  for (int i = 0; i < 4; ++i) x = net.relu(net.conv(x, 4, {1, 1, 1, 0, 0, 1}));
  const Model model = net.finish({x});
  Plan plan = split_plan(model.graph, {SplitAxis::height, false, {1, 1}});
  plan.stages.push_back(plan.stages[0]);
  plan.stages[0].end = plan.stages[1].begin = 4;
  plan.stages[1].devices = {DeviceId(2), DeviceId(3)};
  const auto alike = expand_splits(model.graph, plan);
  ASSERT_TRUE(alike.ok()) << alike.error().to_string();
  EXPECT_EQ(count(alike->graph, Op::Concat), 1u) << "of the output";
  expect_expands(model, plan, Bits::equal);
  for (const SplitAxis axis : {SplitAxis::width, SplitAxis::channels}) {
    plan.stages[1].split->axis = axis;
    expect_expands(model, plan, Bits::equal);
  }
  plan.stages[1].split.reset();
  plan.stages[1].devices = {DeviceId(2)};
  expect_expands(model, plan, Bits::equal);
  std::swap(plan.stages[0].split, plan.stages[1].split);
  std::swap(plan.stages[0].devices, plan.stages[1].devices);
  const auto later = expand_splits(model.graph, plan);
  ASSERT_TRUE(later.ok());
  for (const Node& node : later->graph.nodes) {
    const auto n = static_cast<size_t>(&node - later->graph.nodes.data());
    if (node.op == Op::Slice) {
      EXPECT_LT(n, later->plan.stages[0].end) << "cut where it is made, so that no more travels than is needed";
    }
  }
  expect_expands(model, plan, Bits::equal);
}

TEST(ExpandProducts, GroupsOfDevicesTakeTurns) {
  const Model model = transformer(1);
  Plan plan = split_plan(model.graph, {SplitAxis::sequence, false, {1, 1}});
  plan.stages[0].devices = {DeviceId(0), DeviceId(1), DeviceId(2), DeviceId(3)};
  const auto expanded = expand_splits(model.graph, plan);
  ASSERT_TRUE(expanded.ok());
  for (const Stage& stage : expanded->plan.stages) {
    ASSERT_EQ(stage.devices.size(), 2u);
    EXPECT_EQ(stage.devices[0].index() + 2, stage.devices[1].index());
  }
}

TEST(ExpandProducts, WhatCannotBeSplitIsAnErrorThatNamesTheLayer) {
  SmallNet net("small");
  const ValueId x = net.input({1, 4, 2, 2});
  const Model model = net.finish({net.conv(x, 4)});
  const std::string layer = model.graph.nodes[0].name;
  const auto rows = expand_splits(model.graph, split_plan(model.graph, {SplitAxis::height, false, {1, 1, 1}}));
  ASSERT_FALSE(rows.ok());
  EXPECT_NE(rows.error().message.find("'" + layer + "' (Conv) has 2 elements along axis 2, fewer than the 3 shards"),
            std::string::npos)
      << rows.error().message;
  const auto tokens = expand_splits(model.graph, split_plan(model.graph, {SplitAxis::sequence, false, {1, 1}}));
  ASSERT_FALSE(tokens.ok());
  EXPECT_NE(tokens.error().message.find("cannot be split by sequence"), std::string::npos) << tokens.error().message;
}

TEST(ExpandProducts, ApplicableAxesAreThoseThatSplitSomethingOfWeight) {
  const Model image = cnn(), text = transformer(1), texts = transformer(2);
  using Axes = std::vector<SplitAxis>;
  EXPECT_EQ(applicable_axes(image.graph, 0, image.graph.nodes.size()),
            (Axes{SplitAxis::batch, SplitAxis::height, SplitAxis::width, SplitAxis::channels, SplitAxis::tensor}));
  EXPECT_EQ(applicable_axes(text.graph, 0, text.graph.nodes.size()),
            (Axes{SplitAxis::channels, SplitAxis::tensor, SplitAxis::sequence}));
  EXPECT_EQ(applicable_axes(texts.graph, 0, texts.graph.nodes.size()),
            (Axes{SplitAxis::batch, SplitAxis::channels, SplitAxis::tensor, SplitAxis::sequence}));
}

// ---- the values themselves

TEST(Splits, SharesAreRoundedAndLeaveNobodyWithout) {
  EXPECT_EQ(share_bounds(56, {1, 1}), (std::vector<int64_t>{0, 28, 56}));
  EXPECT_EQ(share_bounds(7, {2, 1}), (std::vector<int64_t>{0, 5, 7}));
  EXPECT_EQ(share_bounds(7, {20, 1}), (std::vector<int64_t>{0, 6, 7}));
  EXPECT_EQ(share_bounds(3, {1, 1, 20}), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(share_bounds(12, {1, 1}, 4), (std::vector<int64_t>{0, 8, 12}));
  EXPECT_TRUE(share_bounds(2, {1, 1, 1}).empty());
  EXPECT_TRUE(share_bounds(9, {1, 1}, 4).empty());
  EXPECT_EQ(rounded_bounds(14, {1, 1}, 4), (std::vector<int64_t>{0, 8, 14}));
  EXPECT_EQ(rounded_bounds(7, {1, 1}, 4), (std::vector<int64_t>{0, 4, 7}));
  EXPECT_TRUE(rounded_bounds(7, {1, 1, 1}, 4).empty());
}

TEST(Splits, AxesHaveNames) {
  for (size_t i = 0; i < split_axis_count; ++i) {
    const auto axis = static_cast<SplitAxis>(i);
    EXPECT_EQ(parse_split_axis(name_of(axis)), axis);
  }
  EXPECT_EQ(parse_split_axis("depth"), std::nullopt);
}

TEST(Splits, AreCheckedWithThePlan) {
  Cluster cluster;
  cluster.hosts.push_back({"a", false});
  for (const char* name : {"A", "B", "C"})
    cluster.devices.push_back({name, HostId(0), DeviceKind::cpu, bytes(1 << 30), Isa::v3});
  const Model model = transformer(1);
  const auto message = [&](std::vector<int64_t> shares, size_t devices) -> std::string {
    Plan plan = split_plan(model.graph, {SplitAxis::tensor, false, std::move(shares)});
    plan.stages[0].devices.clear();
    for (size_t d = 0; d < devices; ++d) plan.stages[0].devices.push_back(DeviceId(d));
    const Status status = check_plan(plan, model.graph, cluster, 1);
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_EQ(message({1, 1}, 2), "");
  EXPECT_EQ(message({2, 1, 1}, 3), "");
  EXPECT_EQ(message({1, 1}, 3),
            "plan: stage 0 has 3 devices for 2 shards; each group of devices has one for every shard");
  EXPECT_EQ(message({1}, 1), "plan: stage 0 is split into 1 shard; two are the least");
  EXPECT_EQ(message({1, 0}, 2), "plan: stage 0 has a share of 0; shares are positive");
}

}  // namespace
}  // namespace nlsplit
