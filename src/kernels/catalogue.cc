#include "kernels/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/limits.h"
#include "base/sizes.h"
#include "graph/operators/shapes.h"
#include "graph/optimizer.h"
#include "kernels/gpu.h"
#include "kernels/layout.h"
#include "kernels/widened.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int64_t float_bytes = 4;
constexpr size_t most_axes = 8;  // of kernels that walk over arbitrary axes

// ---- refusals: only what choose_kernel cannot rule out by the operator's own type rules

template <Op... accepted>
std::string only(const ComputeDesc& desc) {
  if (((desc.op == accepted) || ...)) return {};
  return fmt::format("it does not compute {}", name_of(desc.op));
}

template <Op... accepted>
std::string only_few_axes(const ComputeDesc& desc) {
  if (std::string why = only<accepted...>(desc); !why.empty()) return why;
  for (const TensorType& type : desc.inputs) {
    if (type.shape.size() > most_axes) return fmt::format("{} has more than {} axes", to_string(type), most_axes);
  }
  return {};
}

// Blocked ones broadcast nothing.
std::string refuse_binary(const ComputeDesc& desc) {
  if (std::string why = only_few_axes<Op::Add, Op::Sub, Op::Mul, Op::Div>(desc); !why.empty()) return why;
  if (desc.outputs[0].block == 0 || desc.inputs[0].shape == desc.inputs[1].shape) return {};
  return "it broadcasts only row-major tensors";
}

// In and out and the epilogue's operands in blocks.
std::string refuse_unless_blocked(const ComputeDesc& desc) {
  if (desc.inputs[0].block == 0 || desc.outputs[0].block == 0) return "it works on blocks of channels";
  return {};
}

template <Op accepted>
std::string only_blocked(const ComputeDesc& desc) {
  if (std::string why = only<accepted>(desc); !why.empty()) return why;
  return refuse_unless_blocked(desc);
}

std::string refuse_global_average_pool_blocked(const ComputeDesc& desc) {
  if (std::string why = only<Op::GlobalAveragePool>(desc); !why.empty()) return why;
  return desc.inputs[0].block > 0 && desc.outputs[0].block == 0 ? ""
                                                                : "it makes a row-major result of a blocked operand";
}

std::string refuse_concat_blocked(const ComputeDesc& desc) {
  if (std::string why = only_blocked<Op::Concat>(desc); !why.empty()) return why;
  const size_t axis = axis_of(attr_int(desc.attrs, "axis"), desc.outputs[0].shape.size()).value();
  for (size_t i = 0; i < desc.own_inputs(); ++i) {
    const TensorType& type = desc.inputs[i];
    if (type.block != desc.outputs[0].block) return "its operands differ in layout";
    if (axis == 1 && i + 1 < desc.own_inputs() && type.shape[1] % type.block != 0)
      return fmt::format("{} does not end with a whole block", to_string(type));
  }
  return {};
}

std::string refuse_reorder(const ComputeDesc& desc) {
  if (std::string why = only<Op::Identity>(desc); !why.empty()) return why;
  return (desc.inputs[0].block == 0) != (desc.outputs[0].block == 0) ? "" : "there is nothing to reorder";
}

std::string refuse_conv_packed(const ComputeDesc& desc) {
  if (std::string why = only<Op::Conv>(desc); !why.empty()) return why;
  return desc.is_weight(1) ? "" : "it packs its weights at load, and these are not constant";
}

std::string refuse_conv_depthwise(const ComputeDesc& desc) {
  if (std::string why = only<Op::Conv>(desc); !why.empty()) return why;
  return desc.inputs[1].shape[1] == 1 ? "" : fmt::format("a filter sees {} channels, not one", desc.inputs[1].shape[1]);
}

std::string refuse_conv_depthwise_blocked(const ComputeDesc& desc) {
  if (std::string why = refuse_conv_packed(desc); !why.empty()) return why;
  if (std::string why = refuse_unless_blocked(desc); !why.empty()) return why;
  if (std::string why = refuse_conv_depthwise(desc); !why.empty()) return why;
  return desc.inputs[0].shape[1] == desc.outputs[0].shape[1] ? "" : "a channel has several filters";
}

std::string refuse_conv_blocked(const ComputeDesc& desc) {
  if (std::string why = refuse_conv_packed(desc); !why.empty()) return why;
  if (std::string why = refuse_unless_blocked(desc); !why.empty()) return why;
  const int64_t groups = attr_int(desc.attrs, "group");
  const int64_t in = desc.inputs[0].shape[1] / groups, out = desc.outputs[0].shape[1] / groups;
  if (groups > 1 && (in % desc.inputs[0].block != 0 || out % desc.outputs[0].block != 0))
    return fmt::format("a group's {} and {} channels are not whole blocks", in, out);
  return {};
}

std::string refuse_conv_stem(const ComputeDesc& desc) {
  if (std::string why = refuse_conv_packed(desc); !why.empty()) return why;
  if (desc.inputs[0].block != 0 || desc.outputs[0].block == 0)
    return "it makes a blocked result of a row-major operand";
  return attr_int(desc.attrs, "group") == 1 ? "" : "the channels are in groups";
}

// On smaller images its transformed weights, four times as many, usually cost more to read than the arithmetic it
// saves.
constexpr int64_t winograd_smallest_side = 8;

std::string refuse_conv_winograd(const ComputeDesc& desc) {
  if (std::string why = refuse_conv_packed(desc); !why.empty()) return why;
  if (std::string why = refuse_unless_blocked(desc); !why.empty()) return why;
  const Window w = window_of(desc);
  if (w.kernel_h != 3 || w.kernel_w != 3) return "the kernel is not 3x3";
  if (w.stride_h != 1 || w.stride_w != 1 || w.dilation_h != 1 || w.dilation_w != 1) return "it is strided or dilated";
  if (w.groups != 1) return "the channels are in groups";
  return {};
}

Standing standing_winograd(const ComputeDesc& desc) {
  const Window w = window_of(desc);
  return std::min(w.out_h, w.out_w) < winograd_smallest_side ? Standing::seldom : Standing::usual;
}

