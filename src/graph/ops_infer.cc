#include "graph/ops_infer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace nlsplit {
namespace {

Inferred one(DType dtype, Shape shape) { return one_result(dtype, std::move(shape)); }

Status floats(Types inputs) {
  return same_type(
      inputs, [](DType type) { return is_real(type) && type != DType::f64; }, "f32, f16 and bf16");
}
Status any_type(Types inputs) {
  return same_type(
      inputs, [](DType) { return true; }, "");
}
Status numbers(Types inputs) {
  return same_type(
      inputs, [](DType type) { return type != DType::boolean; }, "numbers");
}

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

}  // namespace

Inferred one_result(DType dtype, Shape shape) {
  double elements = 1;
  if (shape.size() > most_axes)
    return invalid_input(fmt::format("a result of {} axes; at most {} are supported", shape.size(), most_axes));
  for (const int64_t extent : shape) {
    if (extent < 0 || extent > largest_extent)
      return invalid_input(fmt::format("an extent of {} in the result", extent));
    elements *= static_cast<double>(std::max<int64_t>(extent, 1));  // what stands beside a zero is multiplied elsewhere
  }
  if (elements > static_cast<double>(largest_extent)) return invalid_input("the result is too large");
  return std::vector<TensorType>{{dtype, std::move(shape)}};
}

Status reals(Types inputs) { return same_type(inputs, is_real, "floats"); }

Status same_type(Types inputs, bool (*accepts)(DType), std::string_view known) {
  for (const TensorType& type : inputs) {
    if (!accepts(type.dtype))
      return unsupported(fmt::format("operands of type {}; only {} are supported", name_of(type.dtype), known));
    if (type.dtype != inputs[0].dtype)
      return invalid_input(fmt::format("operands of types {} and {}", name_of(inputs[0].dtype), name_of(type.dtype)));
  }
  return ok_status();
}

Result<Shape> broadcast_shapes(const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return invalid_input(fmt::format("extents {} and {} do not broadcast", x, y));
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

Result<size_t> axis_of(int64_t axis, size_t rank) {
  const auto r = static_cast<int64_t>(rank);
  if (axis < -r || axis >= r) return invalid_input(fmt::format("axis {} of a tensor with {} axes", axis, rank));
  return static_cast<size_t>(axis < 0 ? axis + r : axis);
}

namespace {

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

}  // namespace

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
  return one(inputs[0].dtype, std::move(out));
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
  return one(inputs[0].dtype, std::move(out));
}

Inferred infer_gemm(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(numbers(inputs));
  const Shape &a = inputs[0].shape, &b = inputs[1].shape;
  if (a.size() != 2 || b.size() != 2) return invalid_input("Gemm needs two matrices");
  const bool ta = attr_int(attrs, "transA") != 0, tb = attr_int(attrs, "transB") != 0;
  const int64_t m = ta ? a[1] : a[0], k = ta ? a[0] : a[1], k2 = tb ? b[1] : b[0], n = tb ? b[0] : b[1];
  if (k != k2) return invalid_input(fmt::format("inner extents {} and {} differ", k, k2));
  if (inputs.size() > 2) {
    const auto sum = broadcast_shapes(inputs[2].shape, {m, n});
    if (!sum.ok() || *sum != Shape{m, n})
      return invalid_input(fmt::format("the bias does not broadcast to [{},{}]", m, n));
  }
  return one(inputs[0].dtype, {m, n});
}

Inferred infer_matmul(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(numbers(inputs));
  Shape a = inputs[0].shape, b = inputs[1].shape;
  if (a.empty() || b.empty()) return invalid_input("MatMul of a scalar");
  const bool row = a.size() == 1, column = b.size() == 1;
  if (row) a.insert(a.begin(), 1);
  if (column) b.push_back(1);
  const int64_t k = a.back(), k2 = b[b.size() - 2];
  if (k != k2) return invalid_input(fmt::format("inner extents {} and {} differ", k, k2));
  ASSIGN_OR_RETURN(Shape out, broadcast_shapes(Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2)));
  if (!row) out.push_back(a[a.size() - 2]);
  if (!column) out.push_back(b.back());
  if (inputs.size() > 2 && (column || inputs[2].shape != Shape{b.back()}))
    return invalid_input(
        fmt::format("a bias {} of a product {}", to_string(inputs[2]), to_string(TensorType{inputs[0].dtype, out})));
  return one(inputs[0].dtype, std::move(out));
}

