// Which kernels and layouts a graph gets: the cut itself, known networks, and that no other choice reorders fewer
// bytes.
#include "kernels/assign.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "graph/builder.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "kernels/min_cut.h"

namespace nlsplit {
namespace {

TEST(MinCut, TakesTheCheaperOfTwoBottlenecks) {
  MinCut cut(4);
  cut.add(MinCut::source, 2, 5);
  cut.add(2, 3, 3);
  cut.add(3, MinCut::sink, 4);
  const std::vector<bool> side = cut.solve();
  EXPECT_TRUE(side[2]);
  EXPECT_FALSE(side[3]);
}

TEST(MinCut, WithoutAPathNothingIsCut) {
  MinCut cut(3);
  cut.add(MinCut::source, 2, MinCut::never);
  const std::vector<bool> side = cut.solve();
  EXPECT_TRUE(side[MinCut::source] && side[2]);
  EXPECT_FALSE(side[MinCut::sink]);
}

// Flow that must be taken back again: the textbook's square with a tempting diagonal.
TEST(MinCut, FlowIsTakenBackWhereThatHelps) {
  MinCut cut(4);
  cut.add(MinCut::source, 2, 1);
  cut.add(MinCut::source, 3, 1);
  cut.add(2, 3, 1);
  cut.add(2, MinCut::sink, 1);
  cut.add(3, MinCut::sink, 1);
  const std::vector<bool> side = cut.solve();
  EXPECT_FALSE(side[2] || side[3]) << "both edges from the source are full";
}

Graph optimized(const char* name) {
  Model model = zoo_model(name).value();
  return optimize(model.graph, model.weights).value();
}

TEST(Assign, ConvolutionalNetworksAreReorderedOnceBeforeTheirHead) {
  for (const char* name : {"vgg16", "alexnet"}) {
    const Graph graph = optimized(name);
    const Assignment chosen = assign_kernels(graph, Isa::v4).value();
    ASSERT_EQ(chosen.reorders.size(), 1u) << name;
    EXPECT_EQ(chosen.reorders[0].block, 0);  // what is flattened
  }
  // Here the mean over each plane comes out row-major.
  for (const char* name : {"resnet50", "mobilenet_v2"})
    EXPECT_TRUE(assign_kernels(optimized(name), Isa::v3).value().reorders.empty()) << name;
}

TEST(Assign, KernelsOfResNet) {
  const Graph graph = optimized("resnet18");
  const Assignment chosen = assign_kernels(graph, Isa::v3).value();
  std::map<std::string, int> count;
  for (const ComputeDesc& desc : chosen.descs) {
    if (desc.kernel.empty()) continue;
    EXPECT_TRUE(verify(desc).ok()) << verify(desc).error().to_string();
    ++count[to_string(desc.kernel)];
  }
  EXPECT_EQ(count["conv_stem_v3"], 1);
  EXPECT_EQ(count["conv_winograd_v3"], 4 + 3 + 3);  // the others have a stride, or 7 x 7 pixels
  EXPECT_EQ(count["conv_blocked_v3"], 3 * 2 + 3);
}

// Which kernel a node has must not depend on the batch.
TEST(Assign, TheBatchChangesNothing) {
  const Graph graph = optimized("mobilenet_v2");
  const Assignment one = assign_kernels(graph, Isa::v3).value();
  const Assignment eight = assign_kernels(with_batch(graph, 8).value(), Isa::v3).value();
  for (size_t n = 0; n < one.descs.size(); ++n) EXPECT_EQ(one.descs[n].kernel, eight.descs[n].kernel);
}

TEST(Assign, APreferenceIsFollowed) {
  const Graph graph = optimized("resnet18");
  int asked = 0;
  const auto last = [&](const ComputeDesc&, std::span<const KernelId> candidates) {
    ++asked;
    return candidates.size() - 1;
  };
  const Assignment chosen = assign_kernels(graph, Isa::v3, last).value();
  EXPECT_GT(asked, 0);
  size_t winograd = 0;
  for (const ComputeDesc& desc : chosen.descs) winograd += desc.kernel.name == KernelName::conv_winograd ? 1 : 0;
  EXPECT_EQ(winograd, 3u) << "last of its candidates only at 7 x 7 pixels";
}

Graph one_conv(const Shape& x, const Shape& w, int64_t group) {
  using Ints = std::vector<int64_t>;
  GraphBuilder g("conv");
  const ValueId input = g.input("x", {DType::f32, x}), weight = g.weight("w", {DType::f32, w}, ContentId{1});
  g.output(g.add(Op::Conv, "conv", {input, weight},
                 {{"dilations", Ints{1, 1}},
                  {"group", group},
                  {"kernel_shape", Ints{w[2], w[3]}},
                  {"pads", Ints(4, w[2] / 2)},
                  {"strides", Ints{1, 1}}})
               .value());
  return std::move(g).finish();
}

// A few rows of a layer that is large as a whole: left to itself it would have another kernel.
// Blocks of channels are of the value that a view is of, which has other axes.
TEST(Assign, AViewIsReadRowMajor) {
  WeightStore weights;
  GraphBuilder builder("tokens_as_image");
  const ValueId x = builder.input("x", {DType::f32, {1, 16, 32}});
  const ValueId sum = builder.add(Op::Add, "sum", {x, x}, {}).value();
  const ValueId image =
      builder.add(Op::Reshape, "image", {sum}, {{"shape", std::vector<int64_t>{1, 16, 1, 32}}}).value();
  const TensorType filters{DType::f32, {16, 16, 1, 3}};
  const ValueId weight = builder.weight("w", filters, weights.add_random(filters, 1, 0.1f));
  const Attrs attrs = {{"dilations", std::vector<int64_t>{1, 1}},
                       {"group", int64_t{1}},
                       {"kernel_shape", std::vector<int64_t>{1, 3}},
                       {"pads", std::vector<int64_t>{0, 1, 0, 1}},
                       {"strides", std::vector<int64_t>{1, 1}}};
  builder.output(builder.add(Op::Conv, "conv", {image, weight}, attrs).value());
  const Graph graph = std::move(builder).finish();
  for (const Isa isa : {Isa::v2, Isa::v3, Isa::v4}) {
    const Assignment chosen = assign_kernels(graph, isa).value();
    EXPECT_EQ(chosen.descs[2].inputs[0].block, 0) << to_string(chosen.descs[2].kernel);
    EXPECT_TRUE(verify(chosen.descs[2]).ok()) << verify(chosen.descs[2]).error().to_string();
    for (const Reorder& reorder : chosen.reorders) EXPECT_EQ(reorder.block, 0);
  }
}

// Two convolutions over one axis with an activation each, as audio models begin: nothing is reordered between them.
TEST(Assign, AChainOverOneAxisStaysInBlocks) {
  using Ints = std::vector<int64_t>;
  WeightStore weights;
  GraphBuilder g("front_end");
  ValueId x = g.input("mel", {DType::f32, {1, 80, 300}});
  for (const int64_t stride : {1, 2}) {
    const std::string name = "conv" + std::to_string(stride);
    const TensorType filters{DType::f32, {96, g.type(x).shape[1], 3}};
    const ValueId w = g.weight(name + ".w", filters, weights.add_random(filters, 1, 0.1f));
    x = g.add(Op::Conv, name, {x, w},
              {{"dilations", Ints{1}},
               {"group", int64_t{1}},
               {"kernel_shape", Ints{3}},
               {"pads", Ints{1, 1}},
               {"strides", Ints{stride}}})
            .value();
    x = g.add(Op::Gelu, "gelu" + std::to_string(stride), {x}, {{"approximate", std::string("none")}}).value();
  }
  g.output(g.add(Op::Transpose, "tokens", {x}, {{"perm", Ints{0, 2, 1}}}).value());
  const Graph graph = optimize(std::move(g).finish(), weights).value();
  ASSERT_EQ(graph.nodes.size(), 3u);
  for (const Isa isa : {Isa::v2, Isa::v3, Isa::v4}) {
    const Assignment chosen = assign_kernels(graph, isa).value();
    for (const size_t n : {0, 1}) {
      EXPECT_EQ(chosen.descs[n].kernel, KernelId(KernelName::conv_blocked, isa));
      EXPECT_TRUE(verify(chosen.descs[n]).ok()) << verify(chosen.descs[n]).error().to_string();
    }
    EXPECT_EQ(chosen.reorders.size(), 2u) << "there and back";
  }
}

TEST(Assign, AWantedKernelIsTakenWhereItAccepts) {
  const Graph rows = one_conv({1, 32, 6, 20}, {32, 32, 3, 3}, 1);
  const auto chosen = [](const Graph& graph, KernelName wanted, Isa level = Isa::v3) {
    const std::vector<KernelId> all(graph.nodes.size(), KernelId(wanted, level));
    return to_string(assign_kernels(graph, Isa::v3, {}, {}, all).value().descs[0].kernel);
  };
  EXPECT_EQ(chosen(rows, KernelName::unchosen), "conv_blocked_v3");
  EXPECT_EQ(chosen(rows, KernelName::conv_winograd), "conv_winograd_v3");
  EXPECT_EQ(chosen(rows, KernelName::conv_winograd, Isa::v4), "conv_blocked_v3") << "of another level";
  EXPECT_EQ(chosen(rows, KernelName::conv_depthwise), "conv_blocked_v3") << "it does not accept this";
  EXPECT_EQ(chosen(rows, KernelName::none), "conv_blocked_v3");
  EXPECT_EQ(chosen(rows, KernelName::conv), "conv_v3") << "a last resort, row-major";
  EXPECT_EQ(chosen(rows, KernelName::conv_direct), "conv_direct_v3") << "row-major, though it could be in blocks";
  // Before a preference is asked.
  const std::vector<KernelId> wanted{{KernelName::conv_winograd, Isa::v3}};
  const auto first = [](const ComputeDesc&, std::span<const KernelId>) { return size_t{0}; };
  EXPECT_EQ(to_string(assign_kernels(rows, Isa::v3, first, {}, wanted).value().descs[0].kernel), "conv_winograd_v3");
}

// A GPU's kernels are looked for among a GPU's.
TEST(Assign, AWantedKernelOfAGpuIsTakenToo) {
  const Graph graph = one_conv({1, 32, 6, 20}, {32, 32, 3, 3}, 1);
  for (const Level level : gpu_levels()) {
    EXPECT_EQ(assign_kernels(graph, level).value().descs[0].kernel, KernelId(KernelName::gpu_conv_cudnn, level));
    const std::vector<KernelId> loops{{KernelName::gpu_conv_loops, level}};
    EXPECT_EQ(assign_kernels(graph, level, {}, {}, loops).value().descs[0].kernel, loops[0]);
    const std::vector<KernelId> of_a_cpu{{KernelName::conv, level}};
    EXPECT_EQ(assign_kernels(graph, level, {}, {}, of_a_cpu).value().descs[0].kernel.name, KernelName::gpu_conv_cudnn);
  }
}

// Some input channels of a layer that read all of them in blocks, few as they are.
TEST(Assign, AWantedKernelBringsItsLayout) {
  const Graph few = one_conv({1, 4, 20, 20}, {32, 4, 3, 3}, 1);
  EXPECT_EQ(to_string(assign_kernels(few, Isa::v3).value().descs[0].kernel), "conv_stem_v3");
  const std::vector<KernelId> blocked{{KernelName::conv_blocked, Isa::v3}};
  const Assignment chosen = assign_kernels(few, Isa::v3, {}, {}, blocked).value();
  EXPECT_EQ(to_string(chosen.descs[0].kernel), "conv_blocked_v3");
  EXPECT_EQ(chosen.descs[0].inputs[0].block, 8);
  EXPECT_EQ(chosen.reorders.size(), 2u) << "there and back";

  // Left to itself a normalization stays as its operand comes.
  GraphBuilder g("lrn");
  const ValueId x = g.input("x", {DType::f32, {1, 16, 8, 8}});
  g.output(g.add(Op::LRN, "lrn", {x}, {{"alpha", 1e-4}, {"beta", 0.75}, {"bias", 1.0}, {"size", int64_t{5}}}).value());
  const Graph graph = std::move(g).finish();
  EXPECT_EQ(to_string(assign_kernels(graph, Isa::v3).value().descs[0].kernel), "lrn_v3");
  const std::vector<KernelId> lrn{{KernelName::lrn_blocked, Isa::v3}};
  EXPECT_EQ(to_string(assign_kernels(graph, Isa::v3, {}, {}, lrn).value().descs[0].kernel), "lrn_blocked_v3");
}

TEST(Assign, WhatTheWholeHasItWants) {
  const Graph graph = optimized("resnet18");
  for (const Isa isa : {Isa::v3, Isa::v4}) {
    const auto last = [](const ComputeDesc&, std::span<const KernelId> candidates) { return candidates.size() - 1; };
    const Assignment whole = assign_kernels(graph, isa, last).value();
    std::vector<KernelId> wanted;
    for (const ComputeDesc& desc : whole.descs) wanted.push_back(desc.kernel);
    const Assignment again = assign_kernels(graph, isa, {}, {}, wanted).value();
    for (size_t n = 0; n < wanted.size(); ++n) EXPECT_EQ(again.descs[n].kernel, wanted[n]);
  }
}

// Bytes that are stored once more if node n works on blocks where labels[n] says so.
int64_t reordered_bytes(const Graph& graph, const std::vector<std::optional<ComputeDesc>>& blocked,
                        const std::vector<bool>& labels) {
  int64_t bytes = 0;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (value.kind == ValueKind::weight) continue;
    const size_t made = value.kind == ValueKind::node ? value.producer.index() : 0;
    const bool in_blocks = value.kind == ValueKind::node && labels[made] && blocked[made]->outputs[0].block > 0;
    bool plainly = false, blockwise = false;
    for (const ValueId output : graph.outputs) plainly = plainly || output.index() == v;
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const std::vector<ValueId> reads = reads_of(graph.nodes[n]);
      for (size_t i = 0; i < reads.size(); ++i) {
        if (reads[i].index() != v) continue;
        (labels[n] && blocked[n]->inputs[i].block > 0 ? blockwise : plainly) = true;
      }
    }
    if (in_blocks ? plainly : blockwise) bytes += size_of(value.type).value();
  }
  return bytes;
}