Standing last_resort(const ComputeDesc&) { return Standing::last_resort; }
bool is_window(Op op) {
  return op == Op::Conv || op == Op::ConvTranspose || op == Op::MaxPool || op == Op::AveragePool;
}

// Than f32, scalars aside.
bool has_other_types(const ComputeDesc& desc) {
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    if (desc.inputs[i].dtype != DType::f32 && !largest_scalar(desc, i)) return true;
  }
  return std::ranges::any_of(desc.outputs, [](const TensorType& type) { return type.dtype != DType::f32; });
}

// Of kernels for any type.
std::string refuse_other_steps(const ComputeDesc& desc) {
  const bool plain = desc.epilogue.empty() || desc.outputs[0].dtype == DType::f32;
  return plain ? "" : "the steps behind it are not in f32";
}

bool is_small_float(DType type) { return type == DType::f32 || is_half(type); }

std::string refuse_cast(const ComputeDesc& desc) {
  if (std::string why = only<Op::Cast>(desc); !why.empty()) return why;
  if (!is_small_float(desc.inputs[0].dtype) || !is_small_float(desc.outputs[0].dtype))
    return "it casts between f32, f16 and bf16";
  return desc.epilogue.empty() ? "" : "there are steps behind it";
}

std::string refuse_widened(const ComputeDesc& desc) {
  const DType type = desc.outputs[0].dtype;
  if (!is_half(type)) return fmt::format("{} is no half", to_string(desc.outputs[0]));
  if (std::ranges::any_of(desc.inputs, [&](const TensorType& input) { return input.dtype != type; }))
    return "its operands are not all of one type";
  return kernel_of_widened(desc) != nullptr ? "" : "no kernel computes it in f32";
}

std::string refuse_gather(const ComputeDesc& desc) {
  if (std::string why = only<Op::Gather>(desc); !why.empty()) return why;
  return refuse_other_steps(desc);
}

std::string refuse_slice(const ComputeDesc& desc) {
  if (std::string why = only_few_axes<Op::Slice>(desc); !why.empty()) return why;
  const auto& steps = attr_ints(desc.attrs, "steps");
  if (std::ranges::any_of(steps, [](int64_t step) { return step != 1; })) return "it takes neighbours only";
  return refuse_other_steps(desc);
}

// Lanes past the last channel have no meaning, so where the channels end does not matter.
std::string refuse_slice_blocked(const ComputeDesc& desc) {
  if (std::string why = refuse_slice(desc); !why.empty()) return why;
  if (std::string why = refuse_unless_blocked(desc); !why.empty()) return why;
  const int64_t first = sliced_axes(desc.inputs[0].shape, desc.attrs).value()[1].start;
  return first % desc.inputs[0].block == 0 ? "" : fmt::format("channel {} does not begin a block", first);
}

// Below about this many pixels a vector of channels is filled better than vectors of pixels: 7 × 7 is 3.06 vectors
// of 16.
constexpr int64_t conv_1x1_fewest_pixels = 64;

std::string refuse_conv_1x1(const ComputeDesc& desc) {
  if (std::string why = refuse_conv_packed(desc); !why.empty()) return why;
  const Window window = window_of(desc);
  if (window.taps() != 1) return "the kernel is not 1x1";
  return {};
}

Standing standing_1x1(const ComputeDesc& desc) {
  return window_of(desc).out_pixels() < conv_1x1_fewest_pixels ? Standing::seldom : Standing::usual;
}

std::string refuse_conv_transpose_packed(const ComputeDesc& desc) {
  if (std::string why = only<Op::ConvTranspose>(desc); !why.empty()) return why;
  return desc.is_weight(1) ? "" : "it packs its weights at load, and these are not constant";
}

std::string refuse_gemm_packed(const ComputeDesc& desc) {
  if (std::string why = only<Op::Gemm>(desc); !why.empty()) return why;
  return desc.is_weight(1) ? "" : "it packs its right operand at load, and this one is not constant";
}

std::string refuse_matmul_packed(const ComputeDesc& desc) {
  if (std::string why = only<Op::MatMul>(desc); !why.empty()) return why;
  if (!desc.is_weight(1)) return "it packs its right operand at load, and this one is not constant";
  return desc.inputs[1].shape.size() == 2 ? "" : "the right operand is not a matrix";
}

std::string refuse_unless_recurrent(const ComputeDesc& desc) { return only<Op::LSTM, Op::GRU, Op::RNN>(desc); }

std::string refuse_recurrent_packed(const ComputeDesc& desc) {
  if (std::string why = refuse_unless_recurrent(desc); !why.empty()) return why;
  return desc.is_weight(1) && desc.is_weight(2) ? "" : "it packs both weights at load, and these are not constant";
}

// ---- scratch

Bytes floats(int64_t count) { return bytes(saturating_product(count, float_bytes)); }

Bytes scratch_widened(const ComputeDesc& desc, Isa isa, int workers) { return widened_of(desc, isa, workers).size; }

Bytes scratch_conv_1x1(const ComputeDesc& desc, Isa, int) {
  const Window window = window_of(desc);
  return floats(saturating_sum(round_up(conv_image_floats(window), widest_vector),
                               product_right_floats(window.channels / window.groups, window.out_pixels())));
}

Bytes scratch_conv_direct(const ComputeDesc& desc, Isa, int) { return floats(conv_image_floats(window_of(desc))); }

Bytes scratch_conv_blocked(const ComputeDesc& desc, Isa isa, int) {
  return floats(blocked_image_floats(window_of(desc), isa));
}

Bytes scratch_conv_winograd(const ComputeDesc& desc, Isa isa, int) {
  return floats(winograd_of(window_of(desc), isa).scratch_floats());
}

Bytes scratch_conv(const ComputeDesc& desc, Isa, int) {
  const Window window = window_of(desc);
  return floats(
      saturating_sum(round_up(conv_image_floats(window), widest_vector), conv_packed_floats(window, Isa::v4)));
}

