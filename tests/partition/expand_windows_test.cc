// Rows and columns of images: halos of every window there is, exchanged or recomputed.
#include "expand_cases.h"

namespace nlsplit {
namespace {

using testing::Bits;
using testing::expect_expands;
using testing::SmallNet;
using testing::split_plan;
using testing::Window;

void expect_spatial(const Model& model) {
  for (const SplitAxis axis : {SplitAxis::height, SplitAxis::width}) {
    for (const bool recompute : {false, true}) {
      for (const std::vector<int64_t>& shares : testing::shares_of_tests()) {
        SCOPED_TRACE(fmt::format("{}{} {}", name_of(axis), recompute ? "-recompute" : "", fmt::join(shares, ":")));
        expect_expands(model, split_plan(model.graph, {axis, recompute, shares}), Bits::equal);
      }
    }
  }
}

TEST(ExpandWindows, ConvolutionsOfEveryKind) {
  const std::vector<Window> windows = {{3, 1, 1, 1, 1, 1}, {1, 1, 1, 0, 0, 1}, {5, 1, 1, 2, 2, 1}, {3, 2, 1, 1, 1, 1},
                                       {3, 2, 1, 0, 1, 1}, {2, 2, 1, 0, 0, 1}, {1, 2, 1, 0, 0, 1}, {3, 3, 1, 2, 0, 1},
                                       {3, 1, 2, 2, 2, 1}, {3, 2, 2, 1, 3, 1}, {4, 1, 1, 0, 3, 1}, {3, 1, 1, 1, 1, 2},
                                       {3, 1, 1, 1, 1, 4}, {7, 4, 1, 3, 3, 1}, {2, 1, 3, 2, 1, 1}};
  for (const Window& w : windows) {
    SCOPED_TRACE(fmt::format("kernel {} stride {} dilation {} pads {} {} group {}", w.kernel, w.stride, w.dilation,
                             w.pad_begin, w.pad_end, w.group));
    SmallNet net("conv");
    ValueId x = net.conv(net.input({1, 4, 19, 17}), 4);
    x = net.conv(net.relu(x), 4, w);
    expect_spatial(net.finish({net.conv(x, 3, {1, 1, 1, 0, 0, 1})}));
  }
}

Attrs pool_attrs(const Window& w, bool ceil_mode) {
  Attrs attrs = SmallNet::window_attrs(w);
  std::erase_if(attrs, [](const Attr& attr) { return attr.name == "group"; });
  set_attr(attrs, "ceil_mode", int64_t{ceil_mode ? 1 : 0});
  return attrs;
}

TEST(ExpandWindows, PoolsWithTheirModes) {
  const std::vector<Window> windows = {{2, 2, 1, 0, 0, 1}, {3, 2, 1, 1, 1, 1}, {3, 2, 1, 0, 0, 1},
                                       {3, 1, 1, 1, 1, 1}, {3, 3, 1, 1, 0, 1}, {4, 3, 1, 2, 3, 1}};
  for (const Window& w : windows) {
    for (const bool ceil_mode : {false, true}) {
      for (const int64_t counted : {-1, 0, 1}) {  // -1: a maximum
        SCOPED_TRACE(fmt::format("kernel {} stride {} pads {} {} ceil {} count_include_pad {}", w.kernel, w.stride,
                                 w.pad_begin, w.pad_end, ceil_mode, counted));
        SmallNet net("pool");
        const ValueId x = net.relu(net.conv(net.input({1, 2, 16, 19}), 3));
        Attrs attrs = pool_attrs(w, ceil_mode);
        if (counted >= 0) {
          std::erase_if(attrs, [](const Attr& attr) { return attr.name == "dilations"; });
          set_attr(attrs, "count_include_pad", counted);
        }
        const ValueId pooled = net.node(counted < 0 ? Op::MaxPool : Op::AveragePool, {x}, attrs);
        expect_spatial(net.finish({net.conv(pooled, 2)}));
      }
    }
  }
}

TEST(ExpandWindows, TransposedConvolutions) {
  struct Case {
    Window window;
    int64_t more;  // output_padding
  };
  const std::vector<Case> cases = {{{2, 2, 1, 0, 0, 1}, 0}, {{3, 2, 1, 1, 1, 1}, 1}, {{4, 2, 1, 1, 1, 1}, 0},
                                   {{3, 1, 1, 1, 1, 1}, 0}, {{1, 3, 1, 0, 0, 1}, 2}, {{3, 2, 2, 2, 1, 1}, 0},
                                   {{2, 3, 1, 1, 0, 2}, 1}};
  for (const Case& c : cases) {
    const Window& w = c.window;
    SCOPED_TRACE(fmt::format("kernel {} stride {} dilation {} pads {} {} group {} output_padding {}", w.kernel,
                             w.stride, w.dilation, w.pad_begin, w.pad_end, w.group, c.more));
    SmallNet net("deconv");
    const ValueId x = net.relu(net.conv(net.input({1, 3, 9, 8}), 4));
    Attrs attrs = SmallNet::window_attrs(w);
    set_attr(attrs, "output_padding", std::vector<int64_t>{c.more, c.more});
    const ValueId weights = net.weight({4, 6 / w.group, w.kernel, w.kernel});
    const ValueId up = net.node(Op::ConvTranspose, {x, weights, net.weight({6})}, attrs);
    expect_spatial(net.finish({net.conv(up, 2)}));
  }
}

// Down, up, and what was before joined to what comes after.
TEST(ExpandWindows, AUNetWithItsSkips) {
  SmallNet net("unet");
  const ValueId a = net.relu(net.conv(net.input({1, 2, 18, 14}), 4));
  const ValueId b = net.relu(net.conv(net.node(Op::MaxPool, {a}, pool_attrs({2, 2, 1, 0, 0, 1}, false)), 6));
  Attrs attrs = SmallNet::window_attrs({2, 2, 1, 0, 0, 1});
  set_attr(attrs, "output_padding", std::vector<int64_t>{0, 0});
  const ValueId up = net.node(Op::ConvTranspose, {b, net.weight({6, 4, 2, 2})}, attrs);
  const ValueId joined = net.concat({a, up});
  const Attrs resize = {{"antialias", int64_t{0}},
                        {"coordinate_transformation_mode", std::string("asymmetric")},
                        {"cubic_coeff_a", -0.75},
                        {"exclude_outside", int64_t{0}},
                        {"extrapolation_value", 0.0},
                        {"mode", std::string("nearest")},
                        {"nearest_mode", std::string("floor")},
                        {"roi", std::vector<double>(8, 0.0)},
                        {"scales", std::vector<double>{1, 1, 2, 2}},
                        {"sizes", std::vector<int64_t>{0, 0, 36, 28}}};
  const ValueId larger = net.node(Op::Resize, {net.conv(joined, 3)}, resize);
  expect_spatial(net.finish({net.conv(larger, 2)}));
}

TEST(ExpandWindows, BranchesResidualsAndGates) {
  SmallNet net("inception");
  const ValueId x = net.relu(net.conv(net.input({1, 3, 17, 15}), 4, {3, 2, 1, 1, 1, 1}));
  const ValueId left = net.conv(x, 4, {1, 1, 1, 0, 0, 1});
  const ValueId right = net.conv(net.conv(x, 2), 4, {5, 1, 1, 2, 2, 1});
  const ValueId sum = net.node(Op::Add, {net.node(Op::Add, {left, right}), x});
  const ValueId all = net.concat({sum, net.node(Op::MaxPool, {x}, pool_attrs({3, 1, 1, 1, 1, 1}, false))});
  const ValueId squeezed = net.node(Op::GlobalAveragePool, {all});
  const ValueId gate = net.node(Op::Sigmoid, {net.conv(squeezed, 8, {1, 1, 1, 0, 0, 1})});
  const ValueId flat = net.node(Op::Flatten, {net.node(Op::Mul, {all, gate})}, {{"axis", int64_t{1}}});
  const Model model = net.finish({net.project(flat, 5)});
  expect_spatial(model);
  const auto expanded = expand_splits(model.graph, split_plan(model.graph, {SplitAxis::height, false, {1, 1}}));
  ASSERT_TRUE(expanded.ok());
  EXPECT_FALSE(expanded->notes.empty()) << "the pool over all rows was gathered";
}

// Two shards of a 3x3 convolution after another: each takes one row of the other.
TEST(ExpandWindows, AHaloIsTheRowsThatAreNeeded) {
  SmallNet net("halo");
  const ValueId x = net.conv(net.input({1, 2, 8, 4}), 2);
  const Model model = net.finish({net.conv(x, 2)});
  const auto expanded = expand_splits(model.graph, split_plan(model.graph, {SplitAxis::height, false, {1, 1}}));
  ASSERT_TRUE(expanded.ok()) << expanded.error().to_string();
  int rows = 0;
  for (const Node& node : expanded->graph.nodes) {
    if (node.op != Op::Slice || expanded->graph.value(node.inputs[0]).kind == ValueKind::input) continue;
    EXPECT_EQ(expanded->graph.value(node.outputs[0]).type.shape, (Shape{1, 2, 1, 4})) << node.name;
    ++rows;
  }
  EXPECT_EQ(rows, 2);
  // A's and B's first convolutions, the second ones, and the join.
  EXPECT_EQ(expanded->plan.stages.size(), 5u);
  const auto recomputed = expand_splits(model.graph, split_plan(model.graph, {SplitAxis::height, true, {1, 1}}));
  ASSERT_TRUE(recomputed.ok()) << recomputed.error().to_string();
  EXPECT_EQ(recomputed->plan.stages.size(), 3u) << "no exchange but the join";
}

// Rows that a layer's kernel wants begun at multiples of four; those of its neighbours as well.
TEST(ExpandWindows, BoundariesAreWhereKernelsAreExact) {
  SmallNet net("multiples");
  const ValueId x = net.conv(net.conv(net.input({1, 2, 28, 6}), 2), 2, {1, 1, 1, 0, 0, 1});
  const Model model = net.finish({net.conv(net.conv(x, 2, {3, 2, 1, 1, 1, 1}), 2)});
  const auto rows = [&](const SplitOptions& options, bool recompute) {
    const Plan plan = split_plan(model.graph, {SplitAxis::height, recompute, {1, 1}});
    const auto expanded = expand_splits(model.graph, plan, options);
    CHECK(expanded.ok(), "no expansion");
    testing::expect_computes(*expanded, model, Bits::equal);
    std::vector<int64_t> heights;  // of the first shard's layers
    for (const Node& node : expanded->graph.nodes) {
      if (node.op == Op::Conv && node.name.ends_with("#0"))
        heights.push_back(expanded->graph.value(node.outputs[0]).type.shape[2]);
    }
    return heights;
  };
  using Rows = std::vector<int64_t>;
  EXPECT_EQ(rows({}, false), (Rows{14, 14, 7, 7}));
  EXPECT_EQ(rows({bytes(0), {4, 1, 1, 4}}, false), (Rows{16, 16, 8, 8}));
  EXPECT_EQ(rows({bytes(0), {1, 1, 1, 4}}, false), (Rows{14, 14, 8, 8}));
  EXPECT_EQ(rows({bytes(0), {4, 1, 1, 16}}, false), (Rows{14, 14, 7, 7})) << "one of them has no second multiple";
  EXPECT_EQ(rows({bytes(0), {4, 1, 1, 4}}, true), rows({}, true)) << "recomputed rows begin anywhere";
}

TEST(ExpandWindows, GoldenText) {
  GraphBuilder builder("two");
  const Attrs attrs = SmallNet::window_attrs({3, 1, 1, 1, 1, 1});
  const TensorType type{DType::f32, {2, 2, 3, 3}};
  const ValueId x = builder.input("x", {DType::f32, {1, 2, 8, 4}});
  const ValueId a = builder.weight("w1", type, ContentId{0xaa}), b = builder.weight("w2", type, ContentId{0xbb});
  const ValueId first = builder.add(Op::Conv, "conv1", {x, a}, attrs).value();
  builder.output(builder.add(Op::Conv, "conv2", {first, b}, attrs).value());
  Graph graph = std::move(builder).finish();
  graph.nodes[0].epilogue.push_back({Op::Relu, ValueId(), {}, "relu1"});
  const auto expanded = expand_splits(graph, split_plan(graph, {SplitAxis::height, false, {1, 1}}));
  ASSERT_TRUE(expanded.ok()) << expanded.error().to_string();
  EXPECT_EQ(to_string(expanded->graph), R"(graph "two"
input %x f32[1,2,8,4]
%"x#0-5" f32[1,2,5,4] = Slice(%x) {axes=[2], ends=[5], starts=[0], steps=[1]} as "x#0-5"
%"x#3-8" f32[1,2,5,4] = Slice(%x) {axes=[2], ends=[8], starts=[3], steps=[1]} as "x#3-8"
weight %w1 f32[2,2,3,3] content 00000000000000aa
%"conv1#0" f32[1,2,4,4] = Conv(%"x#0-5", %w1) {pads=[1,1,0,1]} as "conv1#0" + Relu as "relu1#0"
%"conv1#0.part" f32[1,2,1,4] = Slice(%"conv1#0") {axes=[2], ends=[4], starts=[3], steps=[1]} as "conv1#0.part"
%"conv1#1" f32[1,2,4,4] = Conv(%"x#3-8", %w1) {pads=[0,1,1,1]} as "conv1#1" + Relu as "relu1#1"
%"conv1#1.part" f32[1,2,1,4] = Slice(%"conv1#1") {axes=[2], ends=[1], starts=[0], steps=[1]} as "conv1#1.part"
%"conv1.halo#0" f32[1,2,5,4] = Concat(%"conv1#0", %"conv1#1.part") {axis=2} as "conv1.halo#0"
weight %w2 f32[2,2,3,3] content 00000000000000bb
%"conv2#0" f32[1,2,4,4] = Conv(%"conv1.halo#0", %w2) {pads=[1,1,0,1]} as "conv2#0"
%"conv1.halo#1" f32[1,2,5,4] = Concat(%"conv1#0.part", %"conv1#1") {axis=2} as "conv1.halo#1"
%"conv2#1" f32[1,2,4,4] = Conv(%"conv1.halo#1", %w2) {pads=[0,1,1,1]} as "conv2#1"
%conv2 f32[1,2,8,4] = Concat(%"conv2#0", %"conv2#1") {axis=2} as "conv2.join#0"
output %conv2
)");
}

}  // namespace
}  // namespace nlsplit
