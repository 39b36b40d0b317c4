#include "kernels/catalogue.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/limits.h"
#include "base/sizes.h"
#include "graph/builder.h"
#include "kernels/layout.h"
#include "kernels/random_desc.h"
#include "testing/types.h"

namespace nlsplit::testing {
namespace {

using ::testing::HasSubstr;

Attrs conv_attrs(int64_t kernel, int64_t pad, int64_t group = 1) {
  using Ints = std::vector<int64_t>;
  return {{"dilations", Ints{1, 1}},
          {"group", group},
          {"kernel_shape", Ints{kernel, kernel}},
          {"pads", Ints(4, pad)},
          {"strides", Ints{1, 1}}};
}

ComputeDesc conv_desc(Shape x, Shape w, int64_t pad, int64_t group = 1) {
  ComputeDesc desc;
  desc.op = Op::Conv;
  desc.attrs = conv_attrs(w[2], pad, group);
  desc.weights = 0b10;
  desc.inputs = {f32(std::move(x)), f32(std::move(w))};
  desc.outputs = info(Op::Conv).infer(desc.inputs, desc.attrs).value();
  return desc;
}

std::string chosen(const ComputeDesc& desc, Isa isa = Isa::v3) { return to_string(choose_kernel(desc, isa).value()); }

TEST(Catalogue, ChoosesTheFirstThatAccepts) {
  ComputeDesc plain = conv_desc({1, 3, 8, 8}, {16, 3, 3, 3}, 1);
  EXPECT_EQ(chosen(plain), "conv_direct_v3");
  EXPECT_EQ(chosen(plain, Isa::v4), "conv_direct_v4");
  plain.weights = 0;
  EXPECT_EQ(chosen(plain), "conv_v3") << "weights that are no constant cannot be packed at load";
  EXPECT_EQ(chosen(conv_desc({1, 64, 56, 56}, {64, 64, 1, 1}, 0)), "conv_1x1_v3");
  EXPECT_EQ(chosen(conv_desc({1, 64, 7, 7}, {64, 64, 1, 1}, 0)), "conv_direct_v3") << "too few pixels";
  EXPECT_EQ(chosen(conv_desc({1, 8, 8, 8}, {8, 1, 3, 3}, 1, 8)), "conv_depthwise_v3");
}

// A convolution over one axis has the kernels of one over two.
TEST(Catalogue, OneAxisIsARowOfPixels) {
  const auto along = [](Shape x, Shape w, int64_t group = 1) {
    const std::vector<int64_t> one{1};
    ComputeDesc desc;
    desc.op = Op::Conv;
    desc.attrs = {{"dilations", one},
                  {"group", group},
                  {"kernel_shape", std::vector<int64_t>{w[2]}},
                  {"pads", std::vector<int64_t>{w[2] / 2, 0}},
                  {"strides", std::vector<int64_t>{2}}};
    desc.weights = 0b10;
    desc.inputs = {f32(std::move(x)), f32(std::move(w))};
    desc.outputs = info(Op::Conv).infer(desc.inputs, desc.attrs).value();
    return desc;
  };
  ComputeDesc desc = along({1, 80, 300}, {96, 80, 3});
  EXPECT_EQ(chosen(desc), "conv_direct_v3");
  EXPECT_EQ(chosen(along({1, 64, 300}, {64, 64, 1})), "conv_1x1_v3");
  EXPECT_EQ(chosen(along({1, 64, 300}, {64, 1, 3}, 64)), "conv_depthwise_v3");
  const Window w = window_of(desc);
  EXPECT_EQ((std::vector{w.h, w.w, w.out_h, w.out_w}), (std::vector<int64_t>{1, 300, 1, 150}));
  EXPECT_EQ((std::vector{w.kernel_h, w.kernel_w, w.stride_h, w.stride_w}), (std::vector<int64_t>{1, 3, 1, 2}));
  EXPECT_EQ((std::vector{w.pad_top, w.pad_left, w.pad_bottom, w.pad_right}), (std::vector<int64_t>{0, 1, 0, 0}));
  desc.inputs[0].block = desc.outputs[0].block = 8;
  EXPECT_EQ(chosen(desc), "conv_blocked_v3");
  ComputeDesc blocked = desc;
  blocked.kernel = {KernelName::conv_blocked, Isa::v3};
  for (const size_t axis : {0, 1, 2}) EXPECT_TRUE(is_exact(blocked, axis, 0, 1));
  for (const Op op : {Op::MaxPool, Op::AveragePool}) {
    ComputeDesc pool = desc;
    pool.op = op;
    pool.inputs.pop_back();
    pool.weights = 0;
    pool.outputs[0].shape = {1, 80, 150};
    EXPECT_EQ(chosen(pool), op == Op::MaxPool ? "max_pool_blocked_v3" : "average_pool_blocked_v3");
  }
}

TEST(Catalogue, TheBatchDoesNotChangeTheChoice) {
  for (int64_t batch : {1, 2, 64}) {
    EXPECT_EQ(chosen(conv_desc({batch, 64, 56, 56}, {64, 64, 1, 1}, 0)), "conv_1x1_v3");
    EXPECT_EQ(chosen(conv_desc({batch, 3, 8, 8}, {16, 3, 3, 3}, 1)), "conv_direct_v3");
  }
}

TEST(Catalogue, EveryComputedOperatorHasAKernelAtEveryLevel) {
  Random random(3);
  for (Op op : computed_ops()) {
    for (int i = 0; i < 20; ++i) {
      std::optional<ComputeDesc> desc = random_desc(op, random);
      if (!desc) continue;
      for (Isa isa : all_levels()) {
        desc->kernel = choose_kernel(*desc, isa).value();
        EXPECT_EQ(parse_kernel(to_string(desc->kernel)).value(), desc->kernel);
        EXPECT_EQ(desc->kernel.level, isa);
        EXPECT_TRUE(verify(*desc).ok()) << verify(*desc).error().to_string();
      }
    }
  }
}

TEST(Catalogue, CandidatesBeginWithTheUsualOnesAndLeaveOutTheLastResort) {
  using Names = std::vector<std::string>;
  const auto names = [](const ComputeDesc& desc, Isa isa) {
    Names all;
    const std::vector<KernelId> ids = candidates(desc, isa).value();
    for (const KernelId id : ids) all.push_back(to_string(id));
    return all;
  };
  const auto of = [&](ComputeDesc desc) {
    desc.inputs[0].block = desc.outputs[0].block = 8;
    return names(desc, Isa::v3);
  };
  EXPECT_EQ(of(conv_desc({1, 32, 14, 14}, {32, 32, 3, 3}, 1)), (Names{"conv_winograd_v3", "conv_blocked_v3"}));
  EXPECT_EQ(of(conv_desc({1, 32, 7, 7}, {32, 32, 3, 3}, 1)), (Names{"conv_blocked_v3", "conv_winograd_v3"}));
  ComputeDesc gemm;
  gemm.op = Op::Gemm;
  gemm.attrs = {{"alpha", 1.0}, {"beta", 1.0}, {"transA", int64_t{0}}, {"transB", int64_t{0}}};
  gemm.inputs = {f32({2, 3}), f32({3, 4})};
  gemm.outputs = {f32({2, 4})};
  EXPECT_EQ(names(gemm, Isa::v2), Names{"gemm_v2"});
  gemm.weights = 0b10;
  EXPECT_EQ(names(gemm, Isa::v2), Names{"gemm_packed_v2"});
}

TEST(Catalogue, AChoiceHoldsForAllBatches) {
  const ComputeDesc one = conv_desc({1, 3, 8, 8}, {16, 3, 3, 3}, 1), eight = conv_desc({8, 3, 8, 8}, {16, 3, 3, 3}, 1);
  EXPECT_EQ(choice_key(one, Isa::v3), choice_key(eight, Isa::v3));
  EXPECT_NE(choice_key(one, Isa::v3), choice_key(one, Isa::v4));
  EXPECT_NE(choice_key(one, Isa::v3), choice_key(conv_desc({1, 3, 8, 8}, {17, 3, 3, 3}, 1), Isa::v3));
  ComputeDesc as_kernel = one;
  as_kernel.kernel = {KernelName::conv_direct, Isa::v3};
  EXPECT_EQ(choice_key(one, Isa::v3), choice_key(as_kernel, Isa::v3));
}

TEST(Catalogue, BlocksAreOfTheLevelsOwnSize) {
  ComputeDesc desc = conv_desc({1, 32, 14, 14}, {32, 32, 3, 3}, 1);
  desc.inputs[0].block = desc.outputs[0].block = 16;
  EXPECT_THAT(choose_kernel(desc, Isa::v3).error().message, HasSubstr("f32[1,32,14,14]c16: level v3 has blocks of 8"));
  desc.kernel = {KernelName::conv_blocked, Isa::v3};
  EXPECT_FALSE(verify(desc).ok());
  desc.kernel = {KernelName::conv_blocked, Isa::v4};
  EXPECT_TRUE(verify(desc).ok()) << verify(desc).error().to_string();
  desc.outputs[0].block = 0;
  EXPECT_FALSE(verify(desc).ok()) << "no kernel makes a row-major result of blocks here";
}

TEST(Catalogue, RefusalsSayWhy) {
  ComputeDesc desc = conv_desc({1, 3, 8, 8}, {16, 3, 3, 3}, 1);
  desc.weights = 0;
  const auto why = [&](KernelName kernel) { return refusal({kernel, Isa::v3}, desc)->why; };
  EXPECT_EQ(why(KernelName::conv_direct), "it packs its weights at load, and these are not constant");
  EXPECT_EQ(why(KernelName::conv_depthwise), "a filter sees 3 channels, not one");
  for (auto* types : {&desc.inputs, &desc.outputs}) {
    for (TensorType& type : *types) type.dtype = DType::i64;
  }
  EXPECT_EQ(why(KernelName::conv_direct), "i64[1,3,8,8] is not f32");
  EXPECT_EQ(to_string(choose_kernel(desc, Isa::v3).value()), "reference_v3");
}

// Who computes other operators has nothing to say of this one, whatever its sentence.
TEST(Catalogue, ARefusalSaysWhetherTheOperatorIsTheKernels) {
  ComputeDesc desc = conv_desc({1, 3, 8, 8}, {16, 3, 3, 3}, 1);
  desc.attrs = conv_attrs(3, 1, 1);
  EXPECT_FALSE(refusal({KernelName::conv_direct, Isa::v3}, desc));
  const auto gemm = refusal({KernelName::gemm, Isa::v3}, desc),
             depthwise = refusal({KernelName::conv_depthwise, Isa::v3}, desc);
  EXPECT_EQ(refusal({KernelName::conv_direct, Isa::cuda}, desc)->why, "level cuda has no conv_direct");
  EXPECT_TRUE(gemm->other_operator);
  EXPECT_EQ(gemm->why, "it does not compute Conv");
  EXPECT_FALSE(depthwise->other_operator);
  desc.inputs[0].block = 8;  // and nothing takes blocks and makes none
  const std::string message = choose_kernel(desc, Isa::v3).error().message;
  EXPECT_THAT(message, HasSubstr("; conv_direct: it works on row-major tensors"));
  EXPECT_THAT(message, ::testing::Not(HasSubstr("gemm")));
}

TEST(KernelId, TextsReadBack) {
  for (const char* text : {"none", "copy", "pack", "unpack", "reduce", "conv_v2", "conv_1x1_neon", "conv_cudnn_tf32"})
    EXPECT_EQ(to_string(parse_kernel(text).value()), text);
  EXPECT_EQ(parse_kernel("conv_winograd_v4").value(), KernelId(KernelName::conv_winograd, Isa::v4));
  EXPECT_EQ(parse_kernel("gather_cuda").value(), KernelId(KernelName::gpu_gather, Isa::cuda)) << "not a CPU's";
  for (const char* text :
       {"", "_", "conv", "conv_", "conv_v5", "conv_magic_v3", "conv_cudnn_v3", "conv_direct_cuda", "copy_v3"})
    EXPECT_EQ(parse_kernel(text).error().message, fmt::format("there is no kernel \"{}\"", text));
}

TEST(Catalogue, SignatureIsTheWholeComputation) {
  ComputeDesc desc = conv_desc({8, 3, 8, 8}, {16, 3, 3, 3}, 1);
  desc.inputs.push_back(f32({16}));
  desc.weights = 0b110;
  desc.epilogue = {{Op::Add, {}}, {Op::Clip, {{"max", 6.0}, {"min", 0.0}}}};
  desc.inputs.push_back(desc.outputs[0]);
  desc.kernel = choose_kernel(desc, Isa::v3).value();
  EXPECT_EQ(signature(desc),
            "conv_direct_v3 Conv(f32[8,3,8,8], const f32[16,3,3,3], const f32[16], f32[8,16,8,8]) "
            "{dilations=[1,1], group=1, kernel_shape=[3,3], pads=[1,1,1,1], strides=[1,1]} + Add + Clip " +
                to_string(Attrs{{"max", 6.0}, {"min", 0.0}}) + " -> f32[8,16,8,8]");
  EXPECT_EQ(desc.operand_count(), 1u);
  EXPECT_EQ(desc.own_inputs(), 3u);
}

TEST(Catalogue, WorkCountsTheEpilogue) {
  ComputeDesc desc = conv_desc({1, 3, 8, 8}, {16, 3, 3, 3}, 1);
  const Work bare = work_of(desc);
  EXPECT_EQ(bare.flops.value(), 2.0 * 16 * 64 * 27);
  desc.epilogue = {{Op::Add, {}}, {Op::Relu, {}}};
  desc.inputs.push_back(desc.outputs[0]);
  const Work fused = work_of(desc);
  EXPECT_EQ(fused.flops.value() - bare.flops.value(), 2.0 * 16 * 64);
  EXPECT_EQ((fused.bytes_read - bare.bytes_read).value(), 4 * 16 * 64) << "the operand, read once";
  EXPECT_EQ(fused.bytes_written, bare.bytes_written);
}

TEST(Catalogue, DescribeMarksWeights) {
  GraphBuilder g("toy");
  const ValueId x = g.input("x", f32({2, 3, 8, 8}));
  const ValueId w = g.weight("w", f32({16, 3, 3, 3}), ContentId{1});
  const ValueId y = g.add(Op::Conv, "conv1", {x, w}, conv_attrs(3, 1)).value();
  const ValueId skip = g.weight("skip", g.type(y), ContentId{2});
  g.output(y);
  Graph graph = std::move(g).finish();
  Node& node = graph.nodes[0];
  node.inputs.push_back(ValueId());  // an optional bias, left out
  node.epilogue = {{Op::Relu, ValueId(), {}, "relu1"}, {Op::Add, skip, {}, "add1"}};
  const ComputeDesc desc = describe(graph, node);
  EXPECT_EQ(desc.inputs, (std::vector<TensorType>{f32({2, 3, 8, 8}), f32({16, 3, 3, 3}), f32({2, 16, 8, 8})}));
  EXPECT_EQ(desc.weights, 0b110u);
  EXPECT_EQ(desc.epilogue, (std::vector<DescStep>{{Op::Relu, {}}, {Op::Add, {}}}));
  EXPECT_TRUE(desc.kernel.empty());
}

TEST(Catalogue, PackedBytesFollowTheVectors) {
  // 20 filters of 3 · 9 weights: 20 columns are 5 vectors of 4, 3 of 8, 2 of 16.
  ComputeDesc desc = conv_desc({1, 3, 8, 8}, {20, 3, 3, 3}, 1);
  const auto packed = [&](size_t i, Isa isa) {
    desc.kernel = {KernelName::conv_direct, isa};
    return packed_bytes_of(desc, i).value();
  };
  EXPECT_EQ(packed(1, Isa::v2), 27 * 20 * 4);
  EXPECT_EQ(packed(1, Isa::v3), 27 * 24 * 4);
  EXPECT_EQ(packed(1, Isa::v4), 27 * 32 * 4);
  EXPECT_EQ(packed(1, Isa::neon), 27 * 20 * 4);
  EXPECT_EQ(packed(0, Isa::v4), 0);
}

TEST(Catalogue, VerifyRejectsWhatATextMayClaim) {
  ComputeDesc good = conv_desc({1, 3, 8, 8}, {16, 3, 3, 3}, 1);
  good.kernel = {KernelName::conv_direct, Isa::v3};
  ASSERT_TRUE(verify(good).ok());
  const auto message = [&](auto change) {
    ComputeDesc bad = good;
    change(bad);
    const Status status = verify(bad);
    return status.ok() ? std::string("accepted") : status.error().message;
  };
  EXPECT_EQ(message([](auto& d) { d.kernel = KernelName::copy; }), "\"copy\" is not a kernel of the catalogue");
  EXPECT_THAT(message([](auto& d) { d.kernel = {KernelName::gemm, Isa::v3}; }), HasSubstr("it does not compute Conv"));
  EXPECT_THAT(message([](auto& d) { d.weights = 0; }), HasSubstr("not constant"));
  EXPECT_THAT(message([](auto& d) { d.weights = 0b110; }), HasSubstr("more weights than inputs"));
  EXPECT_THAT(message([](auto& d) { d.outputs[0].shape[3] = 9; }), HasSubstr("the result is f32[1,16,8,8]"));
  EXPECT_THAT(message([](auto& d) { d.inputs.pop_back(); }), HasSubstr("inputs"));
  EXPECT_THAT(message([](auto& d) { d.attrs.clear(); }), HasSubstr("Conv"));
  EXPECT_THAT(message([](auto& d) {
                d.epilogue = {{Op::Softmax, {{"axis", int64_t{1}}}}};
              }),
              HasSubstr("not an epilogue step"));
  EXPECT_THAT(message([](auto& d) { d.epilogue = {{Op::Clip, {}}}; }), HasSubstr("Clip"));
  EXPECT_THAT(message([](auto& d) {
                d.epilogue = {{Op::Add, {}}};
                d.inputs.push_back(f32({1, 16, 8, 1}));
              }),
              HasSubstr("another type than the result"));
}

// Extents that a file may name, and sizes of what a kernel would need for them.
TEST(Catalogue, WhatNoMachineHasRoomForIsTheReferences) {
  // Its image has a phase for each of 2^20 times 2^20 steps of the stride, for 2^22 channels.
  ComputeDesc strided = conv_desc({1, 1 << 22, 1, 1}, {1, 1 << 22, 1, 1}, 0);
  set_attr(strided.attrs, "strides", std::vector<int64_t>{1 << 20, 1 << 20});
  // 2^18 taps for each of 2^20 pixels; 256 images in which a window reaches 2^20 rows and columns further.
  ComputeDesc transposed = strided;
  transposed.op = Op::ConvTranspose;
  transposed.attrs = {{"dilations", std::vector<int64_t>{2048, 2048}},  {"group", int64_t{1}},
                      {"kernel_shape", std::vector<int64_t>{512, 512}}, {"output_padding", std::vector<int64_t>{0, 0}},
                      {"pads", std::vector<int64_t>(4, 3 << 17)},       {"strides", std::vector<int64_t>{1, 1}}};
  transposed.inputs = {f32({1, 256, 1024, 1024}), f32({256, 1, 512, 512})};
  transposed.outputs = info(Op::ConvTranspose).infer(transposed.inputs, transposed.attrs).value();
  // Rows as wide as the window reaches, which is in the padding.
  ComputeDesc pooled;
  pooled.op = Op::MaxPool;
  pooled.attrs = {{"ceil_mode", int64_t{0}},
                  {"dilations", std::vector<int64_t>{1, 1 << 19}},
                  {"kernel_shape", std::vector<int64_t>{1, 4}},
                  {"pads", std::vector<int64_t>{0, 3 << 18, 0, 3 << 18}},
                  {"strides", std::vector<int64_t>{1, 1 << 20}}};
  pooled.inputs = {f32({1, 1, 1 << 28, 1})};
  pooled.outputs = info(Op::MaxPool).infer(pooled.inputs, pooled.attrs).value();
  for (const Isa isa : all_levels()) {
    for (const uint64_t constant : {0b00, 0b10}) {
      strided.weights = transposed.weights = constant;
      for (const ComputeDesc* desc : {&strided, &transposed, &pooled})
        EXPECT_EQ(choose_kernel(*desc, isa).value(), KernelId(KernelName::reference, isa)) << signature(*desc);
    }
  }
  for (const KernelName kernel : {KernelName::conv, KernelName::conv_direct, KernelName::conv_1x1}) {
    strided.kernel = {kernel, Isa::v3};
    EXPECT_THAT(refusal(strided.kernel, strided)->why, HasSubstr("its workspace would be larger than any machine"));
    EXPECT_EQ(workspace_of(strided, 1).value(), largest_size);
  }
  EXPECT_EQ(refusal({KernelName::reference, Isa::v3}, conv_desc({1, 3, 8, 8}, {16, 3, 3, 3}, 1))->why,
            "other kernels compute it");
}

TEST(Catalogue, LevelsParse) {
  EXPECT_EQ(parse_level("v3").value(), Isa::v3);
  EXPECT_EQ(parse_level("x86-64-v4").value(), Isa::v4);
  EXPECT_EQ(parse_level("armv8-a").value(), Isa::neon);
  for (Isa isa : all_levels()) {
    EXPECT_EQ(parse_level(name_of(isa)).value(), isa);
    EXPECT_EQ(parse_level(full_name_of(isa)).value(), isa);
  }
  EXPECT_THAT(parse_level("avx2").error().message, HasSubstr("one of v2, v3, v4, neon"));
  EXPECT_FALSE(parse_level("x86-64-neon").ok());
}

TEST(Layout, ScalarPanelsCoverEveryRowOnce) {
  for (int64_t most : {4, 6, 12, 14}) {
    for (int64_t m = 0; m < 200; ++m) {
      const ScalarPanels panels = scalar_panels(m, most);
      int64_t next = 0;
      for (int64_t p = 0; p < panels.count; ++p) {
        EXPECT_EQ(panels.begin(p), next);
        EXPECT_LE(panels.rows_of(p), most);
        EXPECT_GT(panels.rows_of(p), 0);
        next += panels.rows_of(p);
      }
      EXPECT_EQ(next, m);
      EXPECT_EQ(panels.count, (m + most - 1) / most);
    }
  }
}

TEST(Layout, TapsLieInsideTheImage) {
  Random random(11);
  int windows = 0;
  for (int i = 0; i < 500; ++i) {
    std::optional<ComputeDesc> desc = random_desc(i % 2 == 0 ? Op::Conv : Op::MaxPool, random);
    if (!desc) continue;
    ++windows;
    const Window w = window_of(*desc);
    const int64_t last_pixel = (w.out_h - 1) * w.image_w + w.out_w - 1;
    EXPECT_EQ(w.flat_pixels(), last_pixel + 1);
    for (int64_t y = 0; y < w.kernel_h; ++y) {
      for (int64_t x = 0; x < w.kernel_w; ++x)
        EXPECT_LT(w.tap_offset(y, x) + last_pixel, w.image_floats()) << signature(*desc);
    }
  }
  EXPECT_GT(windows, 300);
}

}  // namespace
}  // namespace nlsplit::testing