// One plane's image with room for the last vector to run over, and one plane of results with the columns between the
// rows.
Bytes scratch_window(const ComputeDesc& desc, Isa, int) {
  const Window window = window_of(desc);
  return floats(saturating_sum(round_up(saturating_sum(window.image_floats(), widest_vector), widest_vector),
                               round_up(window.flat_pixels(), widest_vector)));
}

Bytes scratch_conv_transpose(const ComputeDesc& desc, Isa, int workers) {
  return floats(saturating_product(workers, conv_transpose_of(desc).worker_floats()));
}

Bytes scratch_product(const ComputeDesc& desc, Isa, int workers) {
  return floats(saturating_product(workers, product_scratch_floats(product_of(desc), false)));
}

Bytes scratch_product_packed(const ComputeDesc& desc, Isa, int workers) {
  return floats(saturating_product(workers, product_scratch_floats(product_of(desc), true)));
}

Bytes scratch_recurrent_packed(const ComputeDesc& desc, Isa, int) {
  return floats(recurrent_of(desc).scratch_floats());
}

// And one direction's weights.
Bytes scratch_recurrent(const ComputeDesc& desc, Isa isa, int) {
  const Recurrent r = recurrent_of(desc);
  return floats(saturating_sum(r.scratch_floats(), r.input_panels(isa), r.state_panels(isa)));
}

// Keys and values as panels, for all workers, and what each has of its own.
Bytes scratch_attention(const ComputeDesc& desc, Isa isa, int workers) {
  const Attention a = attention_of(desc);
  const int64_t panels =
      saturating_product(a.batch, a.kv_heads, saturating_sum(a.key_panels(isa), a.value_panels(isa)));
  return floats(saturating_sum(panels, saturating_product(workers, a.worker_floats())));
}

// ---- packed weights

Bytes packed_conv_1x1(const ComputeDesc& desc, size_t i, Isa) { return i == 1 ? size_of(desc.inputs[1]) : bytes(0); }

Bytes packed_conv_direct(const ComputeDesc& desc, size_t i, Isa isa) {
  return i == 1 ? floats(conv_packed_floats(window_of(desc), isa)) : bytes(0);
}

Bytes packed_conv_winograd(const ComputeDesc& desc, size_t i, Isa isa) {
  return i == 1 ? floats(winograd_of(window_of(desc), isa).packed_floats()) : bytes(0);
}

Bytes packed_conv_depthwise(const ComputeDesc& desc, size_t i, Isa isa) {
  const Window w = window_of(desc);
  return i == 1 ? floats(saturating_product(w.taps(), round_up(w.channels, vector_width(isa)))) : bytes(0);
}

Bytes packed_product(const ComputeDesc& desc, size_t i, Isa isa) {
  const Product p = product_of(desc);
  return i == 1 ? floats(vector_panels(p.k, p.n, isa)) : bytes(0);
}

Bytes packed_conv_transpose(const ComputeDesc& desc, size_t i, Isa) {
  return i == 1 ? size_of(desc.inputs[1]) : bytes(0);
}

Bytes packed_recurrent(const ComputeDesc& desc, size_t i, Isa isa) {
  const Recurrent r = recurrent_of(desc);
  return i == 1   ? floats(saturating_product(r.directions, r.input_panels(isa)))
         : i == 2 ? floats(saturating_product(r.directions, r.state_panels(isa)))
                  : bytes(0);
}

std::string refuse_update(const ComputeDesc& desc) {
  if (!is_update(desc.op)) return fmt::format("it does not compute {}", name_of(desc.op));
  return desc.inputs[0].dtype == DType::f32 ? "" : fmt::format("{} is not f32", to_string(desc.inputs[0]));
}

std::string refuse_scatter(const ComputeDesc& desc) {
  if (std::string why = only<Op::TensorScatter, Op::PagedScatter>(desc); !why.empty()) return why;
  return desc.epilogue.empty() ? "" : "there are steps behind it";
}

// Only what is written is moved.
Work work_of_scatter(const ComputeDesc& desc, ScalarValues values) {
  const CacheUpdate u = cache_update_of(desc);
  const size_t counts = desc.op == Op::PagedScatter ? 4 : 3;
  int64_t rows = u.samples * u.steps;
  if (counts < values.size() && !values[counts].empty()) {
    rows = 0;
    for (const int64_t count : values[counts]) rows += count;
  }
  Work work{flops(0), bytes(rows * u.heads * u.row_bytes), bytes(rows * u.heads * u.row_bytes)};
  for (size_t i = 2; i < desc.inputs.size(); ++i) work.bytes_read += size_of(desc.inputs[i]);
  return work;
}

// So many queries for each head of the keys: for fewer, packing those costs more than it saves (docs/performance.md).
constexpr int64_t attention_few_queries = 16;

Standing standing_cached_attention(const ComputeDesc& desc) {
  const Attention a = attention_of(desc);
  return a.heads / a.kv_heads * a.queries <= attention_few_queries ? Standing::usual : Standing::seldom;
}

// ---- the reference loops, which need neither

// Strides, pads and dilations of a file make the scratch of windows larger than the tensors: of the kernel that takes
// what all others refuse.
bool has_no_room(const ComputeDesc& desc) {
  switch (desc.op) {
    case Op::Conv:
      return scratch_conv(desc, Isa::v2, most_cores) > bytes(most_bytes);
    case Op::ConvTranspose:
      return scratch_conv_transpose(desc, Isa::v2, most_cores) > bytes(most_bytes);
    case Op::MaxPool:
    case Op::AveragePool:
      return scratch_window(desc, Isa::v2, most_cores) > bytes(most_bytes);
    default:
      return false;
  }
}

// What all others refuse, whatever the values.
std::string refuse_reference(const ComputeDesc& desc) {
  for (const auto refuses : {refuse_gather, refuse_slice, refuse_cast, refuse_widened}) {
    if (refuses(desc).empty()) return "other kernels compute it";
  }
  const bool many_axes =
      std::ranges::any_of(desc.inputs, [](const TensorType& type) { return type.shape.size() > most_axes; });
  const bool needed = !has(desc.op, traits::has_kernels) || has_other_types(desc) || many_axes ||
                      (is_window(desc.op) && (desc.inputs[0].shape.size() != 4 || has_no_room(desc)));
  return needed ? "" : "other kernels compute it";
}

