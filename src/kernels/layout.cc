#include "kernels/layout.h"

#include <algorithm>
#include <span>

#include "graph/operators/shapes.h"

namespace nlsplit::inline kernels {
namespace {

// One number for the height and one for the width. A window over one axis has only the width's; `of_height` is the
// other's where a plane is one row.
struct TwoAxes {
  int64_t h, w;
};
TwoAxes two_axes(std::span<const int64_t> axes, int64_t of_height) {
  return axes.size() == 1 ? TwoAxes{of_height, axes[0]} : TwoAxes{axes[0], axes[1]};
}

}  // namespace

ScalarPanels scalar_panels(int64_t m, int64_t most_rows) {
  ScalarPanels panels;
  if (m == 0) return panels;
  panels.count = (m + most_rows - 1) / most_rows;
  panels.rows = m / panels.count;
  panels.longer = m % panels.count;
  return panels;
}

int64_t Window::tap_offset(int64_t i, int64_t j) const {
  const int64_t y = i * dilation_h;
  const int64_t x = j * dilation_w;
  const int64_t phase = (y % stride_h) * stride_w + x % stride_w;
  return (phase * image_h + y / stride_h) * image_w + x / stride_w;
}

Window window_of(const ComputeDesc& desc) { return window_of(desc.attrs, desc.inputs[0].shape, desc.outputs[0].shape); }

Window window_of(const Attrs& attrs, const Shape& in, const Shape& out) {
  const size_t axes = in.size() - 2;
  const std::span<const int64_t> pads = attr_ints(attrs, "pads");
  const TwoAxes from = two_axes(std::span(in).subspan(2), 1), to = two_axes(std::span(out).subspan(2), 1),
                kernel = two_axes(attr_ints(attrs, "kernel_shape"), 1),
                strides = two_axes(attr_ints(attrs, "strides"), 1), before = two_axes(pads.first(axes), 0),
                behind = two_axes(pads.subspan(axes), 0);
  Window r;
  r.batch = in[0], r.channels = in[1], r.h = from.h, r.w = from.w;
  r.out_channels = out[1], r.out_h = to.h, r.out_w = to.w;
  r.kernel_h = kernel.h, r.kernel_w = kernel.w, r.stride_h = strides.h, r.stride_w = strides.w;
  r.pad_top = before.h, r.pad_left = before.w, r.pad_bottom = behind.h, r.pad_right = behind.w;
  if (find_attr(attrs, "dilations") != nullptr) {
    const TwoAxes dilations = two_axes(attr_ints(attrs, "dilations"), 1);
    r.dilation_h = dilations.h, r.dilation_w = dilations.w;
  }
  if (find_attr(attrs, "group") != nullptr) r.groups = attr_int(attrs, "group");
  // What the window touches, rounded up to whole phases. With ceil_mode that may be more than the padded plane.
  const int64_t need_h = (r.out_h - 1) * r.stride_h + (r.kernel_h - 1) * r.dilation_h + 1;
  const int64_t need_w = (r.out_w - 1) * r.stride_w + (r.kernel_w - 1) * r.dilation_w + 1;
  r.in_place =
      r.stride_h == 1 && r.stride_w == 1 && r.pad_top == 0 && r.pad_left == 0 && need_h <= r.h && need_w <= r.w;
  r.image_h = r.in_place ? r.h : round_up(need_h, r.stride_h) / r.stride_h;
  r.image_w = r.in_place ? r.w : round_up(need_w, r.stride_w) / r.stride_w;
  return r;
}

int64_t ConvTranspose::phase_floats() const {
  const int64_t reach = (w - 1) * stride_w + (kernel_w - 1) * dilation_w + 1;
  const int64_t needed = std::max(reach, pad_left + out_w);
  return round_up((needed + stride_w - 1) / stride_w, widest_vector);
}

int64_t ConvTranspose::columns_floats() const {
  return round_up(saturating_product(std::min(filters_at_once, filters), taps(), pixels()), widest_vector);
}

int64_t ConvTranspose::worker_floats() const {
  const int64_t rows = saturating_product(std::min(filters_at_once, filters), taps());
  return saturating_sum(round_up(product_left_floats(rows, channels), widest_vector),
                        product_right_floats(channels, pixels()), columns_floats(),
                        saturating_product(stride_w, phase_floats()));
}

ConvTranspose conv_transpose_of(const ComputeDesc& desc) {
  const Window w = window_of(desc);  // extents and attributes: no such window slides over the operand
  ConvTranspose r;
  r.batch = w.batch, r.groups = w.groups;
  r.channels = w.channels / r.groups, r.filters = w.out_channels / r.groups;
  r.h = w.h, r.w = w.w, r.out_h = w.out_h, r.out_w = w.out_w;
  r.kernel_h = w.kernel_h, r.kernel_w = w.kernel_w, r.stride_h = w.stride_h, r.stride_w = w.stride_w;
  r.dilation_h = w.dilation_h, r.dilation_w = w.dilation_w, r.pad_top = w.pad_top, r.pad_left = w.pad_left;
  // Columns that a second-level cache holds, but rows enough that packing the planes again for each is cheap.
  constexpr int64_t near_floats = 128 * 1024, fewest_rows = 96;
  const int64_t fit = near_floats / std::max<int64_t>(saturating_product(r.taps(), r.pixels()), 1);
  r.filters_at_once = std::min(r.filters, std::max(fit, (fewest_rows + r.taps() - 1) / r.taps()));
  return r;
}

int64_t ConvProduct::worker_floats() const {
  return saturating_sum(product_right_floats(saturating_product(channels, taps), columns()), widest_vector);
}

ConvProduct conv_product_of(const ComputeDesc& desc) {
  ConvProduct r;
  if (desc.op == Op::Conv) {
    const Window& w = r.image = window_of(desc);
    r.batch = w.batch, r.groups = w.groups, r.channels = w.channels / w.groups, r.filters = w.out_channels / w.groups;
    r.taps = w.taps(), r.out_h = w.out_h, r.out_w = w.out_w;
    r.most_pixels = w.out_pixels();
    r.direct = true;
  } else {
    const ConvTranspose t = conv_transpose_of(desc);
    r.batch = t.batch, r.groups = t.groups, r.channels = t.channels, r.filters = t.filters;
    r.taps = t.taps(), r.out_h = t.out_h, r.out_w = t.out_w;
    r.most_pixels =
        saturating_product((t.out_h + t.stride_h - 1) / t.stride_h, (t.out_w + t.stride_w - 1) / t.stride_w);
    r.direct = t.stride_h == 1 && t.stride_w == 1;
    Window& w = r.image;
    w.batch = t.batch, w.channels = t.groups * t.channels, w.h = t.h, w.w = t.w, w.kernel_h = w.kernel_w = 1;
    w.pad_top = (t.kernel_h - 1) * t.dilation_h / t.stride_h;
    w.pad_left = (t.kernel_w - 1) * t.dilation_w / t.stride_w;
    w.image_h = saturating_sum(w.pad_top, (t.out_h - 1 + t.pad_top) / t.stride_h, 1);
    w.image_w = saturating_sum(w.pad_left, (t.out_w - 1 + t.pad_left) / t.stride_w, 1);
    w.in_place = w.pad_top == 0 && w.pad_left == 0 && w.image_h <= w.h && w.image_w <= w.w;
    if (w.in_place) w.image_h = w.h, w.image_w = w.w;
  }
  constexpr int64_t enough_pixels = 512;
  r.samples =
      std::clamp<int64_t>(enough_pixels / std::max<int64_t>(r.most_pixels, 1), 1, std::max<int64_t>(r.batch, 1));
  r.direct = r.direct && r.samples == 1;
  return r;
}

int64_t ConvWeightGradient::steps_at_once() const {
  constexpr int64_t most_steps = 512;  // of so many an operand's panel stays in a second-level cache
  return std::min(most_steps, std::max<int64_t>(saturating_product(samples, w.out_pixels()), 1));
}
int64_t ConvWeightGradient::image_floats(Isa isa) const {
  if (by_channel) return saturating_product(samples, image_h, image_w, round_up(channels, vector_width(isa)));
  return w.in_place ? 0 : saturating_product(samples, channels, w.image_stride());
}
int64_t ConvWeightGradient::columns_floats(Isa isa) const {
  return by_channel ? 0 : saturating_product(steps_at_once(), round_up(columns(), vector_width(isa)));
}
int64_t ConvWeightGradient::sums_floats(Isa isa) const {
  return by_channel ? saturating_product(filters, w.taps(), round_up(channels, vector_width(isa))) : 0;
}

ConvWeightGradient conv_weight_gradient_of(const ComputeDesc& desc) {
  ConvWeightGradient r;
  Window& w = r.w = window_of(desc.attrs, desc.inputs[0].shape, desc.inputs[1].shape);
  r.channels = w.channels / w.groups, r.filters = w.out_channels / w.groups;
  r.samples = samples_at_once(w);
  constexpr int64_t enough_channels = 16;  // else a vector would be mostly empty
  r.by_channel = w.taps() > 1 && r.channels >= enough_channels;
  r.image_h =
      saturating_sum(saturating_product(w.out_h - 1, w.stride_h), saturating_product(w.kernel_h - 1, w.dilation_h), 1);
  r.image_w =
      saturating_sum(saturating_product(w.out_w - 1, w.stride_w), saturating_product(w.kernel_w - 1, w.dilation_w), 1);
  return r;
}

int64_t WindowGradient::margin() const {
  const int64_t rows = saturating_product(w.kernel_h - 1, w.dilation_h) / w.stride_h,
                columns = saturating_product(w.kernel_w - 1, w.dilation_w) / w.stride_w;
  return round_up(saturating_sum(saturating_product(rows, w.image_w), columns), widest_vector);
}

int64_t WindowGradient::worker_floats() const {
  return saturating_sum(round_up(image_floats(), widest_vector), round_up(phase_floats(), widest_vector),
                        round_up(saturating_product(flats, flat_floats()), widest_vector),
                        round_up(more_floats, widest_vector));
}

WindowGradient window_gradient_of(const ComputeDesc& desc) {
  WindowGradient r;
  const Shape &first = desc.inputs[0].shape, &result = desc.outputs[0].shape;
  switch (desc.op) {
    case Op::ConvWeightGradient:
      r.w = window_of(desc.attrs, first, desc.inputs[1].shape);
      r.needs_image = true;
      r.more_floats = saturating_product(r.w.taps(), widest_vector);
      break;
    case Op::MaxPoolGradient:
      r.w = window_of(desc.attrs, result, first);
      r.needs_image = true;
      r.more_floats = r.flat_floats();
      break;
    default:  // AveragePoolGradient, and a ConvTranspose whose groups have one filter
      r.w = window_of(desc.attrs, result, first);
      if (desc.op == Op::ConvTranspose) r.flats = r.w.out_channels / r.w.channels;
  }
  return r;
}

DepthwiseBlocks depthwise_blocks_of(const ComputeDesc& desc) {
  DepthwiseBlocks r;
  if (desc.op == Op::ConvTranspose) {
    const ConvProduct c = conv_product_of(desc);
    r.batch = c.batch, r.channels = c.groups, r.taps = c.taps;
    r.h = c.image.h, r.w = c.image.w, r.pad_top = c.image.pad_top, r.pad_left = c.image.pad_left;
    r.image_h = c.image.image_h, r.image_w = c.image.image_w;
    r.pixels = saturating_product(c.out_h, c.out_w);
    r.takes = c.channels == 1;
    return r;
  }
  const Window w = window_of(desc.attrs, desc.inputs[0].shape,
                             desc.op == Op::ConvWeightGradient ? desc.inputs[1].shape : desc.outputs[0].shape);
  r.batch = w.batch, r.channels = w.channels, r.taps = w.taps();
  r.h = w.h, r.w = w.w, r.pad_top = w.pad_top, r.pad_left = w.pad_left;
  const auto extent = [](int64_t out, int64_t stride, int64_t kernel, int64_t dilation) {
    return saturating_sum(saturating_product(out - 1, stride), saturating_product(kernel - 1, dilation), 1);
  };
  r.image_h = extent(w.out_h, w.stride_h, w.kernel_h, w.dilation_h);
  r.image_w = extent(w.out_w, w.stride_w, w.kernel_w, w.dilation_w);
  r.pixels = w.out_pixels();
  r.takes = desc.op == Op::ConvWeightGradient || w.out_channels == w.channels;
  return r;
}

Product product_of(const ComputeDesc& desc) {
  const Shape& a = desc.inputs[0].shape;
  const Shape& b = desc.inputs[1].shape;
  Product r;
  if (desc.op == Op::Gemm) {
    const bool trans_a = attr_int(desc.attrs, "transA") != 0;
    r.m = a[trans_a ? 1 : 0];
    r.k = a[trans_a ? 0 : 1];
    r.n = b[attr_int(desc.attrs, "transB") != 0 ? 0 : 1];
    return r;
  }
  r.k = a.back();
  r.n = b.size() == 1 ? 1 : b.back();
  if (b.size() <= 2) {
    for (size_t axis = 0; axis + 1 < a.size(); ++axis) r.m *= a[axis];
    return r;
  }
  r.m = a.size() == 1 ? 1 : a[a.size() - 2];
  const Shape& out = desc.outputs[0].shape;
  const size_t matrix_axes = a.size() == 1 ? 1 : 2;
  for (size_t axis = 0; axis + matrix_axes < out.size(); ++axis) r.batch *= out[axis];
  return r;
}

Linear linear_of(const ComputeDesc& desc) {
  const Shape& x = desc.inputs[0].shape;
  Linear r;
  for (size_t axis = 0; axis + 1 < x.size(); ++axis) r.m *= x[axis];
  r.n = desc.inputs[1].shape[0];
  r.k = desc.inputs[1].shape[1];
  return r;
}

ExpertsSizes experts_of(const ComputeDesc& desc) {
  const Shape &chosen = desc.inputs[1].shape, &gate = desc.inputs[3].shape;
  ExpertsSizes r;
  for (size_t axis = 0; axis + 1 < chosen.size(); ++axis) r.rows *= chosen[axis];
  r.used = chosen.back();
  r.experts = gate[0], r.width = gate[1], r.hidden = gate[2];
  return r;
}

ComputeDesc linear_of_experts(const ComputeDesc& desc, size_t weights, int64_t rows) {
  const TensorType& all = desc.inputs[weights];
  ComputeDesc linear;
  linear.op = Op::Linear;
  linear.kernel = {is_scaled(all.dtype)       ? KernelName::linear_blocks
                   : all.dtype == DType::bf16 ? KernelName::linear_bf16
                                              : KernelName::linear,
                   desc.kernel.level};
  linear.weights = 0b10;
  linear.inputs = {{DType::f32, {rows, all.shape[2]}}, {all.dtype, {all.shape[1], all.shape[2]}}};
  linear.outputs = {{DType::f32, {rows, all.shape[1]}}};
  return linear;
}

Recurrent recurrent_of(const ComputeDesc& desc) {
  const Shape &x = desc.inputs[0].shape, &w = desc.inputs[1].shape;
  Recurrent r;
  r.batch = x[0], r.steps = x[1], r.in = x[2];
  r.hidden = desc.inputs[2].shape[2], r.directions = w[0];
  r.gates = w[1] / r.hidden;
  r.resets_first = desc.op == Op::GRU && attr_int(desc.attrs, "linear_before_reset") == 0;
  // As many rows as a block of the product has: more would not make it faster, only the scratch larger.
  r.steps_at_once = std::clamp<int64_t>(m_block / r.batch, 1, r.steps);
  return r;
}

int64_t Recurrent::gathered_floats() const {
  return batch == 1 ? 0 : round_up(saturating_product(rows(), in), widest_vector);
}
int64_t Recurrent::left_floats() const {
  return round_up(std::max(saturating_product(rows(), in), saturating_product(batch, hidden)), widest_vector);
}
int64_t Recurrent::bias_floats() const { return round_up(gates * hidden, widest_vector); }
int64_t Recurrent::projected_floats() const {
  return round_up(saturating_product(gates, rows(), hidden), widest_vector);
}
int64_t Recurrent::gates_floats() const { return round_up(saturating_product(gates, batch, hidden), widest_vector); }
int64_t Recurrent::reset_floats() const {
  return resets_first ? round_up(saturating_product(batch, hidden), widest_vector) : 0;
}
int64_t Recurrent::scratch_floats() const {
  return saturating_sum(gathered_floats(), left_floats(), bias_floats(), projected_floats(), gates_floats(),
                        reset_floats());
}

int64_t pair_panels_at_once(int64_t pairs, Isa isa) {
  constexpr int64_t near_floats = 128 * 1024, fewest = 5, most = 18;
  return std::clamp(near_floats / std::max<int64_t>(tile_rows(isa) * pair_k_step(pairs), 1), fewest, most);
}

int64_t pair_scratch_floats(const Product& p, Isa isa) {
  const int64_t pairs = pairs_of(p.k), step = pair_k_step(pairs), panels = pair_panels_at_once(pairs, isa);
  const int64_t rows = tile_rows(isa), panel = 2 * vector_width(isa);
  const int64_t columns = pairs > step ? (p.n + panel - 1) / panel : 1;
  return round_up(saturating_sum((2 * panels + 1) * rows * step, 2 * pair_unfolded_at_once * panel,
                                 saturating_product(rows * panel, panels, columns)),
                  widest_vector);
}

int64_t pair_panel_floats(const Product& p, Isa isa) {
  return round_up(vector_panels(pairs_of(p.k), p.n, isa), widest_vector);
}

int64_t product_k_step(int64_t m) {
  constexpr int64_t few_rows = 14;
  static_assert(few_rows >= tile_rows(Isa::v3) && few_rows >= tile_rows(Isa::v4) && few_rows >= tile_rows(Isa::neon));
  return m > few_rows ? k_block : m_block / std::max<int64_t>(m, 1) * k_block;
}

int64_t product_left_floats(int64_t m, int64_t k) { return std::min(m, m_block) * std::min(k, product_k_step(m)); }

int64_t product_right_floats(int64_t k, int64_t n) {
  return std::min(k, k_block) * round_up(std::min(n, n_block), widest_vector);
}

int64_t product_scratch_floats(const Product& p, bool right_packed) {
  // One row is read in place.
  const int64_t left = p.m == 1 ? 0 : round_up(product_left_floats(p.m, p.k), widest_vector);
  return left + (right_packed ? 0 : product_right_floats(p.k, p.n));
}

int64_t conv_image_floats(const Window& window) {
  return window.in_place ? 0 : saturating_product(window.channels, window.image_stride());
}

int64_t samples_at_once(const Window& window) {
  constexpr int64_t enough_pixels = 512;
  return std::clamp<int64_t>(enough_pixels / std::max<int64_t>(window.out_pixels(), 1), 1,
                             std::max<int64_t>(window.batch, 1));
}

int64_t blocked_image_floats(const Window& window, Isa isa) {
  if (window.in_place) return 0;
  return saturating_product(samples_at_once(window), blocks_of(window.channels, isa), window.image_floats(),
                            vector_width(isa));
}

int64_t conv_paired_floats(const Window& window, Isa isa) {
  const int64_t k = saturating_product(pairs_of(window.channels / window.groups), window.taps());
  return saturating_product(window.groups, vector_panels(k, window.out_channels / window.groups, isa));
}

int64_t paired_image_floats(const Window& window) {
  return round_up(
      saturating_product(window.stride_h, window.stride_w, window.image_h, window.image_w, pairs_of(window.channels)),
      widest_vector);
}

Winograd winograd_of(const Window& window, Isa isa) {
  Winograd r;
  r.width = vector_width(isa);
  r.tiles_h = (window.out_h + 3) / 4;
  r.tiles_w = (window.out_w + 3) / 4;
  r.tiles = window.batch * r.tiles_h * r.tiles_w;
  r.in_blocks = blocks_of(window.channels, isa);
  r.out_blocks = blocks_of(window.out_channels, isa);
  r.panel_floats = vector_panels(window.channels, window.out_channels, isa);
  // Both operands and results of a chunk in a second-level cache; but where the weights do not fit into that, enough
  // tiles that reading them again is cheap.
  constexpr int64_t near_floats = 128 * 1024, far_tiles = 56;
  const int64_t each = saturating_product(Winograd::points, r.in_blocks + r.out_blocks, r.width);
  int64_t chunk = std::max<int64_t>(near_floats / each / 14 * 14, 14);
  if (r.packed_floats() > near_floats) chunk = std::max(chunk, far_tiles);
  r.chunk = std::min(chunk, std::max<int64_t>(r.tiles, 1));
  return r;
}

int64_t PlainWinograd::tiles() const {
  return saturating_product(std::max<int64_t>(w.batch, 1), (w.out_h + Winograd::side - 1) / Winograd::side,
                            (w.out_w + Winograd::side - 1) / Winograd::side);
}

Winograd PlainWinograd::winograd(int64_t batch, Isa isa) const {
  Window some = w;
  some.batch = batch;
  Winograd r = winograd_of(some, isa);
  constexpr int64_t gradient_tiles = 256;  // of so many, an operand's two blocks stay in a second-level cache
  if (is_gradient) r.chunk = std::min(gradient_tiles, std::max<int64_t>(r.tiles, 1));
  return r;
}

int64_t PlainWinograd::weights_floats(Isa isa) const {
  if (!is_gradient) return winograd_of(w, isa).packed_floats();
  return saturating_product(Winograd::points, round_up(w.out_channels, vector_width(isa)),
                            round_up(w.channels, vector_width(isa)));
}

int64_t PlainWinograd::in_floats(Isa isa) const {
  return saturating_product(samples, round_up(w.channels, vector_width(isa)), w.h, w.w);
}

int64_t PlainWinograd::out_floats(Isa isa) const {
  return saturating_product(samples, round_up(w.out_channels, vector_width(isa)), w.out_h, w.out_w);
}

int64_t PlainWinograd::scratch_floats(Isa isa) const {
  return saturating_sum(round_up(weights_floats(isa), widest_vector), round_up(in_floats(isa), widest_vector),
                        round_up(out_floats(isa), widest_vector), winograd(samples, isa).scratch_floats());
}

PlainWinograd plain_winograd_of(const ComputeDesc& desc) {
  PlainWinograd r;
  if (desc.op == Op::ConvTranspose) {  // the window that slides over dy has the other pads
    const Shape &in = desc.inputs[0].shape, &out = desc.outputs[0].shape;
    r.w = window_of(desc.attrs, in, out);
    r.w.pad_top = 2 - r.w.pad_top, r.w.pad_left = 2 - r.w.pad_left;
  } else {
    r.is_gradient = desc.op == Op::ConvWeightGradient;
    r.w = window_of(desc.attrs, desc.inputs[0].shape, r.is_gradient ? desc.inputs[1].shape : desc.outputs[0].shape);
  }
  constexpr int64_t enough_tiles = 256;
  const int64_t each = std::max<int64_t>(r.tiles() / std::max<int64_t>(r.w.batch, 1), 1);
  r.samples = std::clamp<int64_t>((enough_tiles + each - 1) / each, 1, std::max<int64_t>(r.w.batch, 1));
  return r;
}

int64_t conv_packed_floats(const Window& window, Isa isa) {
  const int64_t k = window.channels / window.groups * window.taps();
  return saturating_product(window.groups, vector_panels(k, window.out_channels / window.groups, isa));
}

Shape stored_shape(const TensorType& type) {
  Shape stored = type.shape;
  if (type.block == 0) return stored;
  stored[1] = (stored[1] + type.block - 1) / type.block;
  stored.push_back(type.block);
  return stored;
}

Attention attention_of(const ComputeDesc& desc) {
  const Shape &q = desc.inputs[0].shape, &k = desc.inputs[1].shape, &v = desc.inputs[2].shape;
  if (desc.op != Op::PagedAttention) return {q[0], q[1], k[1], q[2], k[2], q[3], v[3]};
  return {q[0], q[1], k[1], q[2], desc.inputs[4].shape[1] * k[2], q[3], v[3], k[0], k[2]};
}

CacheUpdate cache_update_of(const ComputeDesc& desc) {
  const Shape &cache = desc.inputs[0].shape, &update = desc.inputs[1].shape;
  const int64_t element = size_of(desc.inputs[0].dtype);
  if (desc.op == Op::PagedScatter) {
    const int64_t extent = desc.inputs[3].shape[1] * cache[2];
    return {update[0], update[1], extent, update[2], update[3] * element, false, cache[0], cache[2]};
  }
  const size_t axis = axis_of(attr_int(desc.attrs, "axis"), cache.size()).value();
  CacheUpdate u{cache[0], 1, cache[axis], update[axis], element, attr_string(desc.attrs, "mode") == "circular"};
  for (size_t i = 1; i < cache.size(); ++i) (i < axis ? u.heads : u.row_bytes) *= i == axis ? 1 : cache[i];
  return u;
}

}  // namespace nlsplit::inline kernels
