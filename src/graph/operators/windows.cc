// Operators on windows: convolutions and pools.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "graph/operators/rules.h"

namespace nlsplit::inline graph {
namespace {

// Of x[batch, channels, …].
size_t spatial_axes(Types inputs) {
  return inputs.empty() || inputs[0].shape.size() < 2 ? 0 : inputs[0].shape.size() - 2;
}
UsualValue ones(Types inputs) { return Shape(spatial_axes(inputs), 1); }
UsualValue no_pads(Types inputs) { return Shape(2 * spatial_axes(inputs), 0); }
UsualValue no_more(Types inputs) { return Shape(spatial_axes(inputs), 0); }
UsualValue window_of_weights(Types inputs) {
  if (inputs.size() < 2 || inputs[1].shape.size() < 2) return std::nullopt;
  return Shape(inputs[1].shape.begin() + 2, inputs[1].shape.end());
}

constexpr AttrSpec conv_attrs[] = {integers("dilations", ones), integer("group", 1),
                                   integers("kernel_shape", window_of_weights), integers("pads", no_pads),
                                   integers("strides", ones)};
constexpr AttrSpec conv_transpose_attrs[] = {
    integers("dilations", ones),         integer("group", 1),       integers("kernel_shape", window_of_weights),
    integers("output_padding", no_more), integers("pads", no_pads), integers("strides", ones)};
constexpr AttrSpec max_pool_attrs[] = {integer("ceil_mode", 0), integers("dilations", ones), integers("kernel_shape"),
                                       integers("pads", no_pads), integers("strides", ones)};
constexpr AttrSpec average_pool_attrs[] = {integer("ceil_mode", 0), integer("count_include_pad", 0),
                                           integers("kernel_shape"), integers("pads", no_pads),
                                           integers("strides", ones)};
constexpr AttrSpec lp_pool_attrs[] = {integer("ceil_mode", 0), integers("kernel_shape"), integer("p", 2),
                                      integers("pads", no_pads), integers("strides", ones)};
constexpr AttrSpec pool_indices_attrs[] = {integer("ceil_mode", 0),     integers("dilations", ones),
                                           integers("kernel_shape"),    integers("pads", no_pads),
                                           integer("storage_order", 0), integers("strides", ones)};

// ---- types

struct Window {
  std::vector<int64_t> kernel, strides, pads, dilations;
};

Result<Window> window_of(const Attrs& attrs, size_t spatial) {
  Window window;
  window.kernel = attr_ints(attrs, "kernel_shape");
  window.strides = attr_ints(attrs, "strides");
  window.pads = attr_ints(attrs, "pads");
  window.dilations.assign(spatial, 1);
  if (const AttrValue* dilations = find_attr(attrs, "dilations")) {
    const auto* list = std::get_if<std::vector<int64_t>>(dilations);
    if (list == nullptr) return invalid_input("dilations are not a list");
    window.dilations = *list;
  }
  if (window.kernel.size() != spatial || window.strides.size() != spatial || window.dilations.size() != spatial ||
      window.pads.size() != 2 * spatial) {
    return invalid_input(fmt::format("kernel_shape, strides, dilations or pads do not have {} spatial axes", spatial));
  }
  const auto within = [](const std::vector<int64_t>& list, int64_t low) {
    return std::all_of(list.begin(), list.end(), [&](int64_t v) { return v >= low && v <= (int64_t{1} << 20); });
  };
  if (!within(window.kernel, 1) || !within(window.strides, 1) || !within(window.dilations, 1)) {
    return invalid_input("kernel_shape, strides and dilations must be positive");
  }
  if (!within(window.pads, 0)) return invalid_input("pads must not be negative");
  return window;
}

Result<int64_t> window_positions(int64_t extent, const Window& window, size_t axis, size_t spatial, bool ceil_mode) {
  const int64_t reach = (window.kernel[axis] - 1) * window.dilations[axis] + 1;
  const int64_t padded = extent + window.pads[axis] + window.pads[axis + spatial];
  if (reach > padded)
    return invalid_input(fmt::format("a kernel that reaches {} exceeds the padded input of {}", reach, padded));
  const int64_t steps = padded - reach, stride = window.strides[axis];
  int64_t positions = (ceil_mode ? (steps + stride - 1) / stride : steps / stride) + 1;
  // A window that would begin in the padding behind the input is left out (ONNX and PyTorch).
  if (ceil_mode && (positions - 1) * stride >= extent + window.pads[axis]) --positions;
  return positions;
}

// [x, w, …] with the spatial axes the window has; returns how many.
Result<size_t> check_windows(Types inputs) {
  const Shape &x = inputs[0].shape, &w = inputs[1].shape;
  if (x.size() < 3 || x.size() != w.size())
    return invalid_input(fmt::format("an input {} and weights {}", to_string(inputs[0]), to_string(inputs[1])));
  return x.size() - 2;
}

Status check_kernel(const Shape& w, const Window& window) {
  for (size_t axis = 0; axis < window.kernel.size(); ++axis) {
    if (w[axis + 2] != window.kernel[axis])
      return invalid_input(fmt::format("kernel_shape is {}, the weight's {}", fmt::join(window.kernel, "x"),
                                       fmt::join(w.begin() + 2, w.end(), "x")));
  }
  return ok_status();
}

// Floats, or the integers of ConvInteger.
Status floats_or_i32(Types inputs) {
  return same_type(
      inputs, [](DType type) { return (is_real(type) && type != DType::f64) || type == DType::i32; },
      "f32, f16, bf16 and i32");
}

Inferred infer_conv(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(floats_or_i32(inputs));
  const Shape &x = inputs[0].shape, &w = inputs[1].shape;
  ASSIGN_OR_RETURN(const size_t spatial, check_windows(inputs));
  ASSIGN_OR_RETURN(const Window window, window_of(attrs, spatial));
  const int64_t group = attr_int(attrs, "group");
  if (group < 1 || w[0] < 1 || w[0] % group != 0)
    return invalid_input(fmt::format("{} output channels in {} groups", w[0], group));
  if (x[1] % group != 0 || x[1] / group != w[1]) {
    return invalid_input(
        fmt::format("the input has {} channels, the weight is for {} in {} groups", x[1], w[1], group));
  }
  RETURN_IF_ERROR(check_kernel(w, window));
  if (inputs.size() > 2 && inputs[2].shape != Shape{w[0]})
    return invalid_input(fmt::format("the bias is not [{}]", w[0]));
  Shape out{x[0], w[0]};
  for (size_t axis = 0; axis < spatial; ++axis) {
    ASSIGN_OR_RETURN(out.emplace_back(), window_positions(x[axis + 2], window, axis, spatial, false));
  }
  return one_result(inputs[0].dtype, std::move(out));
}

Inferred infer_conv_transpose(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(floats(inputs));
  const Shape &x = inputs[0].shape, &w = inputs[1].shape;
  ASSIGN_OR_RETURN(const size_t spatial, check_windows(inputs));
  ASSIGN_OR_RETURN(const Window window, window_of(attrs, spatial));
  const int64_t group = attr_int(attrs, "group");
  if (group < 1 || x[1] < 1 || x[1] % group != 0)
    return invalid_input(fmt::format("{} channels in {} groups", x[1], group));
  if (x[1] != w[0]) return invalid_input(fmt::format("the input has {} channels, the weight is for {}", x[1], w[0]));
  if (w[1] < 1 || w[1] > largest_extent / group) return invalid_input(fmt::format("{} filters a group", w[1]));
  RETURN_IF_ERROR(check_kernel(w, window));
  if (inputs.size() > 2 && inputs[2].shape != Shape{w[1] * group})
    return invalid_input(fmt::format("the bias is not [{}]", w[1] * group));
  const std::vector<int64_t>& more = attr_ints(attrs, "output_padding");
  if (more.size() != spatial)
    return invalid_input(fmt::format("output_padding does not have {} spatial axes", spatial));
  Shape out{x[0], w[1] * group};
  for (size_t axis = 0; axis < spatial; ++axis) {
    // Beyond that the rows would lie past every window's reach, and another input extent would give the same output.
    if (more[axis] < 0 || more[axis] >= std::max(window.strides[axis], window.dilations[axis]))
      return invalid_input(
          fmt::format("an output_padding of {} with a stride of {}", more[axis], window.strides[axis]));
    const int64_t reach = (window.kernel[axis] - 1) * window.dilations[axis] + 1;
    if (x[axis + 2] < 1 || x[axis + 2] > largest_extent / window.strides[axis])
      return invalid_input(fmt::format("an input extent of {}", x[axis + 2]));
    const int64_t whole = (x[axis + 2] - 1) * window.strides[axis] + reach + more[axis];
    const int64_t pads = window.pads[axis] + window.pads[axis + spatial];
    if (whole <= pads) return invalid_input(fmt::format("pads of {} leave nothing of an extent of {}", pads, whole));
    out.push_back(whole - pads);
  }
  return one_result(inputs[0].dtype, std::move(out));
}

Inferred infer_pooled(Types inputs, const Attrs& attrs) {
  const Shape& x = inputs[0].shape;
  if (x.size() < 3) return invalid_input("a pool needs channels and spatial axes");
  const size_t spatial = x.size() - 2;
  ASSIGN_OR_RETURN(const Window window, window_of(attrs, spatial));
  const bool ceil_mode = attr_int(attrs, "ceil_mode") != 0;
  Shape out{x[0], x[1]};
  for (size_t axis = 0; axis < spatial; ++axis) {
    const int64_t reach = (window.kernel[axis] - 1) * window.dilations[axis] + 1;
    if (window.pads[axis] >= reach || window.pads[axis + spatial] >= reach)
      return invalid_input("a pool's padding is as wide as its kernel");
    ASSIGN_OR_RETURN(out.emplace_back(), window_positions(x[axis + 2], window, axis, spatial, ceil_mode));
  }
  return one_result(inputs[0].dtype, std::move(out));
}

Inferred infer_pool(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(floats(inputs));
  return infer_pooled(inputs, attrs);
}

Inferred infer_max_pool(Types inputs, const Attrs& attrs) {
  const DType type = inputs[0].dtype;
  if (type != DType::i8 && type != DType::u8) RETURN_IF_ERROR(floats(inputs));
  return infer_pooled(inputs, attrs);
}

Inferred infer_global_pool(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(floats(inputs));
  Shape out = inputs[0].shape;
  if (out.size() < 3) return invalid_input("a global pool needs spatial axes");
  std::fill(out.begin() + 2, out.end(), 1);
  return one_result(inputs[0].dtype, std::move(out));
}

Inferred infer_max_pool_indices(Types inputs, const Attrs& attrs) {
  const DType type = inputs[0].dtype;
  if (type != DType::i8 && type != DType::u8) RETURN_IF_ERROR(reals(inputs));
  ASSIGN_OR_RETURN(std::vector<TensorType> pooled, infer_pooled(inputs, attrs));
  pooled[0].dtype = DType::i64;
  return pooled;
}

Inferred infer_max_unpool(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(reals(inputs.first(1)));
  const Shape& x = inputs[0].shape;
  if (inputs[1] != TensorType{DType::i64, x}) return invalid_input(fmt::format("indices {}", to_string(inputs[1])));
  Shape out = attr_ints(attrs, "shape");
  if (x.size() < 3 || out.size() != x.size()) return invalid_input("the result has another number of axes");
  for (size_t axis = 0; axis < 2; ++axis) {
    if (out[axis] != 0 && out[axis] != x[axis]) return invalid_input("it changes the batch or the channels");
    out[axis] = x[axis];
  }
  return one_result(inputs[0].dtype, std::move(out));
}

// ---- work: a multiplication and an addition are two operations

// Weights are [outputs, inputs of a group, spatial extents…].
Flops flops_conv(Types in, Types out, const Attrs&) {
  return flops(2 * taps_of(in[1]) * count(out[0]));  // the bias replaces the first addition's zero
}

// [channels, outputs of a group, spatial extents…]: every input meets so many weights
Flops flops_conv_transpose(Types in, Types, const Attrs&) { return flops(2 * taps_of(in[1]) * count(in[0])); }

Flops flops_pool(Types, Types out, const Attrs& attrs) {
  double taps = 1;
  for (const int64_t extent : attr_ints(attrs, "kernel_shape")) taps *= static_cast<double>(extent);
  return flops(taps * count(out[0]));
}

// ---- pieces (pieces.h)

int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

// One spatial axis of a window.
struct AxisWindow {
  size_t index = 0;  // among the spatial axes
  size_t spatial = 0;
  int64_t kernel = 1, stride = 1, dilation = 1, pad_begin = 0, pad_end = 0;
  int64_t reach() const { return (kernel - 1) * dilation + 1; }
};

AxisWindow window_at(const Attrs& attrs, size_t axis) {
  AxisWindow w;
  w.index = axis - 2;
  w.spatial = attr_ints(attrs, "kernel_shape").size();
  w.kernel = attr_ints(attrs, "kernel_shape")[w.index];
  w.stride = attr_ints(attrs, "strides")[w.index];
  if (find_attr(attrs, "dilations") != nullptr) w.dilation = attr_ints(attrs, "dilations")[w.index];
  w.pad_begin = attr_ints(attrs, "pads")[w.index];
  w.pad_end = attr_ints(attrs, "pads")[w.index + w.spatial];
  return w;
}

void set_pads(Attrs& attrs, const AxisWindow& w, int64_t begin, int64_t end) {
  std::vector<int64_t> pads = attr_ints(attrs, "pads");
  pads[w.index] = begin;
  pads[w.index + w.spatial] = end;
  set_attr(attrs, "pads", std::move(pads));
}

// Rows [o, p) of the result begin at row o * stride - pad of the input and end behind the last tap of window p - 1.
// What lies in front of the input or behind it is padding, and stays padding: only there are pads left, so an average
// that does not count padding, and a maximum, see exactly what they saw. Behind the input no more than the pads there
// were: a window of ceil_mode that runs past them still does, and the same number of windows fit as did.
bool window_piece(const PieceQuery& query, NodePiece& piece) {
  const AxisWindow w = window_at(query.node.attrs, query.axis);
  const int64_t extent = query.inputs[0].shape[query.axis];
  const int64_t first = query.begin * w.stride - w.pad_begin;
  const int64_t last = (query.end - 1) * w.stride - w.pad_begin + w.reach();
  const int64_t begin = std::max<int64_t>(first, 0), end = std::min(last, extent);
  if (begin >= end) return false;  // nothing but padding
  piece.inputs[0] = {static_cast<int>(query.axis), begin, end};
  set_pads(piece.attrs, w, begin - first, std::clamp<int64_t>(last - extent, 0, w.pad_end));
  return true;
}

// Input row i is added to rows i * stride - pad + tap * dilation of the result. Where strides are wider than windows a
// piece may begin with rows that nothing reaches: then it takes the input row in front of them.
bool transposed_window_piece(const PieceQuery& query, NodePiece& piece) {
  const AxisWindow w = window_at(query.node.attrs, query.axis);
  const int64_t extent = query.inputs[0].shape[query.axis];
  const int64_t lowest = std::min(ceil_div(query.begin + w.pad_begin - (w.reach() - 1), w.stride),
                                  floor_div(query.begin + w.pad_begin, w.stride));
  const int64_t begin = std::max<int64_t>(lowest, 0);
  const int64_t end = std::min(extent, floor_div(query.end - 1 + w.pad_begin, w.stride) + 1);
  if (begin >= end) return false;
  const int64_t pad = query.begin + w.pad_begin - begin * w.stride;
  const int64_t behind = (end - begin - 1) * w.stride + w.reach() - pad - (query.end - query.begin);
  if (pad < 0) return false;
  piece.inputs[0] = {static_cast<int>(query.axis), begin, end};
  set_pads(piece.attrs, w, pad, std::max<int64_t>(behind, 0));
  std::vector<int64_t> more = attr_ints(piece.attrs, "output_padding");
  more[w.index] = std::max<int64_t>(-behind, 0);
  set_attr(piece.attrs, "output_padding", std::move(more));
  return true;
}

// Filters of some groups need the channels of these; filters of one group are a convolution of one group.
bool conv_channels(const PieceQuery& q, NodePiece& piece) {
  const int64_t group = attr_int(q.node.attrs, "group");
  const int64_t filters = q.out[1] / group, channels = q.inputs[1].shape[1];  // of a group
  const int64_t first = q.begin / filters, last = (q.end - 1) / filters;
  const bool of_whole_groups = q.begin % filters == 0 && q.end % filters == 0;
  if (!of_whole_groups && first != last) return false;
  if (group > 1) {
    piece.inputs[0] = along(1, first * channels, (last + 1) * channels);
    set_attr(piece.attrs, "group", last - first + 1);
  }
  for (size_t i = 1; i < q.inputs.size(); ++i) piece.inputs[i] = along(0, q.begin, q.end);
  return true;
}

bool transposed_conv_channels(const PieceQuery& q, NodePiece& piece) {
  const int64_t group = attr_int(q.node.attrs, "group"), filters = q.inputs[1].shape[1];  // of a group
  if (group == 1) {
    piece.inputs[1] = along(1, q.begin, q.end);
  } else {
    if (q.begin % filters != 0 || q.end % filters != 0) return false;
    const int64_t channels = q.inputs[0].shape[1] / group;
    piece.inputs[0] = piece.inputs[1] = along(0, q.begin / filters * channels, q.end / filters * channels);
    piece.inputs[0].axis = 1;
    set_attr(piece.attrs, "group", (q.end - q.begin) / filters);
  }
  if (q.inputs.size() > 2) piece.inputs[2] = along(0, q.begin, q.end);
  return true;
}

bool pool_piece(const PieceQuery& q, NodePiece& piece) {
  return q.axis < 2 ? first_alike(q, piece) : window_piece(q, piece);
}

bool conv_piece(const PieceQuery& q, NodePiece& piece) {
  return q.axis == 0 ? first_alike(q, piece) : q.axis == 1 ? conv_channels(q, piece) : window_piece(q, piece);
}
bool transposed_conv_piece(const PieceQuery& q, NodePiece& piece) {
  return q.axis == 0   ? first_alike(q, piece)
         : q.axis == 1 ? transposed_conv_channels(q, piece)
                       : transposed_window_piece(q, piece);
}
bool global_pool_piece(const PieceQuery& q, NodePiece& piece) { return q.axis < 2 && first_alike(q, piece); }

// ---- gradients

// y[o] = Σ w[tap] x[o + tap]: every pair (output, tap) is one multiply-add of y, one of dx (dx[o + tap] += w[tap]
// dy[o]) and one of dw (dw[tap] += x[o + tap] dy[o]). Chetlur et al., "cuDNN: efficient primitives for deep learning",
// 2014.

Attrs only(const Attrs& attrs, std::initializer_list<std::string_view> names) {
  Attrs some;
  for (const std::string_view name : names) {
    if (const AttrValue* value = find_attr(attrs, name)) set_attr(some, std::string(name), *value);
  }
  return some;
}

// The transposed convolution of dy by the same weights; what the last windows left over is its output_padding.
void back_conv(Backward& b) {
  if (b.wants(0)) {
    const Shape &x = b.shape(b.x(0)), &dy = b.shape(b.dy());
    const Shape &kernel = attr_ints(b.attrs(), "kernel_shape"), &strides = attr_ints(b.attrs(), "strides"),
                &dilations = attr_ints(b.attrs(), "dilations"), &pads = attr_ints(b.attrs(), "pads");
    Shape left;
    for (size_t i = 0; i < kernel.size(); ++i) {
      const int64_t reach = (kernel[i] - 1) * dilations[i] + 1;
      left.push_back(x[i + 2] + pads[i] + pads[i + kernel.size()] - (dy[i + 2] - 1) * strides[i] - reach);
    }
    Attrs attrs = b.attrs();
    set_attr(attrs, "output_padding", std::move(left));
    b.give(0, b.add(Op::ConvTranspose, {b.dy(), b.x(1)}, std::move(attrs)));
  }
  if (b.wants(1)) b.give(1, b.add(Op::ConvWeightGradient, {b.x(0), b.dy()}, b.attrs()));
  if (b.wants(2)) b.give(2, b.summed(b.dy(), all_but_channels(b.shape(b.dy()))));
}
// A convolution of dy by the same weights; for the weights x and dy change sides.
void back_conv_transpose(Backward& b) {
  const Attrs attrs = only(b.attrs(), {"dilations", "group", "kernel_shape", "pads", "strides"});
  if (b.wants(0)) b.give(0, b.add(Op::Conv, {b.dy(), b.x(1)}, attrs));
  if (b.wants(1)) b.give(1, b.add(Op::ConvWeightGradient, {b.dy(), b.x(0)}, attrs));
  if (b.wants(2)) b.give(2, b.summed(b.dy(), all_but_channels(b.shape(b.dy()))));
}
void back_max_pool(Backward& b) { b.give(0, b.add(Op::MaxPoolGradient, {b.dy(), b.x(0)}, b.attrs())); }
void back_average_pool(Backward& b) {
  Attrs attrs = b.attrs();
  const Shape& x = b.shape(b.x(0));
  set_attr(attrs, "extents", Shape(x.begin() + 2, x.end()));
  b.give(0, b.add(Op::AveragePoolGradient, {b.dy()}, std::move(attrs)));
}
void back_global_average_pool(Backward& b) {
  Shape axes(b.shape(b.x(0)).size() - 2);
  std::iota(axes.begin(), axes.end(), 2);
  spread(b, b.scaled(b.dy(), share(b)), axes);
}
// y^p = Σ |x|^p over the window: dx = sign x |x|^(p - 1) times the sum of dy / y^(p - 1) over all windows that x is in.
// That sum is the transposed convolution with ones, of which the padding is cut off.
void back_lp_pool(Backward& b) {
  const Shape x = b.shape(b.x(0)), y = b.shape(b.y()), &kernel = attr_ints(b.attrs(), "kernel_shape"),
              &strides = attr_ints(b.attrs(), "strides"), &begin = attr_ints(b.attrs(), "pads");
  const auto p = static_cast<double>(attr_int(b.attrs(), "p"));
  const size_t spatial = kernel.size();
  const auto raised = [&](ValueId value) { return p == 2 ? value : b.add(Op::Pow, {value, b.constant({}, p - 1)}); };
  const ValueId dy = p == 1 ? b.dy() : quotient_or_zero(b, b.dy(), raised(b.y()));
  Shape ones_shape{x[1], 1}, pads(2 * x.size(), 0);
  ones_shape.insert(ones_shape.end(), kernel.begin(), kernel.end());
  for (size_t i = 0; i < spatial; ++i) {
    pads[i + 2] = -begin[i];
    pads[i + 2 + x.size()] = x[i + 2] + begin[i] - ((y[i + 2] - 1) * strides[i] + kernel[i]);
  }
  const ValueId sums = b.add(Op::ConvTranspose, {dy, b.constant(ones_shape, 1)},
                             {{"dilations", Shape(spatial, 1)},
                              {"group", x[1]},
                              {"kernel_shape", kernel},
                              {"output_padding", Shape(spatial, 0)},
                              {"pads", Shape(2 * spatial, 0)},
                              {"strides", strides}});
  ValueId slope = b.add(Op::Sign, {b.x(0)});
  if (p != 1) slope = b.add(Op::Mul, {slope, raised(b.add(Op::Abs, {b.x(0)}))});
  b.give(0, b.add(Op::Mul, {slope, b.add(Op::Pad, {sums}, {{"pads", std::move(pads)}, {"value", 0.0}})}));
}
// Each value goes to a place of the whole result.
void back_max_unpool(Backward& b) {
  b.give(0, b.add(Op::Gather, {b.reshaped(b.dy(), {element_count(b.shape(b.dy()))}), b.x(1)}, {{"axis", int64_t{0}}}));
}

}  // namespace

// clang-format off
//  operator           inputs  attributes            types                   work                  batch        split                  gradient                  traits
ROW(Conv,              2, 3,   conv_attrs,           infer_conv,             flops_conv,           keeps_first, conv_piece,            back_conv,                takes_steps | has_kernels)
ROW(ConvTranspose,     2, 3,   conv_transpose_attrs, infer_conv_transpose,   flops_conv_transpose, keeps_first, transposed_conv_piece, back_conv_transpose,      takes_steps | has_kernels)
ROW(MaxPool,           1, 1,   max_pool_attrs,       infer_max_pool,         flops_pool,           keeps_first, pool_piece,            back_max_pool,            has_kernels)
ROW(AveragePool,       1, 1,   average_pool_attrs,   infer_pool,             flops_pool,           keeps_first, pool_piece,            back_average_pool,        has_kernels)
ROW(GlobalAveragePool, 1, 1,   no_attrs,             infer_global_pool,      flops_reduce,         keeps_first, global_pool_piece,     back_global_average_pool, has_kernels | plain_in_onnx)
ROW(LpPool,            1, 1,   lp_pool_attrs,        infer_pool,             flops_pool,           keeps_first, pool_piece,            back_lp_pool,             none)
ROW(MaxPoolIndices,    1, 1,   pool_indices_attrs,   infer_max_pool_indices, flops_pool,           keeps_none,  no_split,              flat,                     none)
ROW(MaxUnpool,         2, 2,   shape_attrs,          infer_max_unpool,       no_flops,             keeps_none,  no_split,              back_max_unpool,          none)
// clang-format on

}  // namespace nlsplit::inline graph