// Results in the place of an operand: of kernels that go element by element.
constexpr uint64_t over_first = 0b1;  // a sum takes its first operand before all others
constexpr uint64_t over_either = 0b11;
constexpr uint64_t over_any = ~uint64_t{0};  // all are read before the result is written

constexpr uint8_t image_axes = exact::batch | exact::channels | exact::height | exact::width;

constexpr auto plain = Layouts::row_major;
constexpr auto one = Layouts::one;
constexpr auto own = Layouts::own;

constexpr std::array kernels = {
    KernelInfo{.name = "conv_depthwise_blocked",
               .what = "one channel a filter; vectors of channels",
               .layouts = own,
               .refuses = refuse_conv_depthwise_blocked,
               .packed_bytes = packed_conv_depthwise,
               .exact_axes = image_axes},
    KernelInfo{.name = "conv_winograd",
               .what = "F(4x4, 3x3): tiles of 6x6 transformed, 36 products, transformed back; vectors of channels",
               .layouts = own,
               .refuses = refuse_conv_winograd,
               .workspace = scratch_conv_winograd,
               .packed_bytes = packed_conv_winograd,
               .standing = standing_winograd,
               .exact_axes = image_axes,
               .exact_multiple = Winograd::side},
    KernelInfo{.name = "conv_blocked",
               .what = "vectors of output channels, pixels read in blocks of channels, no im2col",
               .layouts = own,
               .refuses = refuse_conv_blocked,
               .workspace = scratch_conv_blocked,
               .packed_bytes = packed_conv_direct,
               .exact_axes = image_axes},
    KernelInfo{.name = "conv_stem",
               .what = "as conv_blocked, but reads a row-major operand of few channels",
               .layouts = own,
               .refuses = refuse_conv_stem,
               .workspace = scratch_conv_direct,
               .packed_bytes = packed_conv_direct,
               .exact_axes = image_axes},
    KernelInfo{.name = "conv_depthwise",
               .what = "one channel a filter, NCHW; vectors of pixels over the plane's padded image",
               .layouts = plain,
               .refuses = refuse_conv_depthwise,
               .workspace = scratch_window,
               .exact_axes = image_axes},
    KernelInfo{.name = "conv_1x1",
               .what = "NCHW; a product of the weights (packed) and the sample's planes, vectors of pixels",
               .layouts = plain,
               .refuses = refuse_conv_1x1,
               .workspace = scratch_conv_1x1,
               .packed_bytes = packed_conv_1x1,
               .standing = standing_1x1,
               .exact_axes = image_axes},
    KernelInfo{
        .name = "conv_direct",
        .what = "NCHW; vectors of output channels (weights packed), pixels read from the padded image, no im2col",
        .layouts = plain,
        .refuses = refuse_conv_packed,
        .workspace = scratch_conv_direct,
        .packed_bytes = packed_conv_direct,
        .exact_axes = image_axes},
    KernelInfo{.name = "conv",
               .what = "conv_direct with weights that become known only at run time",
               .layouts = plain,
               .refuses = only<Op::Conv>,
               .workspace = scratch_conv,
               .standing = last_resort,
               .exact_axes = image_axes},
    KernelInfo{
        .name = "conv_transpose_packed",
        .what = "NCHW; a product of the weights (packed) and the sample's planes, its rows gathered where they overlap",
        .layouts = plain,
        .refuses = refuse_conv_transpose_packed,
        .workspace = scratch_conv_transpose,
        .packed_bytes = packed_conv_transpose,
        .exact_axes = image_axes},
    KernelInfo{.name = "conv_transpose",
               .what = "conv_transpose_packed with weights that become known only at run time",
               .layouts = plain,
               .refuses = only<Op::ConvTranspose>,
               .workspace = scratch_conv_transpose,
               .standing = last_resort,
               .exact_axes = image_axes},
    KernelInfo{.name = "gemm_packed",
               .what = "matrix product, the right operand packed into vector panels at load",
               .layouts = plain,
               .refuses = refuse_gemm_packed,
               .workspace = scratch_product_packed,
               .packed_bytes = packed_product,
               .exact_axes = exact::batch | exact::channels},
    KernelInfo{.name = "gemm",
               .what = "matrix product of plain operands, packed block by block",
               .layouts = plain,
               .refuses = only<Op::Gemm>,
               .workspace = scratch_product,
               .standing = last_resort,
               .exact_axes = exact::batch | exact::channels},
    KernelInfo{.name = "matmul_packed",
               .what = "product with one matrix for the whole batch, packed into vector panels at load",
               .layouts = plain,
               .refuses = refuse_matmul_packed,
               .workspace = scratch_product_packed,
               .packed_bytes = packed_product,
               .exact_axes = exact::all},
    KernelInfo{.name = "matmul",
               .what = "batched matrix product of plain operands, packed block by block",
               .layouts = plain,
               .refuses = only_few_axes<Op::MatMul>,
               .workspace = scratch_product,
               .standing = last_resort,
               .exact_axes = exact::all},
    KernelInfo{.name = "binary",
               .what = "element-wise on two operands, numpy broadcasting",
               .layouts = one,
               .refuses = refuse_binary,
               .exact_axes = exact::all,
               .in_place = over_either},
    KernelInfo{.name = "sum",
               .what = "element-wise sum of any number of operands, in their order",
               .layouts = one,
               .refuses = only<Op::Sum>,
               .exact_axes = exact::all,
               .in_place = over_first},
    KernelInfo{.name = "unary",
               .what = "element-wise on one operand",
               .layouts = one,
               .refuses = only<Op::Relu, Op::Sigmoid, Op::Tanh, Op::HardSwish, Op::Exp, Op::Sqrt, Op::Neg, Op::Erf,
                               Op::LeakyRelu, Op::HardSigmoid, Op::Clip, Op::Gelu>,
               .exact_axes = exact::all,
               .in_place = over_first},
    KernelInfo{.name = "max_pool_blocked",
               .what = "vectors of channels",
               .layouts = own,
               .refuses = only_blocked<Op::MaxPool>,
               .exact_axes = image_axes},
    KernelInfo{.name = "max_pool",
               .what = "vectors of pixels over the plane's padded image",
               .layouts = plain,
               .refuses = only<Op::MaxPool>,
               .workspace = scratch_window,
               .exact_axes = image_axes},
    KernelInfo{.name = "average_pool_blocked",
               .what = "vectors of channels",
               .layouts = own,
               .refuses = only_blocked<Op::AveragePool>,
               .exact_axes = image_axes},
    KernelInfo{.name = "average_pool",
               .what = "vectors of pixels over the plane's padded image",
               .layouts = plain,
               .refuses = only<Op::AveragePool>,
               .workspace = scratch_window,
               .exact_axes = image_axes},
    KernelInfo{.name = "global_average_pool_blocked",
               .what = "vectors of channels; a row-major result",
               .layouts = own,
               .refuses = refuse_global_average_pool_blocked,
               .exact_axes = exact::batch | exact::channels},
    KernelInfo{.name = "global_average_pool",
               .what = "one row sum a plane",
               .layouts = plain,
               .refuses = only<Op::GlobalAveragePool>,
               .exact_axes = exact::batch | exact::channels},
    KernelInfo{.name = "batch_norm_blocked",
               .what = "one scale and shift a channel, vectors of channels",
               .layouts = own,
               .refuses = only_blocked<Op::BatchNormalization>,
               .exact_axes = image_axes,
               .in_place = over_first},
    KernelInfo{.name = "batch_norm",
               .what = "one scale and shift a plane",
               .layouts = plain,
               .refuses = only<Op::BatchNormalization>,
               .exact_axes = image_axes,
               .in_place = over_first},
    KernelInfo{.name = "layer_norm",
               .what = "mean, then variance, then scale and shift, row by row",
               .layouts = plain,
               .refuses = only<Op::LayerNormalization>,
               .exact_axes = exact::batch | exact::channels | exact::height | exact::tokens},
    KernelInfo{.name = "instance_norm",
               .what = "mean, then variance, then scale and shift, plane by plane",
               .layouts = plain,
               .refuses = only<Op::InstanceNormalization>,
               .exact_axes = exact::batch | exact::channels},
    KernelInfo{.name = "lrn_blocked",
               .what = "sum of squares over neighbouring channels, vectors of channels",
               .layouts = own,
               .refuses = only_blocked<Op::LRN>,
               .exact_axes = exact::batch | exact::height | exact::width},
    KernelInfo{.name = "lrn",
               .what = "sum of squares over neighbouring channels, vectors of pixels",
               .layouts = plain,
               .refuses = only<Op::LRN>,
               .exact_axes = exact::batch | exact::height | exact::width},
    KernelInfo{.name = "softmax",
               .what = "largest, exponentials, sum, along one axis",
               .layouts = plain,
               .refuses = only<Op::Softmax>,
               .exact_axes = exact::all},
    KernelInfo{.name = "cached_attention",
               .what = "few queries at a time; keys and values of a cache read where they lie",
               .layouts = plain,
               .refuses = only<Op::CachedAttention, Op::PagedAttention>,
               .standing = standing_cached_attention,
               .exact_axes = image_axes},
    KernelInfo{.name = "attention",
               .what = "scores of some queries and keys at a time, their exponentials relative to the largest so far",
               .layouts = plain,
               .refuses = only<Op::Attention, Op::CachedAttention>,
               .workspace = scratch_attention,
               .exact_axes = image_axes},
    KernelInfo{.name = "concat_blocked",
               .what = "copies blocks of channels",
               .layouts = own,
               .refuses = refuse_concat_blocked,
               .exact_axes = image_axes},
    KernelInfo{
        .name = "concat", .what = "copies", .layouts = plain, .refuses = only<Op::Concat>, .exact_axes = exact::all},
    KernelInfo{.name = "slice_blocked",
               .what = "copies runs of blocks of channels",
               .layouts = own,
               .refuses = refuse_slice_blocked,
               .exact_axes = image_axes},
    KernelInfo{.name = "slice",
               .what = "copies runs as long as they come, elements of any type",
               .layouts = plain,
               .refuses = refuse_slice,
               .any_type = true,
               .exact_axes = exact::all},
    KernelInfo{.name = "transpose",
               .what = "copies; tiles where the last axis moves",
               .layouts = plain,
               .refuses = only_few_axes<Op::Transpose>,
               .exact_axes = exact::all},
    KernelInfo{.name = "reduce_mean",
               .what = "sums in the order of the reduced axes",
               .layouts = plain,
               .refuses = only_few_axes<Op::ReduceMean>,
               .exact_axes = exact::all},
    KernelInfo{.name = "pad",
               .what = "copies into a filled output",
               .layouts = plain,
               .refuses = only_few_axes<Op::Pad>,
               .exact_axes = exact::all},
    KernelInfo{.name = "gather",
               .what = "copies what an index points at, elements of any type",
               .layouts = plain,
               .refuses = refuse_gather,
               .any_type = true,
               .exact_axes = exact::all},
    KernelInfo{
        .name = "recurrent_packed",
        .what = "inputs' part of the gates for many steps at once, then step by step; both weights packed at load",
        .layouts = plain,
        .refuses = refuse_recurrent_packed,
        .workspace = scratch_recurrent_packed,
        .packed_bytes = packed_recurrent},
    KernelInfo{.name = "recurrent",
               .what = "recurrent_packed with weights that become known only at run time",
               .layouts = plain,
               .refuses = refuse_unless_recurrent,
               .workspace = scratch_recurrent,
               .standing = last_resort},
    KernelInfo{.name = "reorder",
               .what = "between row-major and blocks of channels",
               .layouts = own,
               .refuses = refuse_reorder},
    KernelInfo{.name = "cast",
               .what = "element-wise between f32, f16 and bf16",
               .layouts = plain,
               .refuses = refuse_cast,
               .any_type = true,
               .exact_axes = exact::all},
    KernelInfo{.name = "update",
               .what = "of a weight by an optimizer, element by element, where the weight is",
               .layouts = plain,
               .refuses = refuse_update,
               .any_type = true,
               .in_place = over_any},
    KernelInfo{.name = "scatter_in_place",
               .what = "new positions copied into a cache where it lies, elements of any type",
               .layouts = plain,
               .refuses = refuse_scatter,
               .any_type = true,
               .in_place = over_first,
               .only_in_place = true,
               .work = work_of_scatter},
    KernelInfo{.name = widened_kernel,
               .what = "f16 and bf16: operands widened to f32 for the kernel that computes that, the result rounded",
               .layouts = plain,
               .refuses = refuse_widened,
               .workspace = scratch_widened,
               .halves = true,
               .in_place = over_any},
    KernelInfo{.name = "reference",
               .what = "the reference evaluator's loops: any operator, elements of any type; slow",
               .layouts = plain,
               .refuses = refuse_reference,
               .any_type = true},
};

