// A GPU's kernels: what they accept and need. Their code is in exec/cuda/module.
#include "kernels/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/sizes.h"
#include "kernels/cuda/gpu.h"
#include "kernels/generated/interpret.h"
#include "kernels/generated/lower.h"

namespace nlsplit::inline kernels {
namespace {

// What cuBLAS's manual recommends for Hopper and later ("cublasSetWorkspace": 32 MiB); cuDNN chooses among the
// algorithms that need no more, and always has one that needs none.
constexpr Bytes library_workspace = Bytes::of(int64_t{32} << 20);

Bytes scratch_library(const ComputeDesc&, Isa, int) { return library_workspace; }

std::string refuse_shapes(const ComputeDesc& desc) {
  for (const std::vector<TensorType>* types : {&desc.inputs, &desc.outputs}) {
    for (const TensorType& type : *types) {
      if (element_count(type.shape) == 0) return fmt::format("{} is empty", to_string(type));
      if (type.shape.size() > most_kernel_axes)
        return fmt::format("{} has more than {} axes", to_string(type), most_kernel_axes);
    }
  }
  for (const DescStep& step : desc.epilogue) {
    if (!has(step.op, traits::is_step_with_operand) && !std::ranges::count(rows::gpu_unary.ops, step.op))
      return fmt::format("a GPU has no {} as a step after it", name_of(step.op));
  }
  const DType type = desc.outputs[0].dtype;
  const bool plain = desc.epilogue.empty() || type == DType::f32 || is_half(type);
  return plain ? "" : "the steps after it are not in f32, f16 or bf16";
}

// cuDNN pads both ends alike. That is the same convolution where its last window ends where ours does.
bool pads_alike(int64_t extent, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad, int64_t out) {
  const int64_t room = extent + 2 * pad - ((kernel - 1) * dilation + 1);
  return room >= 0 && 1 + room / stride == out;
}

std::string refuse_conv_cudnn(const ComputeDesc& desc) {
  if (std::string why = refuse_shapes(desc); !why.empty()) return why;
  for (const TensorType& type : {desc.inputs[0], desc.inputs[1], desc.outputs[0]}) {
    if (element_count(type.shape) > std::numeric_limits<int32_t>::max())
      return fmt::format("{} has more elements than 32 bits count", to_string(type));
  }
  const Window w = window_of(desc);
  if (w.pad_top < 0 || w.pad_left < 0) return "a pad is negative";
  const bool alike = pads_alike(w.h, w.kernel_h, w.stride_h, w.dilation_h, w.pad_top, w.out_h) &&
                     pads_alike(w.w, w.kernel_w, w.stride_w, w.dilation_w, w.pad_left, w.out_w);
  return alike ? "" : "cuDNN pads both ends alike";
}

std::string refuse_conv_pointwise(const ComputeDesc& desc) {
  if (std::string why = refuse_shapes(desc); !why.empty()) return why;
  const Window w = window_of(desc);
  if (w.kernel_h != 1 || w.kernel_w != 1) return "its window is not 1 x 1";
  if (w.groups != 1) return "its channels are in groups";
  const auto& pads = attr_ints(desc.attrs, "pads");
  return std::ranges::all_of(pads, [](int64_t pad) { return pad == 0; }) ? "" : "it has pads";
}

Bytes scratch_pointwise(const ComputeDesc& desc, Isa, int) { return library_workspace + picked_pixels(desc); }

Bytes scratch_gpu_attention(const ComputeDesc& desc, Isa, int) {
  return library_workspace + attention_passes_of(desc).rest_begin;
}

std::string refuse_gpu_matmul(const ComputeDesc& desc) {
  if (std::string why = refuse_shapes(desc); !why.empty()) return why;
  return batched_product_of(desc) ? "" : "its batches lie at no fixed distance";
}

std::string refuse_gpu_reduce_mean(const ComputeDesc& desc) {
  if (std::string why = refuse_shapes(desc); !why.empty()) return why;
  return around_axes(desc.inputs[0].shape, attr_ints(desc.attrs, "axes")) ? "" : "the axes are not neighbours";
}

std::string refuse_gpu_gather(const ComputeDesc& desc) {
  if (std::string why = refuse_shapes(desc); !why.empty()) return why;
  const DType type = desc.inputs[1].dtype;
  return type == DType::i64 || type == DType::i32 ? "" : fmt::format("an index is {}", name_of(type));
}

std::string refuse_gpu_cast(const ComputeDesc& desc) {
  if (std::string why = refuse_shapes(desc); !why.empty()) return why;
  const auto accepts = [](DType type) { return type == DType::f32 || is_half(type); };
  return accepts(desc.inputs[0].dtype) && accepts(desc.outputs[0].dtype) ? "" : "it casts between f32, f16 and bf16";
}

// One head of the keys is the least of a pass. What is larger than this is left to the kernel that keeps no scores.
constexpr Bytes most_pass = Bytes::of(int64_t{1} << 30);

std::string refuse_attention_products(const ComputeDesc& desc) {
  if (std::string why = refuse_shapes(desc); !why.empty()) return why;
  const Bytes pass = attention_passes_of(desc).rest_begin;
  return pass <= most_pass ? "" : fmt::format("the scores of one head take {}", to_string(pass));
}

std::string refuse_gpu_attention(const ComputeDesc& desc) {
  if (std::string why = refuse_shapes(desc); !why.empty()) return why;
  const int64_t size = attention_of(desc).value_size;
  return size <= most_value_size ? "" : fmt::format("a value has {} elements, more than {}", size, most_value_size);
}

// A row is one thread's, which waits for its operands step by step. A few rows of many steps leave the GPU idle for
// longer than it takes to copy the operands to the host and back. Where that begins was never measured: fewer rows than
// a warp has threads, and 1024 steps, are a guess.
std::string refuse_few_rows(const ComputeDesc& desc) {
  constexpr int64_t warp = 32, most_steps = 1024;
  if (!may_fold(desc.op)) return "";
  const Loops loops = lower(desc);
  const int64_t rows = rows_of(loops);
  if (loops.folds.empty() || rows >= warp) return "";
  const auto points = [&](int first, int end) {
    int64_t product = 1;
    for (int axis = first; axis < end; ++axis)
      product = saturating_product(product, loops.extents[static_cast<size_t>(axis)]);
    return product;
  };
  int64_t steps = loops.result < 0 ? 0 : points(loops.rows, loops.axes);
  for (const Fold& fold : loops.folds) steps = std::max(steps, points(fold.first_axis, fold.end_axis));
  if (steps <= most_steps) return "";
  return fmt::format("it has {} rows, one a thread, of {} steps", rows, steps);
}

std::string refuse_gpu_generated(const ComputeDesc& desc) {
  if (std::string why = refuse_lowering(desc); !why.empty()) return why;
  for (const KernelName name : kernels_of(Isa::cuda)) {
    const bool of_operator = std::ranges::count(info_of(name).ops, desc.op) > 0;
    if (of_operator && !refusal({name, Isa::cuda}, desc)) return "other kernels compute it";
  }
  return refuse_few_rows(desc);
}

Standing seldom(const ComputeDesc&) { return Standing::seldom; }

}  // namespace

const KernelInfo rows::gpu_conv_pointwise_cublaslt = {.what =
                                                          "1 x 1: cuBLASLt, a product a sample; with a stride its "
                                                          "pixels are picked before; bias and epilogue in one pass "
                                                          "behind it",
                                                      .ops = computes<Op::Conv>,
                                                      .refuses = refuse_conv_pointwise,
                                                      .workspace = scratch_pointwise,
                                                      .halves = true,
                                                      .exact_axes = 0};

const KernelInfo rows::gpu_conv_cudnn = {
    .what = "cuDNN, NCHW, its first deterministic algorithm; bias and epilogue follow in one pass",
    .ops = computes<Op::Conv>,
    .refuses = refuse_conv_cudnn,
    .workspace = scratch_library,
    .halves = true,
    .exact_axes = 0};

const KernelInfo rows::gpu_conv_loops = {.what = "one thread an output element, channel by channel, tap by tap",
                                         .ops = computes<Op::Conv>,
                                         .refuses = refuse_shapes,
                                         .standing = seldom,
                                         .halves = true};

const KernelInfo rows::gpu_gemm_cublaslt = {.what = "cuBLASLt; a row as bias and a Relu after it in its epilogue",
                                            .ops = computes<Op::Gemm>,
                                            .refuses = refuse_shapes,
                                            .workspace = scratch_library,
                                            .halves = true,
                                            .exact_axes = 0};

const KernelInfo rows::gpu_matmul_cublaslt = {
    .what = "cuBLASLt, batches at a fixed distance; a row as bias and a Relu after it in its epilogue",
    .ops = computes<Op::MatMul>,
    .refuses = refuse_gpu_matmul,
    .workspace = scratch_library,
    .halves = true,
    .exact_axes = 0};

const KernelInfo rows::gpu_binary = {
    .what = "element-wise on two operands, numpy broadcasting, epilogue in the same pass",
    .ops = computes<Op::Add, Op::Sub, Op::Mul, Op::Div>,
    .refuses = refuse_shapes,
    .halves = true,
    .in_place = 0b11};

const KernelInfo rows::gpu_sum = {.what = "element-wise sum of any number of operands, in their order",
                                  .ops = computes<Op::Sum>,
                                  .refuses = refuse_shapes,
                                  .halves = true,
                                  .in_place = 0b1};

const KernelInfo rows::gpu_unary = {
    .what = "element-wise on one operand, epilogue in the same pass",
    .ops = computes<Op::Relu, Op::Sigmoid, Op::Tanh, Op::HardSwish, Op::Exp, Op::Sqrt, Op::Neg, Op::Erf, Op::LeakyRelu,
                    Op::HardSigmoid, Op::Clip, Op::Gelu>,
    .refuses = refuse_shapes,
    .halves = true,
    .in_place = 0b1};

const KernelInfo rows::gpu_max_pool = {
    .what = "one thread an output element", .ops = computes<Op::MaxPool>, .refuses = refuse_shapes, .halves = true};

const KernelInfo rows::gpu_average_pool = {
    .what = "one thread an output element", .ops = computes<Op::AveragePool>, .refuses = refuse_shapes, .halves = true};

const KernelInfo rows::gpu_global_average_pool = {.what = "a warp or a block a plane",
                                                  .ops = computes<Op::GlobalAveragePool>,
                                                  .refuses = refuse_shapes,
                                                  .halves = true};

const KernelInfo rows::gpu_batch_norm = {
    .what = "one thread an element", .ops = computes<Op::BatchNormalization>, .refuses = refuse_shapes, .halves = true};

const KernelInfo rows::gpu_layer_norm = {.what = "a warp or a block a row: mean, then variance, then scale and shift",
                                         .ops = computes<Op::LayerNormalization>,
                                         .refuses = refuse_shapes,
                                         .halves = true};

const KernelInfo rows::gpu_instance_norm = {
    .what = "a warp or a block a plane: mean, then variance, then scale and shift",
    .ops = computes<Op::InstanceNormalization>,
    .refuses = refuse_shapes,
    .halves = true};

const KernelInfo rows::gpu_lrn = {.what = "one thread an element, sum of squares over neighbouring channels",
                                  .ops = computes<Op::LRN>,
                                  .refuses = refuse_shapes,
                                  .halves = true};

const KernelInfo rows::gpu_softmax = {.what = "a warp or a block a row: largest, exponentials, sum, along one axis",
                                      .ops = computes<Op::Softmax>,
                                      .refuses = refuse_shapes,
                                      .halves = true};

const KernelInfo rows::gpu_attention_cublaslt = {
    .what = "cuBLASLt: scores of some heads, their softmax, and its product with the values",
    .ops = computes<Op::Attention>,
    .refuses = refuse_attention_products,
    .workspace = scratch_gpu_attention,
    .halves = true,
    .exact_axes = 0};

const KernelInfo rows::gpu_attention = {
    .what = "one block a query: scores of some keys at a time, exponentials relative to the largest so far",
    .ops = computes<Op::Attention>,
    .refuses = refuse_gpu_attention,
    .halves = true};

const KernelInfo rows::gpu_reduce_mean = {.what = "a warp or a block an output element, over neighbouring axes",
                                          .ops = computes<Op::ReduceMean>,
                                          .refuses = refuse_gpu_reduce_mean,
                                          .halves = true};

const KernelInfo rows::gpu_concat = {.what = "one copy an operand, elements of any type",
                                     .ops = computes<Op::Concat>,
                                     .refuses = refuse_shapes,
                                     .any_type = true};

const KernelInfo rows::gpu_transpose = {.what = "a thread up to 16 bytes, elements of any type",
                                        .ops = computes<Op::Transpose>,
                                        .refuses = refuse_shapes,
                                        .any_type = true};

const KernelInfo rows::gpu_slice = {.what = "a thread up to 16 bytes, elements of any type",
                                    .ops = computes<Op::Slice>,
                                    .refuses = refuse_shapes,
                                    .any_type = true};

const KernelInfo rows::gpu_gather = {.what = "one thread an element of any type",
                                     .ops = computes<Op::Gather>,
                                     .refuses = refuse_gpu_gather,
                                     .any_type = true};

const KernelInfo rows::gpu_cast = {.what = "element-wise between f32, f16 and bf16, epilogue follows in a pass",
                                   .ops = computes<Op::Cast>,
                                   .refuses = refuse_gpu_cast,
                                   .any_type = true};

// Bits are the loops', whatever is beside an element.
const KernelInfo rows::gpu_generated = {.what = "loops of its own, compiled by NVRTC when it is loaded",
                                        .refuses = refuse_gpu_generated,
                                        .any_type = true,
                                        .exact_axes = exact::all};

const KernelInfo rows::gpu_host = {
    .what = "the reference loops on the host, operands copied there and results back; slow",
    .standing = last_resort,
    .any_type = true,
    .scaled = true,
    .in_place = ~uint64_t{0}};  // results come back when all is computed

std::optional<BatchedProduct> batched_product_of(const ComputeDesc& desc) {
  const Product p = product_of(desc);
  const Shape &a = desc.inputs[0].shape, &b = desc.inputs[1].shape;
  BatchedProduct r{p.batch, p.m, p.n, p.k, 0, 0};
  if (b.size() <= 2) return r;  // one product
  // The axes before the matrices, from the last one on: an operand has all of them, or none but ones.
  const auto batches = [&](const Shape& shape) {
    int64_t count = 1;
    for (size_t i = 0; i + 2 < shape.size(); ++i) count *= shape[i];
    return count;
  };
  const int64_t in_a = batches(a), in_b = batches(b);
  if ((in_a != 1 && in_a != p.batch) || (in_b != 1 && in_b != p.batch)) return std::nullopt;
  if (in_a == p.batch && p.batch > 1) r.a_stride = p.m * p.k;
  if (in_b == p.batch && p.batch > 1) r.b_stride = p.k * p.n;
  return r;
}

namespace {
Bytes whole_lines(int64_t size) { return bytes(round_up(size, int64_t{256})); }  // what CUDA's libraries align to
}  // namespace

Bytes picked_pixels(const ComputeDesc& desc) {
  const Window w = window_of(desc);
  if (w.stride_h == 1 && w.stride_w == 1) return bytes(0);
  return whole_lines(saturating_product(w.batch, w.channels, w.out_h, w.out_w, size_of(desc.inputs[0].dtype)));
}

AttentionPasses attention_passes_of(const ComputeDesc& desc) {
  const Attention a = attention_of(desc);
  // So much of scores at a time, and those of one head of the keys at least: the rest of a layer takes about as much.
  constexpr int64_t most_scores = int64_t{64} << 20;
  AttentionPasses passes;
  passes.rows = saturating_product(a.heads / a.kv_heads, a.queries);
  const int64_t all = saturating_product(a.batch, a.kv_heads);
  const int64_t each = saturating_product(passes.rows, a.keys, int64_t{sizeof(float)});
  for (passes.heads = std::min(all, std::max<int64_t>(most_scores / each, 1)); all % passes.heads != 0;) --passes.heads;
  const DType type = desc.outputs[0].dtype;
  const Bytes scores = whole_lines(saturating_product(passes.heads, each));
  passes.weights_begin = type == DType::f32 ? bytes(0) : scores;
  passes.rest_begin = type == DType::f32 ? scores : scores + whole_lines(saturating_product(passes.heads, each) / 2);
  return passes;
}

std::optional<ReducedAxes> around_axes(const Shape& shape, std::span<const int64_t> axes) {
  const auto rank = static_cast<int64_t>(shape.size());
  std::vector<bool> reduced(shape.size(), false);
  for (const int64_t axis : axes) reduced[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = true;
  ReducedAxes r;
  int part = 0;  // 0: before, 1: within, 2: behind
  for (size_t i = 0; i < shape.size(); ++i) {
    if (reduced[i]) {
      if (part == 2 && shape[i] != 1) return std::nullopt;
      if (shape[i] == 1) continue;
      part = 1;
      r.extent *= shape[i];
    } else if (shape[i] != 1) {
      if (part == 1) part = 2;
      (part == 0 ? r.outer : r.inner) *= shape[i];
    }
  }
  return r;
}

}  // namespace nlsplit::inline kernels
