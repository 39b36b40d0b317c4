// Conv, ConvTranspose and pooling: what their kernels accept and need.
#include "kernels/rows.h"

#include <fmt/format.h>

#include <algorithm>

namespace nlsplit::inline kernels {
namespace {

std::string refuse_conv_packed(const ComputeDesc& desc) {
  return desc.is_weight(1) ? "" : "it packs its weights at load, and these are not constant";
}

std::string refuse_conv_depthwise(const ComputeDesc& desc) {
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

std::string refuse_conv_winograd(const ComputeDesc& desc) {
  if (std::string why = refuse_conv_packed(desc); !why.empty()) return why;
  if (std::string why = refuse_unless_blocked(desc); !why.empty()) return why;
  const Window w = window_of(desc);
  if (w.kernel_h != 3 || w.kernel_w != 3) return "the kernel is not 3x3";
  if (w.stride_h != 1 || w.stride_w != 1 || w.dilation_h != 1 || w.dilation_w != 1) return "it is strided or dilated";
  if (w.groups != 1) return "the channels are in groups";
  return {};
}

// Of the Conv that a row-major one, a ConvTranspose or a ConvWeightGradient is computed as.
std::string refuse_plain_winograd(const ComputeDesc& desc) {
  if (desc.op != Op::ConvWeightGradient && desc.is_weight(1))
    return "its weights are constant, and others pack them at load";
  const Window w = plain_winograd_of(desc).w;
  if (w.kernel_h != 3 || w.kernel_w != 3) return "the kernel is not 3x3";
  if (w.stride_h != 1 || w.stride_w != 1 || w.dilation_h != 1 || w.dilation_w != 1) return "it is strided or dilated";
  if (w.groups != 1) return "the channels are in groups";
  if (w.pad_top < 0 || w.pad_left < 0) return "its pads are wider than the kernel";
  return {};
}

// Where it saves arithmetic, that of the transforms counted: 36 multiply-adds a tile and pair of channels against nine
// a pixel; a quarter more for tiles, and for what the weights' transform takes and its reading and writing.
Standing standing_plain_winograd(const ComputeDesc& desc) {
  constexpr double of_tiles = 1.25, of_weights = 1000;
  constexpr int64_t fewest_channels = 16;
  const PlainWinograd p = plain_winograd_of(desc);
  const double direct = 9.0 * static_cast<double>(p.w.batch * p.w.out_pixels());
  const double ours = of_tiles * 36 * static_cast<double>(p.tiles()) + of_weights;
  return std::min(p.w.channels, p.w.out_channels) >= fewest_channels && ours < direct ? Standing::usual
                                                                                      : Standing::seldom;
}

Bytes scratch_plain_winograd(const ComputeDesc& desc, Isa isa, int) {
  return floats(plain_winograd_of(desc).scratch_floats(isa));
}

// Whoever packs constant weights at load is faster.
Standing standing_of_changing_weights(const ComputeDesc& desc) {
  return desc.is_weight(1) ? Standing::last_resort : Standing::usual;
}

// On smaller images its transformed weights, four times as many, usually cost more to read than the arithmetic it
// saves.
constexpr int64_t winograd_smallest_side = 8;

Standing standing_winograd(const ComputeDesc& desc) {
  const Window w = window_of(desc);
  return std::min(w.out_h, w.out_w) < winograd_smallest_side ? Standing::seldom : Standing::usual;
}

std::string refuse_conv_1x1(const ComputeDesc& desc) {
  if (std::string why = refuse_conv_packed(desc); !why.empty()) return why;
  return window_of(desc).taps() == 1 ? "" : "the kernel is not 1x1";
}

// Below about this many pixels a vector of channels is filled better than vectors of pixels: 7 × 7 is 3.06 vectors
// of 16.
constexpr int64_t conv_1x1_fewest_pixels = 64;

Standing standing_1x1(const ComputeDesc& desc) {
  return window_of(desc).out_pixels() < conv_1x1_fewest_pixels ? Standing::seldom : Standing::usual;
}

std::string refuse_max_pool_blocked(const ComputeDesc& desc) {
  if (std::string why = refuse_unless_blocked(desc); !why.empty()) return why;
  if (desc.outputs[0].dtype == DType::f16) return fmt::format("{} is not f32 or bf16", to_string(desc.outputs[0]));
  return refuse_other_steps(desc);
}

std::string refuse_global_average_pool_blocked(const ComputeDesc& desc) {
  return desc.inputs[0].block > 0 && desc.outputs[0].block == 0 ? ""
                                                                : "it makes a row-major result of a blocked operand";
}

Bytes scratch_conv_1x1(const ComputeDesc& desc, Isa, int) {
  const Window window = window_of(desc);
  return floats(saturating_sum(round_up(conv_image_floats(window), widest_vector),
                               product_right_floats(window.channels / window.groups, window.out_pixels())));
}

Bytes scratch_conv_direct(const ComputeDesc& desc, Isa, int) { return floats(conv_image_floats(window_of(desc))); }

Bytes scratch_conv_blocked(const ComputeDesc& desc, Isa isa, int) {
  return floats(blocked_image_floats(window_of(desc), isa));
}

std::string refuse_conv_bf16(const ComputeDesc& desc) {
  if (desc.outputs[0].dtype != DType::bf16) return fmt::format("{} is not bf16", to_string(desc.outputs[0]));
  if (std::string why = refuse_conv_blocked(desc); !why.empty()) return why;
  return desc.inputs[1].shape[1] % 2 == 0 ? "" : "a filter has an odd number of channels";
}

std::string refuse_conv_stem_bf16(const ComputeDesc& desc) {
  if (desc.outputs[0].dtype != DType::bf16) return fmt::format("{} is not bf16", to_string(desc.outputs[0]));
  return refuse_conv_stem(desc);
}

Bytes scratch_conv_bf16(const ComputeDesc& desc, Isa isa, int) {
  return floats(round_up(blocked_image_floats(window_of(desc), isa) / 2, widest_vector));
}

Bytes scratch_conv_stem_bf16(const ComputeDesc& desc, Isa, int) { return floats(paired_image_floats(window_of(desc))); }

Bytes packed_conv_bf16(const ComputeDesc& desc, size_t i, Isa isa) {
  return i == 1 ? floats(conv_paired_floats(window_of(desc), isa)) : bytes(0);
}

Bytes scratch_conv_winograd(const ComputeDesc& desc, Isa isa, int) {
  return floats(winograd_of(window_of(desc), isa).scratch_floats());
}

Bytes scratch_conv_product(const ComputeDesc& desc, Isa, int workers) {
  const ConvProduct c = conv_product_of(desc);
  return floats(saturating_sum(round_up(c.packed_floats(), widest_vector), round_up(c.images_floats(), widest_vector),
                               round_up(c.result_floats(), widest_vector),
                               saturating_product(workers, c.worker_floats())));
}

// One plane's image with room for the last vector to run over, and one plane of results with the columns between the
// rows.
Bytes scratch_window(const ComputeDesc& desc, Isa, int) {
  const Window window = window_of(desc);
  return floats(saturating_sum(round_up(saturating_sum(window.image_floats(), widest_vector), widest_vector),
                               round_up(window.flat_pixels(), widest_vector)));
}

Bytes scratch_depthwise(const ComputeDesc& desc, Isa isa, int workers) {
  const DepthwiseBlocks blocks = depthwise_blocks_of(desc);
  return blocks.pays() ? floats(saturating_product(workers, blocks.worker_floats()))
                       : scratch_window(desc, isa, workers);
}

Bytes scratch_depthwise_gradient(const ComputeDesc& desc, Isa, int workers) {
  const DepthwiseBlocks blocks = depthwise_blocks_of(desc);
  return floats(
      saturating_product(workers, blocks.pays() ? blocks.worker_floats() : window_gradient_of(desc).worker_floats()));
}

Bytes scratch_conv_transpose(const ComputeDesc& desc, Isa, int workers) {
  return floats(saturating_product(workers, conv_transpose_of(desc).worker_floats()));
}

std::string refuse_conv_transpose_depthwise(const ComputeDesc& desc) {
  if (desc.is_weight(1)) return "its weights are constant, and others pack them at load";
  return desc.inputs[1].shape[1] == 1 ? "" : fmt::format("a group has {} filters, not one", desc.inputs[1].shape[1]);
}

// Of more a product fills its tiles better.
constexpr int64_t most_filters_of_a_channel = 4;

std::string refuse_conv_weight_gradient_depthwise(const ComputeDesc& desc) {
  const int64_t channels = desc.inputs[0].shape[1], filters = desc.inputs[1].shape[1];
  if (desc.outputs[0].shape[1] != 1) return fmt::format("a filter sees {} channels, not one", desc.outputs[0].shape[1]);
  return filters <= most_filters_of_a_channel * channels ? "" : "a channel has many filters";
}

Bytes scratch_conv_weight_gradient(const ComputeDesc& desc, Isa isa, int) {
  const ConvWeightGradient g = conv_weight_gradient_of(desc);
  return floats(saturating_sum(round_up(g.dy_floats(), widest_vector), round_up(g.image_floats(isa), widest_vector),
                               round_up(g.columns_floats(isa), widest_vector),
                               round_up(g.sums_floats(isa), widest_vector)));
}

Bytes scratch_window_gradient(const ComputeDesc& desc, Isa, int workers) {
  return floats(saturating_product(workers, window_gradient_of(desc).worker_floats()));
}

Bytes packed_as_it_is(const ComputeDesc& desc, size_t i, Isa) { return i == 1 ? size_of(desc.inputs[1]) : bytes(0); }

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

}  // namespace

const KernelInfo rows::conv_depthwise_blocked = {.what = "one channel a filter; vectors of channels",
                                                 .ops = computes<Op::Conv>,
                                                 .layouts = Layouts::own,
                                                 .refuses = refuse_conv_depthwise_blocked,
                                                 .packed_bytes = packed_conv_depthwise,
                                                 .exact_axes = image_axes};

const KernelInfo rows::conv_winograd = {
    .what = "F(4x4, 3x3): tiles of 6x6 transformed, 36 products, transformed back; vectors of channels",
    .ops = computes<Op::Conv>,
    .layouts = Layouts::own,
    .refuses = refuse_conv_winograd,
    .workspace = scratch_conv_winograd,
    .packed_bytes = packed_conv_winograd,
    .standing = standing_winograd,
    .exact_axes = image_axes,
    .exact_multiple = Winograd::side};

const KernelInfo rows::conv_blocked = {
    .what = "vectors of output channels, pixels read in blocks of channels, no im2col",
    .ops = computes<Op::Conv>,
    .layouts = Layouts::own,
    .refuses = refuse_conv_blocked,
    .workspace = scratch_conv_blocked,
    .packed_bytes = packed_conv_direct,
    .exact_axes = image_axes};

const KernelInfo rows::conv_stem = {.what = "as conv_blocked, but reads a row-major operand of few channels",
                                    .ops = computes<Op::Conv>,
                                    .layouts = Layouts::own,
                                    .refuses = refuse_conv_stem,
                                    .workspace = scratch_conv_direct,
                                    .packed_bytes = packed_conv_direct,
                                    .exact_axes = image_axes};

const KernelInfo rows::conv_bf16 = {
    .what = "bf16: vectors of output channels, pixels read in blocks of pairs of channels, no im2col",
    .ops = computes<Op::Conv>,
    .layouts = Layouts::own,
    .refuses = refuse_conv_bf16,
    .workspace = scratch_conv_bf16,
    .packed_bytes = packed_conv_bf16,
    .halves = true,
    .exact_axes = image_axes};

const KernelInfo rows::conv_stem_bf16 = {.what = "as conv_bf16, but reads a row-major operand of few channels",
                                         .ops = computes<Op::Conv>,
                                         .layouts = Layouts::own,
                                         .refuses = refuse_conv_stem_bf16,
                                         .workspace = scratch_conv_stem_bf16,
                                         .packed_bytes = packed_conv_bf16,
                                         .halves = true,
                                         .exact_axes = image_axes};

const KernelInfo rows::conv_depthwise = {
    .what = "one channel a filter, NCHW; vectors of channels, or of pixels over a large plane's padded image",
    .ops = computes<Op::Conv>,
    .refuses = refuse_conv_depthwise,
    .workspace = scratch_depthwise,
    .exact_axes = image_axes};

const KernelInfo rows::conv_1x1 = {
    .what = "NCHW; a product of the weights (packed) and the sample's planes, vectors of pixels",
    .ops = computes<Op::Conv>,
    .refuses = refuse_conv_1x1,
    .workspace = scratch_conv_1x1,
    .packed_bytes = packed_as_it_is,
    .standing = standing_1x1,
    .exact_axes = image_axes};

const KernelInfo rows::conv_direct = {
    .what = "NCHW; vectors of output channels (weights packed), pixels read from the padded image, no im2col",
    .ops = computes<Op::Conv>,
    .refuses = refuse_conv_packed,
    .workspace = scratch_conv_direct,
    .packed_bytes = packed_conv_direct,
    .exact_axes = image_axes};

const KernelInfo rows::conv = {.what = "NCHW; a product of weights known at run time and the pixels they slide over",
                               .ops = computes<Op::Conv>,
                               .workspace = scratch_conv_product,
                               .standing = standing_of_changing_weights,
                               .exact_axes = image_axes};

const KernelInfo rows::conv_winograd_plain = {
    .what = "F(4x4, 3x3) of row-major tensors, weights transformed at run time; through blocks of channels",
    .ops = computes<Op::Conv>,
    .refuses = refuse_plain_winograd,
    .workspace = scratch_plain_winograd,
    .standing = standing_plain_winograd,
    .exact_axes = image_axes,
    .exact_multiple = Winograd::side};

const KernelInfo rows::conv_transpose_winograd = {.what = "conv_winograd_plain by weights turned over",
                                                  .ops = computes<Op::ConvTranspose>,
                                                  .refuses = refuse_plain_winograd,
                                                  .workspace = scratch_plain_winograd,
                                                  .standing = standing_plain_winograd,
                                                  .exact_axes = exact::batch | exact::channels};

const KernelInfo rows::conv_weight_gradient_winograd = {
    .what = "F(3x3, 4x4): tiles of 6x6 and 4x4 transformed, 36 products over all tiles in their order",
    .ops = computes<Op::ConvWeightGradient>,
    .refuses = refuse_plain_winograd,
    .workspace = scratch_plain_winograd,
    .standing = standing_plain_winograd,
    .exact_axes = exact::batch | exact::channels};

const KernelInfo rows::conv_transpose_packed = {
    .what = "NCHW; a product of the weights (packed) and the sample's planes, its rows gathered where they overlap",
    .ops = computes<Op::ConvTranspose>,
    .refuses = refuse_conv_packed,
    .workspace = scratch_conv_transpose,
    .packed_bytes = packed_as_it_is,
    .exact_axes = image_axes};

const KernelInfo rows::conv_transpose = {
    .what = "NCHW; products of weights known at run time and the pixels they slide over, phase by phase of the strides",
    .ops = computes<Op::ConvTranspose>,
    .workspace = scratch_conv_product,
    .standing = standing_of_changing_weights,
    .exact_axes = image_axes};

const KernelInfo rows::conv_transpose_depthwise = {
    .what = "one filter a group, NCHW; vectors of channels, or of pixels, gathered from large planes, laid out flat",
    .ops = computes<Op::ConvTranspose>,
    .refuses = refuse_conv_transpose_depthwise,
    .workspace = scratch_depthwise_gradient,
    .exact_axes = image_axes};

const KernelInfo rows::conv_weight_gradient_depthwise = {
    .what = "one channel a filter, NCHW; for each tap a sum over samples, each over its pixels",
    .ops = computes<Op::ConvWeightGradient>,
    .refuses = refuse_conv_weight_gradient_depthwise,
    .workspace = scratch_depthwise_gradient};

const KernelInfo rows::conv_weight_gradient = {
    .what = "NCHW; products of dy and what its windows see, over all pixels of all samples in their order",
    .ops = computes<Op::ConvWeightGradient>,
    .workspace = scratch_conv_weight_gradient,
    .exact_axes = exact::batch | exact::channels};

const KernelInfo rows::max_pool_gradient = {
    .what = "the tap of the first of the largest of each window; vectors of pixels, gathered from flat planes",
    .ops = computes<Op::MaxPoolGradient>,
    .workspace = scratch_window_gradient,
    .exact_axes = exact::batch | exact::channels};

const KernelInfo rows::average_pool_gradient = {.what = "shares of dy; vectors of pixels, gathered from flat planes",
                                                .ops = computes<Op::AveragePoolGradient>,
                                                .workspace = scratch_window_gradient,
                                                .exact_axes = exact::batch | exact::channels};

const KernelInfo rows::max_pool_blocked = {.what = "vectors of channels",
                                           .ops = computes<Op::MaxPool>,
                                           .layouts = Layouts::own,
                                           .refuses = refuse_max_pool_blocked,
                                           .halves = true,
                                           .exact_axes = image_axes};

const KernelInfo rows::max_pool = {.what = "vectors of pixels over the plane's padded image",
                                   .ops = computes<Op::MaxPool>,
                                   .workspace = scratch_window,
                                   .exact_axes = image_axes};

const KernelInfo rows::average_pool_blocked = {.what = "vectors of channels",
                                               .ops = computes<Op::AveragePool>,
                                               .layouts = Layouts::own,
                                               .refuses = refuse_unless_blocked,
                                               .exact_axes = image_axes};

const KernelInfo rows::average_pool = {.what = "vectors of pixels over the plane's padded image",
                                       .ops = computes<Op::AveragePool>,
                                       .workspace = scratch_window,
                                       .exact_axes = image_axes};

const KernelInfo rows::global_average_pool_blocked = {.what = "vectors of channels; a row-major result",
                                                      .ops = computes<Op::GlobalAveragePool>,
                                                      .layouts = Layouts::own,
                                                      .refuses = refuse_global_average_pool_blocked,
                                                      .exact_axes = exact::batch | exact::channels};

const KernelInfo rows::global_average_pool = {.what = "one row sum a plane",
                                              .ops = computes<Op::GlobalAveragePool>,
                                              .exact_axes = exact::batch | exact::channels};

}  // namespace nlsplit::inline kernels