Inferred infer_broadcast(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(numbers(inputs));
  ASSIGN_OR_RETURN(Shape out, broadcast_shapes(inputs[0].shape, inputs[1].shape));
  return one(inputs[0].dtype, std::move(out));
}

Inferred infer_same(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(numbers(inputs));
  for (const TensorType& type : inputs) {
    if (type.shape != inputs[0].shape)
      return invalid_input(fmt::format("operands {} and {} differ", to_string(inputs[0]), to_string(type)));
  }
  return one(inputs[0].dtype, inputs[0].shape);
}

Inferred infer_function(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(reals(inputs));
  return one(inputs[0].dtype, inputs[0].shape);
}

Inferred infer_gelu(Types inputs, const Attrs& attrs) {
  const std::string& form = attr_string(attrs, "approximate");
  if (form != "none" && form != "tanh")
    return invalid_input(fmt::format("approximate is \"{}\", not none or tanh", form));
  return infer_function(inputs, attrs);
}

Inferred infer_identity(Types inputs, const Attrs&) { return one(inputs[0].dtype, inputs[0].shape); }

Inferred infer_pool(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(floats(inputs));
  return infer_pooled(inputs, attrs);
}

Inferred infer_max_pool(Types inputs, const Attrs& attrs) {
  const DType type = inputs[0].dtype;
  if (type != DType::i8 && type != DType::u8) RETURN_IF_ERROR(floats(inputs));
  return infer_pooled(inputs, attrs);
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
  return one(inputs[0].dtype, std::move(out));
}

Inferred infer_global_pool(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(floats(inputs));
  Shape out = inputs[0].shape;
  if (out.size() < 3) return invalid_input("a global pool needs spatial axes");
  std::fill(out.begin() + 2, out.end(), 1);
  return one(inputs[0].dtype, std::move(out));
}

Inferred infer_batch_norm(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(floats(inputs));
  const Shape& x = inputs[0].shape;
  if (x.size() < 2) return invalid_input("BatchNormalization needs a channel axis");
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].shape != Shape{x[1]})
      return invalid_input(fmt::format("parameter {} is {}, not [{}]", i, to_string(inputs[i]), x[1]));
  }
  return one(inputs[0].dtype, x);
}

Inferred infer_layer_norm(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(floats(inputs));
  const Shape& x = inputs[0].shape;
  ASSIGN_OR_RETURN(const size_t axis, axis_of(attr_int(attrs, "axis"), x.size()));
  const Shape normalized(x.begin() + static_cast<std::ptrdiff_t>(axis), x.end());
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].shape != normalized) {
      return invalid_input(fmt::format("parameter {} is {}, not of the shape that is normalized, {}", i,
                                       to_string(inputs[i]), to_string(TensorType{DType::f32, normalized})));
    }
  }
  return one(inputs[0].dtype, x);
}

Inferred infer_instance_norm(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(floats(inputs));
  const Shape& x = inputs[0].shape;
  if (x.size() < 3) return invalid_input("InstanceNormalization needs channels and spatial axes");
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].shape != Shape{x[1]})
      return invalid_input(fmt::format("parameter {} is {}, not [{}]", i, to_string(inputs[i]), x[1]));
  }
  return one(inputs[0].dtype, x);
}

Inferred infer_lrn(Types inputs, const Attrs& attrs) {
  if (inputs[0].shape.size() < 3) return invalid_input("LRN needs channels and spatial axes");
  const int64_t size = attr_int(attrs, "size");
  if (size < 1 || size > (int64_t{1} << 20)) return invalid_input(fmt::format("a window of {} channels", size));
  RETURN_IF_ERROR(floats(inputs));
  return one(inputs[0].dtype, inputs[0].shape);
}

Inferred infer_axis(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(reals(inputs));
  if (const auto axis = axis_of(attr_int(attrs, "axis"), inputs[0].shape.size()); !axis) return axis.error();
  return one(inputs[0].dtype, inputs[0].shape);
}