Graph random_graph(Random& random) {
  GraphBuilder g("random");
  const auto window = [](int64_t kernel) -> Attrs {
    using Ints = std::vector<int64_t>;
    return {{"ceil_mode", int64_t{0}},
            {"dilations", Ints{1, 1}},
            {"kernel_shape", Ints{kernel, kernel}},
            {"pads", Ints(4, kernel / 2)},
            {"strides", Ints{1, 1}}};
  };
  std::vector<ValueId> values = {g.input("x", {DType::f32, {1, 16, 6, 6}})};
  for (int n = 0; n < 9; ++n) {
    const ValueId a = values[random.below(values.size())], b = values[random.below(values.size())];
    const int64_t channels = g.type(a).shape[1];
    const std::string name = "n" + std::to_string(n);
    Result<ValueId> made = values[0];
    switch (random.below(6)) {
      case 0: {
        Attrs attrs = window(3);
        attrs.erase(attrs.begin());
        set_attr(attrs, "group", int64_t{1});
        const ValueId w = g.weight(
            name + "w", {DType::f32, {16 * (1 + static_cast<int64_t>(random.below(2))), channels, 3, 3}}, ContentId{1});
        made = g.add(Op::Conv, name, {a, w}, attrs);
        break;
      }
      case 1:
        made = g.add(Op::Softmax, name, {a}, {{"axis", int64_t{1}}});  // row-major only
        break;
      case 2:
        made = g.add(Op::Relu, name, {a}, {});
        break;
      case 3:
        made = g.add(Op::MaxPool, name, {a}, window(3));
        break;
      case 4:
        made = g.add(Op::Concat, name, {a, b}, {{"axis", int64_t{1}}});
        break;
      default:
        made = g.type(a) == g.type(b) ? g.add(Op::Add, name, {a, b}, {})
                                      : g.add(Op::Transpose, name, {a}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
    }
    values.push_back(made.value());
  }
  g.output(values.back());
  g.output(values[values.size() / 2]);
  return std::move(g).finish();
}

TEST(Assign, NoOtherChoiceReordersFewerBytes) {
  Random random(11);
  int with_reorders = 0;
  for (int draw = 0; draw < 60; ++draw) {
    const Graph graph = random_graph(random);
    std::vector<std::optional<ComputeDesc>> blocked;
    std::vector<size_t> free;
    std::vector<bool> labels(graph.nodes.size(), false);
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      blocked.push_back(in_blocks(describe(graph, graph.nodes[n]), Isa::v4));
      if (!blocked[n]) continue;
      graph.nodes[n].op == Op::Conv ? labels[n] = true : (free.push_back(n), false);
    }
    int64_t least = std::numeric_limits<int64_t>::max();
    for (size_t mask = 0; mask < size_t{1} << free.size(); ++mask) {
      for (size_t i = 0; i < free.size(); ++i) labels[free[i]] = (mask >> i & 1) != 0;
      least = std::min(least, reordered_bytes(graph, blocked, labels));
    }
    const Assignment chosen = assign_kernels(graph, Isa::v4).value();
    int64_t bytes = 0;
    for (const Reorder& reorder : chosen.reorders) bytes += size_of(graph.value(reorder.value).type).value();
    EXPECT_EQ(bytes, least) << to_string(graph);
    with_reorders += bytes > 0 ? 1 : 0;
  }
  EXPECT_GT(with_reorders, 20);
}

}  // namespace
}  // namespace nlsplit