constexpr std::array levels = {Isa::v2, Isa::v3, Isa::v4, Isa::neon, Isa::cuda, Isa::tf32};
constexpr size_t cpu_levels = 4;  // the first

bool is_reorder(const ComputeDesc& desc) {
  return desc.op == Op::Identity && desc.inputs.size() == 1 && desc.inputs[0].block != desc.outputs[0].block;
}

// What is asked whatever the kernel.
std::string refuse_any(const ComputeDesc& desc, Isa isa) {
  if (is_view(desc.op) && !is_reorder(desc)) return fmt::format("{} is a view, not a computation", name_of(desc.op));
  const auto odd = [&](const TensorType& type) -> std::string {
    if (type.block != 0 && is_gpu(isa))
      return fmt::format("{}: a GPU's kernels work on row-major tensors", to_string(type));
    if (type.block != 0 && type.block != vector_width(isa))
      return fmt::format("{}: level {} has blocks of {}", to_string(type), name_of(isa), vector_width(isa));
    return {};
  };
  for (const TensorType& type : desc.inputs) {
    if (std::string why = odd(type); !why.empty()) return why;
  }
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    if (desc.is_weight(i) && desc.inputs[i].block != 0)
      return fmt::format("{} is constant, but not row-major", to_string(desc.inputs[i]));
  }
  for (const TensorType& type : desc.outputs) {
    if (std::string why = odd(type); !why.empty()) return why;
  }
  if (!desc.epilogue.empty() && desc.outputs.size() != 1) return "an epilogue of several results";
  for (const DescStep& step : desc.epilogue) {
    if (!has(step.op, traits::is_step) && step.op != Op::Add && step.op != Op::Mul)
      return fmt::format("{} is no epilogue step", name_of(step.op));
  }
  return {};
}