Inferred infer_concat(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(any_type(inputs));
  Shape out = inputs[0].shape;
  ASSIGN_OR_RETURN(const size_t axis, axis_of(attr_int(attrs, "axis"), out.size()));
  for (size_t i = 1; i < inputs.size(); ++i) {
    const Shape& next = inputs[i].shape;
    if (next.size() != out.size()) return invalid_input("operands with different numbers of axes");
    for (size_t a = 0; a < out.size(); ++a) {
      if (a != axis && next[a] != out[a])
        return invalid_input(fmt::format("axis {}: extents {} and {} differ", a, out[a], next[a]));
    }
    if (next[axis] > largest_extent - out[axis]) return invalid_input("the result is too large");
    out[axis] += next[axis];
  }
  return one(inputs[0].dtype, std::move(out));
}

Inferred infer_reshape(Types inputs, const Attrs& attrs) {
  const Shape& x = inputs[0].shape;
  Shape out = attr_ints(attrs, "shape");
  int64_t known = 1;
  size_t inferred = out.size();
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] == 0) {
      if (i >= x.size()) return invalid_input(fmt::format("shape copies axis {}, which the input does not have", i));
      out[i] = x[i];
    }
    if (out[i] == -1) {
      if (inferred != out.size()) return invalid_input("shape leaves two extents open");
      inferred = i;
    } else if (out[i] < 0 || (out[i] != 0 && known > largest_extent / out[i])) {
      return invalid_input(fmt::format("an extent of {}", out[i]));
    } else {
      known *= out[i];
    }
  }
  const int64_t count = element_count(x);
  if (inferred != out.size()) {
    if (known == 0 || count % known != 0) return invalid_input(fmt::format("{} elements do not fill the shape", count));
    out[inferred] = count / known;
  } else if (known != count) {
    return invalid_input(fmt::format("{} elements cannot become {}", count, known));
  }
  return one(inputs[0].dtype, std::move(out));
}

Inferred infer_flatten(Types inputs, const Attrs& attrs) {
  const Shape& x = inputs[0].shape;
  const int64_t given = attr_int(attrs, "axis"), rank = static_cast<int64_t>(x.size());
  if (given < -rank || given > rank) return invalid_input(fmt::format("axis {} of a tensor with {} axes", given, rank));
  const auto axis = static_cast<size_t>(given < 0 ? given + rank : given);
  int64_t rows = 1, columns = 1;
  for (size_t i = 0; i < x.size(); ++i) (i < axis ? rows : columns) *= x[i];
  return one(inputs[0].dtype, {rows, columns});
}

Inferred infer_transpose(Types inputs, const Attrs& attrs) {
  const Shape& x = inputs[0].shape;
  const std::vector<int64_t>& perm = attr_ints(attrs, "perm");
  Shape out;
  std::set<int64_t> seen;
  for (const int64_t axis : perm) {
    if (axis < 0 || static_cast<size_t>(axis) >= x.size() || !seen.insert(axis).second) break;
    out.push_back(x[static_cast<size_t>(axis)]);
  }
  if (out.size() != x.size() || perm.size() != x.size()) return invalid_input("perm is no permutation of the axes");
  return one(inputs[0].dtype, std::move(out));
}

Inferred infer_reduce(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(numbers(inputs));
  return infer_reduce_any(inputs, attrs);
}

Inferred infer_reduce_any(Types inputs, const Attrs& attrs) {
  const Shape& x = inputs[0].shape;
  std::vector<bool> reduced(x.size(), false);
  for (const int64_t given : attr_ints(attrs, "axes")) {
    ASSIGN_OR_RETURN(const size_t axis, axis_of(given, x.size()));
    reduced[axis] = true;
  }
  Shape out;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!reduced[i])
      out.push_back(x[i]);
    else if (attr_int(attrs, "keepdims") != 0)
      out.push_back(1);
  }
  return one(inputs[0].dtype, std::move(out));
}

