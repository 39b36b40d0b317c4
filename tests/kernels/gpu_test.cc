// The GPU's part of the catalogue: what it accepts and where that ends.
#include "kernels/cuda/gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/assign.h"
#include "kernels/cpu.h"
#include "kernels/layout.h"
#include "kernels/random_desc.h"
#include "testing/types.h"

namespace nlsplit::testing {
namespace {

using ::testing::HasSubstr;

ComputeDesc conv_desc(Shape x, Shape w, std::vector<int64_t> pads, int64_t stride) {
  ComputeDesc desc;
  desc.op = Op::Conv;
  desc.attrs = {{"dilations", std::vector<int64_t>{1, 1}},
                {"group", int64_t{1}},
                {"kernel_shape", std::vector<int64_t>{w[2], w[3]}},
                {"pads", std::move(pads)},
                {"strides", std::vector<int64_t>{stride, stride}}};
  desc.inputs = {f32(std::move(x)), f32(std::move(w))};
  desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
  return desc;
}

ComputeDesc matmul_desc(Shape a, Shape b) {
  ComputeDesc desc;
  desc.op = Op::MatMul;
  desc.inputs = {f32(std::move(a)), f32(std::move(b))};
  desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
  return desc;
}

// Gradients and losses have no kernels there yet.
bool is_of_training(Op op) { return name_of(op).ends_with("Gradient") || op == Op::SoftmaxCrossEntropy; }

TEST(GpuCatalogue, EveryComputedOperatorHasAKernelOfItsLevel) {
  Random random(4);
  int on_host = 0, on_gpu = 0;
  for (Op op : computed_ops()) {
    if (is_of_training(op)) continue;
    for (int i = 0; i < 20; ++i) {
      std::optional<ComputeDesc> desc = random_desc(op, random);
      if (!desc) continue;
      for (const Level level : gpu_levels()) {
        desc->kernel = choose_kernel(*desc, level).value();
        EXPECT_EQ(parse_kernel(to_string(desc->kernel)).value(), desc->kernel);
        EXPECT_EQ(desc->kernel.level, level);
        EXPECT_TRUE(verify(*desc).ok()) << verify(*desc).error().to_string();
        ++(desc->kernel.name == KernelName::gpu_host ? on_host : on_gpu);
      }
    }
  }
  EXPECT_GT(on_gpu, 2 * on_host);  // recurrent networks, transposed convolutions, pads, sums, what is empty
  EXPECT_GT(on_host, 0);
}

// What has a kernel of its own in float32 has it in float16 and bfloat16.
TEST(GpuCatalogue, HalvesHaveTheSameKernels) {
  Random random(9);
  int compared = 0;
  for (Op op : computed_ops()) {
    for (int i = 0; i < 10; ++i) {
      const std::optional<ComputeDesc> desc = random_desc(op, random);
      if (!desc) continue;
      for (const DType type : {DType::f16, DType::bf16}) {
        ComputeDesc half = *desc;
        for (TensorType& input : half.inputs)
          if (input.dtype == DType::f32) input.dtype = type;
        for (TensorType& output : half.outputs) output.dtype = type;
        half.kernel = choose_kernel(half, Isa::cuda).value();
        EXPECT_EQ(half.kernel, choose_kernel(*desc, Isa::cuda).value());
        EXPECT_TRUE(verify(half).ok()) << verify(half).error().to_string();
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 400);
}

TEST(GpuCatalogue, OperandsAreOfOneType) {
  ComputeDesc desc = matmul_desc({2, 3}, {3, 4});
  desc.kernel = {KernelName::gpu_matmul_cublaslt, Isa::cuda};
  ASSERT_TRUE(verify(desc).ok());
  desc.outputs[0].dtype = DType::f16;
  EXPECT_THAT(refusal(desc.kernel, desc)->why, HasSubstr("f32[2,3] is not f16"));
  ComputeDesc cast;
  cast.op = Op::Cast;
  cast.attrs = {{"to", std::string("bf16")}};
  cast.inputs = {f32({2, 3})};
  cast.outputs = {{DType::bf16, {2, 3}}};
  EXPECT_EQ(to_string(choose_kernel(cast, Isa::cuda).value()), "cast_cuda");
  cast.inputs[0].dtype = DType::i64;
  EXPECT_EQ(to_string(choose_kernel(cast, Isa::cuda).value()), "generated_cuda");
}

// A thread has a row: a few long ones are the host's.
TEST(GpuCatalogue, CodeIsGeneratedWhereThreadsShareTheWork) {
  const auto chosen = [](Op op, Attrs attrs, std::vector<TensorType> inputs) {
    ComputeDesc desc;
    desc.op = op;
    desc.attrs = std::move(attrs);
    desc.inputs = std::move(inputs);
    desc.outputs = info(op).infer(desc.inputs, desc.attrs).value();
    return to_string(choose_kernel(desc, Isa::cuda).value());
  };
  const auto summed = [&](Shape shape) {
    return chosen(Op::ReduceSum, {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}},
                  {f32(std::move(shape))});
  };
  EXPECT_EQ(summed({31, 1024}), "generated_cuda");
  EXPECT_EQ(summed({31, 1025}), "host_cuda");
  EXPECT_EQ(summed({32, 1025}), "generated_cuda");
  EXPECT_EQ(chosen(Op::Floor, {}, {f32({2, 100000})}), "generated_cuda") << "a thread an element";
  const auto scattered = [&](int64_t rows) {
    return chosen(Op::ScatterND, {{"reduction", std::string("none")}},
                  {f32({rows, 8}), {DType::i64, {4, 1}}, f32({4, 8})});
  };
  EXPECT_EQ(scattered(10), "generated_cuda");
  EXPECT_EQ(scattered(200), "host_cuda") << "one thread for all of it";
  EXPECT_EQ(chosen(Op::Neg, {}, {f32({4})}), "unary_cuda") << "it has a kernel";
  EXPECT_EQ(chosen(Op::Neg, {}, {{DType::i32, {4}}}), "generated_cuda");
  EXPECT_EQ(chosen(Op::Det, {}, {f32({4, 3, 3})}), "host_cuda") << "there are no loops of it";
}

TEST(GpuCatalogue, LevelsAreApartFromCpus) {
  for (const Level level : gpu_levels()) {
    EXPECT_TRUE(is_gpu(level.isa));
    EXPECT_FALSE(cpu_supports(level.isa));
    EXPECT_EQ(parse_level(name_of(level)).value(), level);
  }
  for (const Isa isa : all_levels()) EXPECT_FALSE(is_gpu(isa));
  const KernelId rounded = {KernelName::gpu_conv_cudnn, {Isa::cuda, Precision::tf32}};
  EXPECT_EQ(to_string(rounded), "conv_cudnn_tf32");
  EXPECT_EQ(parse_kernel("conv_cudnn_tf32").value(), rounded);
  EXPECT_EQ(full_name_of(rounded.level), "cuda-tf32");
  EXPECT_EQ(parse_level("cuda-float32").value(), Isa::cuda);
  EXPECT_FALSE(parse_kernel("conv_direct_tf32").ok());
}

TEST(GpuCatalogue, HasNoBlocksOfChannels) {
  ComputeDesc desc = conv_desc({1, 32, 8, 8}, {16, 32, 3, 3}, {1, 1, 1, 1}, 1);
  desc.weights = 0b10;
  EXPECT_FALSE(in_blocks(desc, Isa::cuda).has_value());
  desc.inputs[0].block = desc.outputs[0].block = 1;
  EXPECT_THAT(choose_kernel(desc, Isa::cuda).error().message, HasSubstr("a GPU's kernels work on row-major tensors"));
}

TEST(GpuCatalogue, CudnnTakesPadsThatComeToTheSame) {
  // 8 columns, 3 wide: (0, 1) with stride 2 makes 4 columns, and (0, 0) makes 3.
  const auto chosen = [](const ComputeDesc& desc) { return to_string(choose_kernel(desc, Isa::cuda).value()); };
  EXPECT_EQ(chosen(conv_desc({1, 2, 8, 8}, {4, 2, 3, 3}, {1, 1, 1, 1}, 1)), "conv_cudnn_cuda");
  EXPECT_EQ(chosen(conv_desc({1, 2, 8, 8}, {4, 2, 3, 3}, {0, 0, 1, 1}, 2)), "conv_loops_cuda");
  // (1, 0) with stride 2: the last window ends at column 7, as with (1, 1).
  EXPECT_EQ(chosen(conv_desc({1, 2, 8, 8}, {4, 2, 3, 3}, {1, 1, 0, 0}, 2)), "conv_cudnn_cuda");
}

TEST(GpuCatalogue, PointwiseConvolutionsAreProducts) {
  const auto chosen = [](const ComputeDesc& desc) { return to_string(choose_kernel(desc, Isa::cuda).value()); };
  const ComputeDesc plain = conv_desc({2, 16, 8, 8}, {32, 16, 1, 1}, {0, 0, 0, 0}, 1);
  EXPECT_EQ(chosen(plain), "conv_pointwise_cublaslt_cuda");
  EXPECT_EQ(picked_pixels(plain).value(), 0);
  ComputeDesc strided = conv_desc({2, 16, 8, 8}, {32, 16, 1, 1}, {0, 0, 0, 0}, 2);
  EXPECT_EQ(chosen(strided), "conv_pointwise_cublaslt_cuda");
  EXPECT_EQ(picked_pixels(strided).value(), 2 * 16 * 4 * 4 * 4);
  strided.kernel = choose_kernel(strided, Isa::cuda).value();
  ComputeDesc unstrided = plain;
  unstrided.kernel = strided.kernel;
  EXPECT_EQ(workspace_of(strided, 1).value() - workspace_of(unstrided, 1).value(), picked_pixels(strided).value());
  EXPECT_EQ(chosen(conv_desc({2, 16, 8, 8}, {32, 16, 1, 1}, {1, 1, 1, 1}, 1)), "conv_cudnn_cuda");
  ComputeDesc groups = conv_desc({2, 16, 8, 8}, {32, 16, 1, 1}, {0, 0, 0, 0}, 1);
  std::ranges::find(groups.attrs, "group", &Attr::name)->value = int64_t{2};
  groups.inputs[1].shape[1] = 8;
  EXPECT_EQ(chosen(groups), "conv_cudnn_cuda");
}

TEST(GpuCatalogue, AttentionGoesByHeadsThatFit) {
  const auto attention = [](int64_t batch, int64_t heads, int64_t kv_heads, int64_t tokens, DType type) {
    ComputeDesc desc;
    desc.op = Op::Attention;
    desc.attrs = {{"causal", int64_t{1}}, {"scale", 0.125}};
    desc.inputs = {
        {type, {batch, heads, tokens, 8}}, {type, {batch, kv_heads, tokens, 8}}, {type, {batch, kv_heads, tokens, 8}}};
    desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
    desc.kernel = choose_kernel(desc, Isa::cuda).value();
    return desc;
  };
  const ComputeDesc small = attention(2, 12, 4, 64, DType::f32);
  EXPECT_EQ(to_string(small.kernel), "attention_cublaslt_cuda");
  const AttentionPasses all = attention_passes_of(small);
  EXPECT_EQ(all.heads, 8);
  EXPECT_EQ(all.rows, 3 * 64);
  EXPECT_EQ(all.weights_begin.value(), 0) << "in the scores' place";
  EXPECT_EQ(all.rest_begin.value(), 8 * 192 * 64 * 4);
  const AttentionPasses halves = attention_passes_of(attention(2, 12, 4, 64, DType::f16));
  EXPECT_EQ(halves.weights_begin.value(), 8 * 192 * 64 * 4);
  EXPECT_EQ(halves.rest_begin.value(), 8 * 192 * 64 * 6);
  // 4 MiB of scores a head: 16 fit, and 10 is the largest part of 20 that does.
  const AttentionPasses some = attention_passes_of(attention(1, 20, 20, 1024, DType::f32));
  EXPECT_EQ(some.heads, 10);
  EXPECT_EQ(attention_passes_of(attention(1, 3, 3, 8192, DType::f32)).heads, 1) << "one at least";
}

TEST(GpuCatalogue, BatchesOfProductsLieAtAFixedDistance) {
  const auto of = [](Shape a, Shape b) { return batched_product_of(matmul_desc(std::move(a), std::move(b))); };
  const auto one = of({5, 2, 3}, {3, 4});
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->batch, 1);
  EXPECT_EQ(one->m, 10);
  const auto both = of({6, 2, 3}, {6, 3, 4});
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->batch, 6);
  EXPECT_EQ(both->a_stride, 6);
  EXPECT_EQ(both->b_stride, 12);
  const auto shared = of({2, 3}, {6, 3, 4});
  ASSERT_TRUE(shared.has_value());
  EXPECT_EQ(shared->a_stride, 0);
  EXPECT_EQ(shared->b_stride, 12);
  EXPECT_FALSE(of({2, 1, 2, 3}, {1, 5, 3, 4}).has_value());
  EXPECT_EQ(to_string(choose_kernel(matmul_desc({2, 1, 2, 3}, {1, 5, 3, 4}), Isa::cuda).value()), "generated_cuda");
}

TEST(GpuCatalogue, ReducedAxesAreNeighbours) {
  const auto of = [](const Shape& shape, std::vector<int64_t> axes) { return around_axes(shape, axes); };
  const auto last = of({2, 3, 4}, {-1});
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->outer, 6);
  EXPECT_EQ(last->extent, 4);
  EXPECT_EQ(last->inner, 1);
  const auto middle = of({2, 3, 1, 5, 7}, {1, 3});
  ASSERT_TRUE(middle.has_value());
  EXPECT_EQ(middle->outer, 2);
  EXPECT_EQ(middle->extent, 15);
  EXPECT_EQ(middle->inner, 7);
  EXPECT_FALSE(of({2, 3, 4}, {0, 2}).has_value());
  const auto none = of({2, 3}, {});
  ASSERT_TRUE(none.has_value());
  EXPECT_EQ(none->outer, 6);
  EXPECT_EQ(none->extent, 1);
}

TEST(GpuCatalogue, LibrariesHaveWorkspaceAndOwnKernelsNone) {
  ComputeDesc conv = conv_desc({1, 2, 8, 8}, {4, 2, 3, 3}, {1, 1, 1, 1}, 1);
  for (const KernelName kernel : kernels_of(Isa::cuda)) {
    conv.kernel = {kernel, Isa::cuda};
    const bool by_library = name_of(kernel).ends_with("cudnn") || name_of(kernel).ends_with("cublaslt");
    EXPECT_EQ(info_of(kernel).workspace != nullptr, by_library) << name_of(kernel);
    if (std::ranges::count(info_of(kernel).ops, Op::Conv) > 0) {
      EXPECT_EQ(workspace_of(conv, 1).value() > 0, by_library) << name_of(kernel);
    }
    const uint8_t own = kernel == KernelName::gpu_generated ? exact::all : exact::batch;
    EXPECT_EQ(info_of(kernel).exact_axes, by_library ? 0 : own) << name_of(kernel);
    EXPECT_EQ(info_of(kernel).packed_bytes, nullptr) << name_of(kernel);
  }
}

}  // namespace
}  // namespace nlsplit::testing