// All kernels but those that say so are for f32, and windows for two spatial axes.
std::string refuse_types(const KernelInfo& kernel, const ComputeDesc& desc) {
  if (kernel.any_type) return {};
  const DType result = desc.outputs[0].dtype, wanted = kernel.halves && is_half(result) ? result : DType::f32;
  const auto other = [&](const TensorType& type) {
    return fmt::format("{} is not {}", to_string(type), name_of(wanted));
  };
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    if (desc.inputs[i].dtype != wanted && !largest_scalar(desc, i)) return other(desc.inputs[i]);
  }
  for (const TensorType& type : desc.outputs) {
    if (type.dtype != wanted) return other(type);
  }
  return is_window(desc.op) && desc.inputs[0].shape.size() != 4 ? "it works on two spatial axes" : "";
}

std::string refuse_layouts(const KernelInfo& kernel, const ComputeDesc& desc) {
  const int block = kernel.layouts == Layouts::one ? desc.outputs[0].block : 0;
  const auto differs = [&](const TensorType& type) { return type.block != block; };
  if (kernel.layouts == Layouts::own) {
    // Parameters, one a channel say, are vectors and matrices, or weights: they are row-major in any case.
    return {};
  }
  if (std::ranges::none_of(desc.inputs, differs) && std::ranges::none_of(desc.outputs, differs)) return {};
  return kernel.layouts == Layouts::one ? "its operands differ in layout" : "it works on row-major tensors";
}

// Whatever the number of cores.
std::string refuse_sizes(const KernelInfo& kernel, const ComputeDesc& desc, Isa isa) {
  const auto too_much = [](std::string_view what) {
    return fmt::format("its {} would be larger than any machine's memory", what);
  };
  if (workspace_of(kernel, desc, isa, most_cores) > bytes(most_bytes)) return too_much("workspace");
  if (kernel.packed_bytes == nullptr) return {};
  for (size_t i = 0; i < desc.own_inputs(); ++i) {
    if (kernel.packed_bytes(desc, i, isa) > bytes(most_bytes)) return too_much("packed form of a weight");
  }
  return {};
}

// Row-major types: what the operator's own rules speak of.
std::vector<TensorType> row_major(Types types) {
  std::vector<TensorType> result(types.begin(), types.end());
  for (TensorType& type : result) type.block = 0;
  return result;
}

std::string results_text(Types types) {
  std::string text = types.size() == 1 ? "the result is" : "the results are";
  for (size_t i = 0; i < types.size(); ++i) text += (i == 0 ? " " : ", ") + to_string(types[i]);
  return text;
}

}  // namespace

std::span<const Isa> all_levels() { return std::span(levels).first(cpu_levels); }
std::span<const Isa> gpu_levels() { return std::span(levels).subspan(cpu_levels); }
bool is_gpu(Isa isa) { return isa == Isa::cuda || isa == Isa::tf32; }

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::v2:
      return "v2";
    case Isa::v3:
      return "v3";
    case Isa::v4:
      return "v4";
    case Isa::neon:
      return "neon";
    case Isa::cuda:
      return "cuda";
    case Isa::tf32:
      return "tf32";
  }
  CHECK(false, "no such level");
}