Inferred infer_attention(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(floats(inputs));
  const Shape &q = inputs[0].shape, &k = inputs[1].shape, &v = inputs[2].shape;
  const auto refused = [&](std::string_view why) {
    return invalid_input(
        fmt::format("{}: q {}, k {}, v {}", why, to_string(inputs[0]), to_string(inputs[1]), to_string(inputs[2])));
  };
  if (q.size() != 4 || k.size() != 4 || v.size() != 4) return refused("not four axes each");
  for (const Shape* shape : {&q, &k, &v}) {
    if (std::ranges::any_of(*shape, [](int64_t extent) { return extent < 1; })) return refused("nothing to attend to");
  }
  if (k[0] != q[0] || v[0] != q[0]) return refused("the batches differ");
  if (k[1] != v[1] || q[1] % k[1] != 0) return refused("the heads do not share keys and values evenly");
  if (k[2] != v[2]) return refused("not a value for each key");
  if (k[3] != q[3]) return refused("queries and keys differ in size");
  if (attr_int(attrs, "causal") != 0 && k[2] < q[2]) return refused("a query that is in front of all keys");
  if (inputs.size() > 3) {
    const Shape &mask = inputs[3].shape, scores{q[0], q[1], q[2], k[2]};
    const auto sum = broadcast_shapes(mask, scores);
    if (mask.empty() || mask.back() != k[2] || !sum.ok() || *sum != scores)
      return invalid_input(
          fmt::format("a mask {} for scores {}", to_string(inputs[3]), to_string(TensorType{inputs[0].dtype, scores})));
  }
  return one(inputs[0].dtype, {q[0], q[1], q[2], v[3]});
}

Inferred infer_pad(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(any_type(inputs));
  Shape out = inputs[0].shape;
  const std::vector<int64_t>& pads = attr_ints(attrs, "pads");
  if (pads.size() != 2 * out.size()) return invalid_input("pads do not have a begin and an end for every axis");
  for (size_t i = 0; i < out.size(); ++i) {
    // Negative ones crop.
    for (const int64_t pad : {pads[i], pads[i + out.size()]}) {
      if (pad < -largest_extent || pad > largest_extent) return invalid_input("impossible pads");
    }
    out[i] += pads[i] + pads[i + out.size()];
  }
  return one(inputs[0].dtype, std::move(out));
}

namespace {

// `states`: how many tensors go from step to step.
Inferred infer_recurrent(Types inputs, const Attrs& attrs, int64_t gates, size_t states) {
  RETURN_IF_ERROR(floats(inputs));
  const Shape &x = inputs[0].shape, &w = inputs[1].shape, &r = inputs[2].shape;
  if (x.size() != 3 || w.size() != 3 || r.size() != 3)
    return invalid_input("the input and both weights of a recurrent operator need three axes");
  const std::string& direction = attr_string(attrs, "direction");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    return invalid_input(fmt::format("a direction \"{}\"", direction));
  const int64_t directions = direction == "bidirectional" ? 2 : 1, in = x[2], hidden = r[2];
  if (x[0] < 1 || x[1] < 1 || in < 1 || hidden < 1 || hidden > largest_extent / 8)
    return invalid_input(fmt::format("an input {} and {} hidden units", to_string(inputs[0]), hidden));
  const auto check = [&](size_t i, std::string_view what, const Shape& shape) -> Status {
    if (i >= inputs.size() || inputs[i].shape == shape) return ok_status();
    return invalid_input(
        fmt::format("the {} are {}, not {}", what, to_string(inputs[i]), to_string(TensorType{DType::f32, shape})));
  };
  RETURN_IF_ERROR(check(1, "input weights", {directions, gates * hidden, in}));
  RETURN_IF_ERROR(check(2, "recurrent weights", {directions, gates * hidden, hidden}));
  RETURN_IF_ERROR(check(3, "biases", {directions, 2 * gates * hidden}));
  for (size_t i = 4; i < 4 + states; ++i) {
    const bool shared = i < inputs.size() && !inputs[i].shape.empty() && inputs[i].shape[0] == 1;
    RETURN_IF_ERROR(check(i, "initial states", {shared ? 1 : x[0], directions, hidden}));
  }
  RETURN_IF_ERROR(check(4 + states, "peepholes", {directions, 3 * hidden}));
  ASSIGN_OR_RETURN(std::vector<TensorType> types, one(inputs[0].dtype, {x[0], x[1], directions, hidden}));
  types.insert(types.end(), states, {inputs[0].dtype, {x[0], directions, hidden}});
  return types;
}

}  // namespace

Inferred infer_lstm(Types inputs, const Attrs& attrs) { return infer_recurrent(inputs, attrs, 4, 2); }
Inferred infer_gru(Types inputs, const Attrs& attrs) { return infer_recurrent(inputs, attrs, 3, 1); }
Inferred infer_rnn(Types inputs, const Attrs& attrs) { return infer_recurrent(inputs, attrs, 1, 1); }

}  // namespace nlsplit
