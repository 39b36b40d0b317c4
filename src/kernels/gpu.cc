#include "kernels/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/layout.h"

namespace nlsplit::inline kernels {
namespace gpu {
namespace {

constexpr size_t most_strided_axes = 8;  // of kernels that walk over arbitrary axes

// What cuBLAS's manual recommends for Hopper and later ("cublasSetWorkspace": 32 MiB); cuDNN chooses among the
// algorithms that need no more, and always has one that needs none.
constexpr Bytes library_workspace = Bytes::of(int64_t{32} << 20);

Bytes scratch_library(const ComputeDesc&, Isa, int) { return library_workspace; }

std::string refuse_shapes(const ComputeDesc& desc) {
  for (const std::vector<TensorType>* types : {&desc.inputs, &desc.outputs}) {
    for (const TensorType& type : *types) {
      if (element_count(type.shape) == 0) return fmt::format("{} is empty", to_string(type));
      if (type.shape.size() > most_strided_axes)
        return fmt::format("{} has more than {} axes", to_string(type), most_strided_axes);
    }
  }
  const DType type = desc.outputs[0].dtype;
  const bool plain = desc.epilogue.empty() || type == DType::f32 || is_half(type);
  return plain ? "" : "the steps behind it are not in f32, f16 or bf16";
}

template <Op... accepted>
std::string only(const ComputeDesc& desc) {
  if (((desc.op == accepted) || ...)) return refuse_shapes(desc);
  return fmt::format("it does not compute {}", name_of(desc.op));
}

// cuDNN pads both ends alike. That is the same convolution where its last window ends where ours does.
bool pads_alike(int64_t extent, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad, int64_t out) {
  const int64_t room = extent + 2 * pad - ((kernel - 1) * dilation + 1);
  return room >= 0 && 1 + room / stride == out;
}

std::string refuse_conv_cudnn(const ComputeDesc& desc) {
  if (std::string why = only<Op::Conv>(desc); !why.empty()) return why;
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

std::string refuse_matmul(const ComputeDesc& desc) {
  if (std::string why = only<Op::MatMul>(desc); !why.empty()) return why;
  return batched_product_of(desc) ? "" : "its batches lie at no fixed distance";
}

std::string refuse_reduce_mean(const ComputeDesc& desc) {
  if (std::string why = only<Op::ReduceMean>(desc); !why.empty()) return why;
  return around_axes(desc.inputs[0].shape, attr_ints(desc.attrs, "axes")) ? "" : "the axes are not neighbours";
}

std::string refuse_gather(const ComputeDesc& desc) {
  if (std::string why = only<Op::Gather>(desc); !why.empty()) return why;
  const DType type = desc.inputs[1].dtype;
  return type == DType::i64 || type == DType::i32 ? "" : fmt::format("an index is {}", name_of(type));
}

std::string refuse_cast(const ComputeDesc& desc) {
  if (std::string why = only<Op::Cast>(desc); !why.empty()) return why;
  const auto accepts = [](DType type) { return type == DType::f32 || is_half(type); };
  return accepts(desc.inputs[0].dtype) && accepts(desc.outputs[0].dtype) ? "" : "it casts between f32, f16 and bf16";
}

std::string refuse_attention(const ComputeDesc& desc) {
  if (std::string why = only<Op::Attention>(desc); !why.empty()) return why;
  const int64_t size = attention_of(desc).value_size;
  return size <= most_value_size ? "" : fmt::format("a value has {} elements, more than {}", size, most_value_size);
}

std::string refuse_nothing(const ComputeDesc&) { return {}; }
Standing last_resort(const ComputeDesc&) { return Standing::last_resort; }
Standing seldom(const ComputeDesc&) { return Standing::seldom; }

constexpr auto plain = Layouts::row_major;

constexpr std::array kernels = {
    KernelInfo{.name = "conv_cudnn",
               .what = "cuDNN, NCHW, its first deterministic algorithm; bias and epilogue in one pass behind it",
               .layouts = plain,
               .refuses = refuse_conv_cudnn,
               .workspace = scratch_library,
               .halves = true,
               .exact_axes = 0},
    KernelInfo{.name = "conv_loops",
               .what = "one thread an output element, channel by channel, tap by tap",
               .layouts = plain,
               .refuses = only<Op::Conv>,
               .standing = seldom,
               .halves = true},
    KernelInfo{.name = "gemm_cublaslt",
               .what = "cuBLASLt; a row as bias and a Relu behind it in its epilogue",
               .layouts = plain,
               .refuses = only<Op::Gemm>,
               .workspace = scratch_library,
               .halves = true,
               .exact_axes = 0},
    KernelInfo{.name = "matmul_cublaslt",
               .what = "cuBLASLt, batches at a fixed distance; a row as bias and a Relu behind it in its epilogue",
               .layouts = plain,
               .refuses = refuse_matmul,
               .workspace = scratch_library,
               .halves = true,
               .exact_axes = 0},
    KernelInfo{.name = "binary",
               .what = "element-wise on two operands, numpy broadcasting, epilogue in the same pass",
               .layouts = plain,
               .refuses = only<Op::Add, Op::Sub, Op::Mul, Op::Div>,
               .halves = true,
               .in_place = 0b11},
    KernelInfo{.name = "sum",
               .what = "element-wise sum of any number of operands, in their order",
               .layouts = plain,
               .refuses = only<Op::Sum>,
               .halves = true,
               .in_place = 0b1},
    KernelInfo{.name = "unary",
               .what = "element-wise on one operand, epilogue in the same pass",
               .layouts = plain,
               .refuses = only<Op::Relu, Op::Sigmoid, Op::Tanh, Op::HardSwish, Op::Exp, Op::Sqrt, Op::Neg, Op::Erf,
                               Op::LeakyRelu, Op::HardSigmoid, Op::Clip, Op::Gelu>,
               .halves = true,
               .in_place = 0b1},
    KernelInfo{.name = "max_pool",
               .what = "one thread an output element",
               .layouts = plain,
               .refuses = only<Op::MaxPool>,
               .halves = true},
    KernelInfo{.name = "average_pool",
               .what = "one thread an output element",
               .layouts = plain,
               .refuses = only<Op::AveragePool>,
               .halves = true},
    KernelInfo{.name = "global_average_pool",
               .what = "one block a plane",
               .layouts = plain,
               .refuses = only<Op::GlobalAveragePool>,
               .halves = true},
    KernelInfo{.name = "batch_norm",
               .what = "one thread an element",
               .layouts = plain,
               .refuses = only<Op::BatchNormalization>,
               .halves = true},
    KernelInfo{.name = "layer_norm",
               .what = "one block a row: mean, then variance, then scale and shift",
               .layouts = plain,
               .refuses = only<Op::LayerNormalization>,
               .halves = true},
    KernelInfo{.name = "instance_norm",
               .what = "one block a plane: mean, then variance, then scale and shift",
               .layouts = plain,
               .refuses = only<Op::InstanceNormalization>,
               .halves = true},
    KernelInfo{.name = "lrn",
               .what = "one thread an element, sum of squares over neighbouring channels",
               .layouts = plain,
               .refuses = only<Op::LRN>,
               .halves = true},
    KernelInfo{.name = "softmax",
               .what = "one block a row: largest, exponentials, sum, along one axis",
               .layouts = plain,
               .refuses = only<Op::Softmax>,
               .halves = true},
    KernelInfo{.name = "attention",
               .what = "one block a query: scores of some keys at a time, exponentials relative to the largest so far",
               .layouts = plain,
               .refuses = refuse_attention,
               .halves = true},
    KernelInfo{.name = "reduce_mean",
               .what = "one block an output element, over neighbouring axes",
               .layouts = plain,
               .refuses = refuse_reduce_mean,
               .halves = true},
    KernelInfo{.name = "concat",
               .what = "one copy an operand, elements of any type",
               .layouts = plain,
               .refuses = only<Op::Concat>,
               .any_type = true},
    KernelInfo{.name = "transpose",
               .what = "one thread an element of any type",
               .layouts = plain,
               .refuses = only<Op::Transpose>,
               .any_type = true},
    KernelInfo{.name = "slice",
               .what = "one thread an element of any type",
               .layouts = plain,
               .refuses = only<Op::Slice>,
               .any_type = true},
    KernelInfo{.name = "gather",
               .what = "one thread an element of any type",
               .layouts = plain,
               .refuses = refuse_gather,
               .any_type = true},
    KernelInfo{.name = "cast",
               .what = "element-wise between f32, f16 and bf16, epilogue in a pass behind it",
               .layouts = plain,
               .refuses = refuse_cast,
               .any_type = true},
    KernelInfo{.name = host_kernel,
               .what = "the reference loops on the host, operands copied there and results back; slow",
               .layouts = plain,
               .refuses = refuse_nothing,
               .standing = last_resort,
               .any_type = true,
               .in_place = ~uint64_t{0}},  // results come back when all is computed
};

}  // namespace
}  // namespace gpu

std::span<const KernelInfo> gpu_kernels() { return gpu::kernels; }

std::string_view gpu_kernel_name(std::string_view full_id) { return full_id.substr(0, full_id.rfind('_')); }

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