std::string_view full_name_of(Isa isa) {
  switch (isa) {
    case Isa::v2:
      return "x86-64-v2";
    case Isa::v3:
      return "x86-64-v3";
    case Isa::v4:
      return "x86-64-v4";
    case Isa::neon:
      return "armv8-a";
    case Isa::cuda:
      return "cuda-float32";
    case Isa::tf32:
      return "cuda-tf32";
  }
  CHECK(false, "no such level");
}

Result<Isa> parse_isa(std::string_view text) {
  for (Isa isa : levels) {
    if (text == name_of(isa) || text == full_name_of(isa)) return isa;
  }
  std::string known;
  for (Isa isa : all_levels()) known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(isa));
  return invalid_input(fmt::format("unknown instruction level \"{}\": one of {}", text, known));
}

size_t ComputeDesc::operand_count() const {
  return static_cast<size_t>(
      std::ranges::count_if(epilogue, [](const DescStep& step) { return has(step.op, traits::is_step_with_operand); }));
}

std::string signature(const ComputeDesc& desc) {
  std::string text = desc.kernel.empty() ? "" : desc.kernel + " ";
  text += fmt::format("{}(", name_of(desc.op));
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    text += fmt::format("{}{}{}", i == 0 ? "" : ", ", desc.is_weight(i) ? "const " : "", to_string(desc.inputs[i]));
  }
  text += ")";
  if (!desc.attrs.empty()) text += " " + to_string(desc.attrs);
  for (const DescStep& step : desc.epilogue) {
    text += fmt::format(" + {}", name_of(step.op));
    if (!step.attrs.empty()) text += " " + to_string(step.attrs);
  }
  text += " ->";
  for (const TensorType& type : desc.outputs) text += " " + to_string(type);
  return text;
}

std::optional<int64_t> largest_scalar(const ComputeDesc& desc, size_t i) {
  const ScalarInputs* scalars = info(desc.op).scalars;
  if (scalars == nullptr || i >= desc.own_inputs()) return std::nullopt;
  return scalars->largest(Types(desc.inputs).first(desc.own_inputs()), desc.attrs, i);
}

Work work_of(const ComputeDesc& desc, ScalarValues values) {
  const KernelInfo* kernel = info(desc.op).scalars == nullptr ? nullptr : find_kernel(desc.kernel);
  if (kernel != nullptr && kernel->work != nullptr) return kernel->work(desc, values);
  std::vector<EpilogueStep> steps;
  for (const DescStep& step : desc.epilogue) {
    steps.push_back({step.op, has(step.op, traits::is_step_with_operand) ? ValueId(0) : ValueId(), step.attrs, {}});
  }
  return work_of(desc.op, desc.attrs, steps, Types(desc.inputs).first(desc.own_inputs()), desc.outputs, values);
}

ComputeDesc describe(const Graph& graph, const Node& node) {
  ComputeDesc desc;
  desc.op = node.op;
  desc.attrs = node.attrs;
  const auto add_input = [&](ValueId id) {
    const Value& value = graph.value(id);
    const size_t i = desc.inputs.size();
    if (value.kind == ValueKind::weight && i < 64) desc.weights |= uint64_t{1} << i;
    desc.inputs.push_back(value.type);
  };
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i].valid()) {
      CHECK(desc.inputs.size() == i, "only trailing inputs may be left out");
      add_input(node.inputs[i]);
    }
  }
  for (const EpilogueStep& step : node.epilogue) {
    desc.epilogue.push_back({step.op, step.attrs});
    if (has(step.op, traits::is_step_with_operand)) add_input(step.operand);
  }
  for (ValueId output : node.outputs) desc.outputs.push_back(graph.value(output).type);
  return desc;
}

std::span<const KernelInfo> all_kernels() { return kernels; }
std::span<const KernelInfo> kernels_of(Isa isa) { return is_gpu(isa) ? gpu_kernels() : all_kernels(); }

std::string full_id(const KernelInfo& kernel, Isa isa) { return fmt::format("{}_{}", kernel.name, name_of(isa)); }

std::string refusal(const KernelInfo& kernel, const ComputeDesc& desc, Isa isa) {
  if (std::string why = refuse_any(desc, isa); !why.empty()) return why;
  if (std::string why = refuse_types(kernel, desc); !why.empty()) return why;
  if (std::string why = kernel.refuses(desc); !why.empty()) return why;
  if (std::string why = refuse_layouts(kernel, desc); !why.empty()) return why;
  return refuse_sizes(kernel, desc, isa);
}

Bytes workspace_of(const KernelInfo& kernel, const ComputeDesc& desc, Isa isa, int workers) {
  return kernel.workspace == nullptr ? bytes(0) : kernel.workspace(desc, isa, workers);
}

uint8_t exact_axis(size_t axis, size_t rank) {
  constexpr uint8_t image[] = {exact::batch, exact::channels, exact::height, exact::width};
  constexpr uint8_t sequence[] = {exact::batch, exact::tokens, exact::channels};
  if (axis == 0 && rank > 0) return exact::batch;
  if (axis >= rank || rank > std::size(image)) return 0;
  return rank == std::size(sequence) ? sequence[axis] : image[axis];
}

bool is_exact(const KernelInfo& kernel, const ComputeDesc& desc, size_t axis, int64_t begin, int64_t end) {
  if (kernel.name == widened_kernel) return is_exact(*kernel_of_widened(desc), widened(desc), axis, begin, end);
  const Shape& result = desc.outputs[0].shape;
  const uint8_t which = exact_axis(axis, result.size());
  if ((kernel.exact_axes & which) == 0) return false;
  if ((which & (exact::height | exact::width)) == 0) return true;
  return begin % kernel.exact_multiple == 0 && (end % kernel.exact_multiple == 0 || end == result[axis]);
}

uint64_t in_place_inputs(const KernelInfo& kernel, const ComputeDesc& desc) {
  uint64_t inputs = 0;
  if (kernel.in_place == 0 || (desc.outputs.size() != 1 && !is_update(desc.op))) return inputs;
  for (size_t i = 0; i < std::min<size_t>(desc.own_inputs(), 64); ++i) {
    if (std::ranges::find(desc.outputs, desc.inputs[i]) != desc.outputs.end()) inputs |= uint64_t{1} << i;
  }
  return inputs & kernel.in_place;
}

ComputeDesc reorder_desc(const TensorType& from, int block, Isa isa) {
  ComputeDesc desc;
  desc.kernel = fmt::format("reorder_{}", name_of(isa));
  desc.op = Op::Identity;
  desc.inputs = {from};
  desc.outputs = {with_block(from, block)};
  return desc;
}

Result<std::vector<std::string>> candidates(const ComputeDesc& desc, Isa isa) {
  if (std::string why = refuse_any(desc, isa); !why.empty()) {
    return unsupported(fmt::format("no kernel for {}: {}", signature(desc), why));
  }
  std::string said;
  std::vector<std::string> ids[3];  // by standing
  for (const KernelInfo& kernel : kernels_of(isa)) {
    if (kernel.only_in_place) continue;
    const std::string why = refusal(kernel, desc, isa);
    if (why.empty()) {
      const Standing standing = kernel.standing == nullptr ? Standing::usual : kernel.standing(desc);
      ids[static_cast<size_t>(standing)].push_back(full_id(kernel, isa));
    } else if (why != fmt::format("it does not compute {}", name_of(desc.op))) {  // others' have nothing to say
      said += fmt::format("; {}: {}", kernel.name, why);
    }
  }
  std::vector<std::string> result = std::move(ids[0]);
  result.insert(result.end(), ids[1].begin(), ids[1].end());
  if (result.empty()) result = std::move(ids[2]);
  if (result.empty()) return unsupported(fmt::format("no kernel for {}{}", signature(desc), said));
  return result;
}

Result<std::string> choose_kernel(const ComputeDesc& desc, Isa isa, const KernelPreference& prefer) {
  ASSIGN_OR_RETURN(std::vector<std::string> ids, candidates(desc, isa));
  const size_t chosen = prefer && ids.size() > 1 ? prefer(desc, ids) : 0;
  CHECK(chosen < ids.size(), "a preference for no candidate");
  return std::move(ids[chosen]);
}

std::string choice_key(const ComputeDesc& desc, Isa isa) {
  ComputeDesc single = desc;
  single.kernel.clear();
  const int64_t batch = desc.inputs[0].shape.empty() ? 1 : desc.inputs[0].shape[0];
  for (size_t i = 0; i < single.inputs.size(); ++i) {
    Shape& shape = single.inputs[i].shape;
    if (!desc.is_weight(i) && !shape.empty() && shape[0] == batch) shape[0] = 1;
  }
  for (TensorType& type : single.outputs) {
    if (!type.shape.empty() && type.shape[0] == batch) type.shape[0] = 1;
  }
  return fmt::format("{} {}", name_of(isa), signature(single));
}

const KernelInfo* find_kernel(std::string_view full_id) {
  for (Isa isa : levels) {
    const std::string suffix = fmt::format("_{}", name_of(isa));
    if (!full_id.ends_with(suffix)) continue;
    const std::string_view name = full_id.substr(0, full_id.size() - suffix.size());
    for (const KernelInfo& kernel : kernels_of(isa)) {
      if (kernel.name == name) return &kernel;
    }
  }
  return nullptr;
}

Isa isa_of(std::string_view full_id) {
  for (Isa isa : levels) {
    if (full_id.ends_with(fmt::format("_{}", name_of(isa)))) return isa;
  }
  CHECK(false, "a kernel's id ends with its level");
}

Status verify(const ComputeDesc& desc) {
  const KernelInfo* kernel = find_kernel(desc.kernel);
  if (kernel == nullptr) return invalid_input(fmt::format("unknown kernel \"{}\"", desc.kernel));
  const auto refused = [&](std::string why) {
    return invalid_input(fmt::format("kernel {} cannot run {}: {}", desc.kernel, signature(desc), why));
  };
  const Isa isa = isa_of(desc.kernel);
  const Operator& op = info(desc.op);
  for (const std::vector<TensorType>* types : {&desc.inputs, &desc.outputs}) {
    for (const TensorType& type : *types) RETURN_IF_ERROR(check_type(type));
  }
  if (desc.outputs.empty()) return refused("it has no result");
  if (std::string why = refuse_any(desc, isa); !why.empty()) return refused(why);
  if (desc.operand_count() > desc.inputs.size()) return refused("an operand of its epilogue is missing");
  if (desc.inputs.size() < 64 && desc.weights >> desc.inputs.size() != 0) return refused("more weights than inputs");
  const int own = static_cast<int>(desc.own_inputs());
  if (own < op.min_inputs || (op.max_inputs >= 0 && own > op.max_inputs)) {
    return refused(fmt::format("{} takes {} inputs, not {}", op.name, op.min_inputs, own));
  }
  const std::vector<TensorType> inputs = row_major(desc.inputs), outputs = row_major(desc.outputs);
  auto inferred = op.infer(Types(inputs).first(desc.own_inputs()), desc.attrs);
  if (!inferred.ok()) return refused(inferred.error().message);
  if (*inferred != outputs) return refused(results_text(*inferred));
  for (size_t i = desc.own_inputs(); i < desc.inputs.size(); ++i) {
    if (desc.inputs[i] != desc.outputs[0]) {
      return refused(
          fmt::format("the epilogue's operand {} has another type than the result", to_string(desc.inputs[i])));
    }
  }
  for (const DescStep& step : desc.epilogue) {
    if (has(step.op, traits::is_step_with_operand)) continue;
    auto same = info(step.op).infer(Types(outputs).first(1), step.attrs);
    if (!same.ok()) return refused(fmt::format("epilogue {}: {}", name_of(step.op), same.error().message));
  }
  if (std::string why = refusal(*kernel, desc, isa); !why.empty()) return refused(why);
  return ok_status();
}

}  // namespace nlsplit::inline kernels
