// What only moves elements.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "graph/operators/rules.h"

namespace nlsplit::inline graph {
namespace {

constexpr AttrSpec axis_attrs[] = {integer("axis")};
constexpr AttrSpec transpose_attrs[] = {integers("perm")};
constexpr AttrSpec pad_attrs[] = {as_input(integers("pads"), 1), as_input(real("value", 0.0), 2)};
constexpr AttrSpec tile_attrs[] = {as_input(integers("repeats"), 1)};
constexpr AttrSpec slice_attrs[] = {as_input(integers("axes"), 3), as_input(integers("ends"), 2),
                                    as_input(integers("starts"), 1), as_input(integers("steps"), 4)};

// ---- types

Inferred infer_identity(Types inputs, const Attrs&) { return one_result(inputs[0].dtype, inputs[0].shape); }

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
  return one_result(inputs[0].dtype, std::move(out));
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
  return one_result(inputs[0].dtype, std::move(out));
}

Inferred infer_flatten(Types inputs, const Attrs& attrs) {
  const Shape& x = inputs[0].shape;
  const int64_t given = attr_int(attrs, "axis"), rank = static_cast<int64_t>(x.size());
  if (given < -rank || given > rank) return invalid_input(fmt::format("axis {} of a tensor with {} axes", given, rank));
  const auto axis = static_cast<size_t>(given < 0 ? given + rank : given);
  int64_t rows = 1, columns = 1;
  for (size_t i = 0; i < x.size(); ++i) (i < axis ? rows : columns) *= x[i];
  return one_result(inputs[0].dtype, {rows, columns});
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
  if (out.size() != x.size() || perm.size() != x.size()) return invalid_input("perm is not a permutation of the axes");
  return one_result(inputs[0].dtype, std::move(out));
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
  return one_result(inputs[0].dtype, std::move(out));
}

Inferred infer_expand(Types inputs, const Attrs& attrs) {
  const Shape& to = attr_ints(attrs, "shape");
  for (const int64_t extent : to) {
    if (extent < 0) return invalid_input(fmt::format("an extent of {}", extent));
  }
  ASSIGN_OR_RETURN(Shape out, broadcast_shapes(inputs[0].shape, to));
  return one_result(inputs[0].dtype, std::move(out));
}

Inferred infer_tile(Types inputs, const Attrs& attrs) {
  Shape out = inputs[0].shape;
  const std::vector<int64_t>& repeats = attr_ints(attrs, "repeats");
  if (repeats.size() != out.size())
    return invalid_input(fmt::format("{} repeats of {}", repeats.size(), to_string(inputs[0])));
  for (size_t axis = 0; axis < out.size(); ++axis) {
    if (repeats[axis] < 0 || (out[axis] > 0 && repeats[axis] > largest_extent / out[axis]))
      return invalid_input(fmt::format("{} repeats of an extent of {}", repeats[axis], out[axis]));
    out[axis] *= repeats[axis];
  }
  return one_result(inputs[0].dtype, std::move(out));
}

}  // namespace

// ONNX clamps starts and ends to the extent; backwards an end in front of everything is -1.
Result<std::vector<SlicedAxis>> sliced_axes(const Shape& shape, const Attrs& attrs) {
  const auto &axes = attr_ints(attrs, "axes"), &starts = attr_ints(attrs, "starts"), &ends = attr_ints(attrs, "ends"),
             &steps = attr_ints(attrs, "steps");
  if (starts.size() != axes.size() || ends.size() != axes.size() || steps.size() != axes.size())
    return invalid_input("axes, starts, ends and steps are not of one length");
  std::vector<SlicedAxis> out;
  for (const int64_t extent : shape) out.push_back({0, 1, extent});
  std::vector<bool> seen(shape.size(), false);
  for (size_t i = 0; i < axes.size(); ++i) {
    ASSIGN_OR_RETURN(const size_t axis, axis_of(axes[i], shape.size()));
    if (seen[axis]) return invalid_input(fmt::format("axis {} twice", axis));
    seen[axis] = true;
    if (steps[i] == 0) return invalid_input("a step of 0");
    const int64_t extent = shape[axis];
    const bool forward = steps[i] > 0;
    // Clamped first: the sums below cannot overflow then.
    const int64_t step = std::clamp(steps[i], -largest_extent, largest_extent);
    const auto place = [&](int64_t at, int64_t low, int64_t high) {
      at = std::clamp(at, -2 * largest_extent, 2 * largest_extent);
      return std::clamp(at < 0 ? at + extent : at, low, high);
    };
    const int64_t start = forward ? place(starts[i], 0, extent) : place(starts[i], -1, extent - 1);
    const int64_t end = forward ? place(ends[i], 0, extent) : place(ends[i], -1, extent - 1);
    const int64_t span = forward ? end - start : start - end, stride = forward ? step : -step;
    out[axis] = {start, step, span <= 0 ? 0 : (span + stride - 1) / stride};
  }
  return out;
}

namespace {

Inferred infer_slice(Types inputs, const Attrs& attrs) {
  ASSIGN_OR_RETURN(const std::vector<SlicedAxis> axes, sliced_axes(inputs[0].shape, attrs));
  Shape out;
  for (const SlicedAxis& axis : axes) out.push_back(axis.count);
  return one_result(inputs[0].dtype, std::move(out));
}

// ---- the batch axis

bool keeps_concat(Types in, uint64_t batched, const Attrs& attrs) {
  const auto axis = axis_of(attr_int(attrs, "axis"), in[0].shape.size());
  const uint64_t all = in.size() >= 64 ? ~uint64_t{0} : (uint64_t{1} << in.size()) - 1;
  return batched == all && axis.ok() && *axis != 0;
}

bool keeps_reshape(Types in, uint64_t batched, const Attrs& attrs) {
  const auto out = infer_reshape(in, attrs);
  return batched == 1 && out.ok() && !(*out)[0].shape.empty() && !in[0].shape.empty() &&
         (*out)[0].shape[0] == in[0].shape[0];
}

bool keeps_flatten(Types in, uint64_t batched, const Attrs& attrs) {
  const int64_t axis = attr_int(attrs, "axis");
  return batched == 1 && (axis < 0 ? axis + static_cast<int64_t>(in[0].shape.size()) : axis) == 1;
}

bool keeps_transpose(Types, uint64_t batched, const Attrs& attrs) {
  const std::vector<int64_t>& perm = attr_ints(attrs, "perm");
  return batched == 1 && !perm.empty() && perm[0] == 0;
}

bool keeps_pad(Types in, uint64_t batched, const Attrs& attrs) {
  const std::vector<int64_t>& pads = attr_ints(attrs, "pads");
  return batched == 1 && pads[0] == 0 && pads[in[0].shape.size()] == 0;
}

// A literal extent of the batch would not follow it.
bool keeps_expand(Types in, uint64_t batched, const Attrs& attrs) {
  const Shape& to = attr_ints(attrs, "shape");
  return batched == 1 && (to.size() < in[0].shape.size() || (to.size() == in[0].shape.size() && to[0] == 1));
}

bool keeps_tile(Types, uint64_t batched, const Attrs& attrs) {
  return batched == 1 && attr_ints(attrs, "repeats")[0] == 1;
}

bool keeps_slice(Types in, uint64_t batched, const Attrs& attrs) {
  return batched == 1 && std::ranges::none_of(attr_ints(attrs, "axes"), [&](int64_t given) {
           const auto axis = axis_of(given, in[0].shape.size());
           return !axis.ok() || *axis == 0;
         });
}

// ---- pieces (pieces.h)

// The elements are the same in the same order; only the axes between two common boundaries are others. A part along the
// first of such a group of axes is one run of elements of every group, and so a part along the first axis of the
// input's group if it begins and ends where an element of that axis does.
bool view_piece(const PieceQuery& q, NodePiece& piece) {
  const Shape &in = q.inputs[0].shape, &out = q.out;
  if (element_count(in) == 0) return false;
  size_t i = 0, o = 0;
  while (i < in.size() && o < out.size()) {
    const size_t first_in = i, first_out = o;
    int64_t a = in[i++], b = out[o++];
    while (a != b) {
      if (a < b)
        a *= in[i++];
      else
        b *= out[o++];
    }
    if (q.axis >= o) continue;
    size_t axis = first_in, leading = first_out;
    while (leading + 1 < o && out[leading] == 1) ++leading;
    while (axis + 1 < i && in[axis] == 1) ++axis;
    if (q.axis != leading) return false;
    const int64_t out_run = b / out[leading], in_run = a / in[axis];
    if (q.begin * out_run % in_run != 0 || q.end * out_run % in_run != 0) return false;
    piece.inputs[0] = along(axis, q.begin * out_run / in_run, q.end * out_run / in_run);
    return true;
  }
  return false;
}

bool reshape_piece(const PieceQuery& q, NodePiece& piece) {
  if (!view_piece(q, piece)) return false;
  Shape shape = q.out;
  shape[q.axis] = q.end - q.begin;
  set_attr(piece.attrs, "shape", std::move(shape));
  return true;
}

bool concat_piece(const PieceQuery& q, NodePiece& piece) {
  const auto joined = axis_of(attr_int(q.node.attrs, "axis"), q.out.size());
  if (!joined.ok()) return false;
  if (*joined != q.axis) {
    std::ranges::fill(piece.inputs, same_axis(q));
    return true;
  }
  int64_t at = 0;
  for (size_t i = 0; i < q.inputs.size(); ++i) {
    const int64_t extent = q.inputs[i].shape[q.axis];
    const int64_t begin = std::clamp<int64_t>(q.begin - at, 0, extent);
    piece.inputs[i] = along(q.axis, begin, std::max(begin, std::clamp<int64_t>(q.end - at, 0, extent)));
    at += extent;
  }
  return true;
}

bool slice_piece(const PieceQuery& q, NodePiece& piece) {
  const auto cut = sliced_axes(q.inputs[0].shape, q.node.attrs);
  if (!cut.ok()) return false;
  const SlicedAxis at = (*cut)[q.axis];
  if (at.step < 1) return false;
  const int64_t begin = at.start + q.begin * at.step, end = at.start + (q.end - 1) * at.step + 1;
  piece.inputs[0] = along(q.axis, begin, end);
  const std::vector<int64_t>& axes = attr_ints(q.node.attrs, "axes");
  std::vector<int64_t> starts = attr_ints(q.node.attrs, "starts"), ends = attr_ints(q.node.attrs, "ends");
  for (size_t i = 0; i < axes.size(); ++i) {
    if (*axis_of(axes[i], q.out.size()) != q.axis) continue;
    starts[i] = 0;
    ends[i] = end - begin;
  }
  set_attr(piece.attrs, "starts", std::move(starts));
  set_attr(piece.attrs, "ends", std::move(ends));
  return true;
}

bool expand_piece(const PieceQuery& q, NodePiece& piece) {
  piece.inputs[0] = broadcast_part(q, q.inputs[0]);
  Shape shape = q.out;
  shape[q.axis] = q.end - q.begin;
  set_attr(piece.attrs, "shape", std::move(shape));
  return true;
}

// Negative pads crop.
bool pad_piece(const PieceQuery& query, NodePiece& piece) {
  std::vector<int64_t> pads = attr_ints(query.node.attrs, "pads");
  const int64_t extent = query.inputs[0].shape[query.axis];
  const int64_t first = query.begin - pads[query.axis], last = query.end - pads[query.axis];
  const int64_t begin = std::clamp<int64_t>(first, 0, extent), end = std::clamp<int64_t>(last, 0, extent);
  if (begin >= end) return false;
  piece.inputs[0] = {static_cast<int>(query.axis), begin, end};
  pads[query.axis] = begin - first;
  pads[query.axis + query.out.size()] = last - end;
  set_attr(piece.attrs, "pads", std::move(pads));
  return true;
}

bool transpose_piece(const PieceQuery& q, NodePiece& piece) {
  piece.inputs[0] = along(static_cast<size_t>(attr_ints(q.node.attrs, "perm")[q.axis]), q.begin, q.end);
  return true;
}
bool tile_piece(const PieceQuery& q, NodePiece& piece) {
  return attr_ints(q.node.attrs, "repeats")[q.axis] == 1 && first_alike(q, piece);
}

// ---- gradients

// Back to where they came from.

void back_reshape(Backward& b) { b.give(0, b.reshaped(b.dy(), b.shape(b.x(0)))); }
void back_expand(Backward& b) { b.give(0, b.sum_to(b.dy(), b.shape(b.x(0)))); }
void back_transpose(Backward& b) {
  const Shape& perm = attr_ints(b.attrs(), "perm");
  Shape inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  b.give(0, b.add(Op::Transpose, {b.dy()}, {{"perm", std::move(inverse)}}));
}
ValueId sliced(Backward& b, ValueId from, Shape axes, Shape starts, Shape ends) {
  Shape steps(axes.size(), 1);
  return b.add(Op::Slice, {from},
               {{"axes", std::move(axes)},
                {"ends", std::move(ends)},
                {"starts", std::move(starts)},
                {"steps", std::move(steps)}});
}
void back_concat(Backward& b) {
  const auto axis = axis_of(attr_int(b.attrs(), "axis"), b.shape(b.y()).size());
  if (!axis.ok()) return b.fail(axis.error());
  int64_t begin = 0;
  for (size_t i = 0; i < b.inputs(); ++i) {
    const int64_t extent = b.shape(b.x(i))[*axis];
    if (b.wants(i)) b.give(i, sliced(b, b.dy(), {static_cast<int64_t>(*axis)}, {begin}, {begin + extent}));
    begin += extent;
  }
}
void back_pad(Backward& b) {
  const Shape& pads = attr_ints(b.attrs(), "pads");
  const Shape& x = b.shape(b.x(0));
  Shape axes(x.size()), starts(x.size()), ends(x.size()), inverse;
  for (const int64_t pad : pads) inverse.push_back(-pad);
  if (std::ranges::any_of(pads, [](int64_t pad) { return pad < 0; })) {  // what was cut off has a gradient of 0
    b.give(0, b.add(Op::Pad, {b.dy()}, {{"pads", std::move(inverse)}, {"value", 0.0}}));
    return;
  }
  for (size_t axis = 0; axis < x.size(); ++axis)
    axes[axis] = static_cast<int64_t>(axis), starts[axis] = pads[axis], ends[axis] = pads[axis] + x[axis];
  b.give(0, sliced(b, b.dy(), std::move(axes), std::move(starts), std::move(ends)));
}
// Zeros around it; along an axis in steps, between the elements: each goes back to its index.
void back_slice(Backward& b) {
  const Shape& x = b.shape(b.x(0));
  const std::vector<SlicedAxis> cut = sliced_axes(x, b.attrs()).value();
  ValueId dx = b.dy();
  Shape pads(2 * x.size());
  bool all = true;
  for (size_t axis = 0; axis < x.size(); ++axis) {
    const SlicedAxis& along = cut[axis];
    if (along.step != 1) {
      std::vector<int64_t> indices;
      for (int64_t i = 0; i < along.count; ++i) indices.push_back(along.start + i * along.step);
      const ValueId places = b.integers({DType::i64, {along.count}}, indices);
      dx = b.add(Op::GatherGradient, {dx, places}, {{"axis", static_cast<int64_t>(axis)}, {"extent", x[axis]}});
      continue;
    }
    pads[axis] = along.start;
    pads[axis + x.size()] = x[axis] - along.start - along.count;
    all = all && along.count == x[axis];
  }
  const bool in_steps = dx != b.dy();
  b.give(0, in_steps && all ? dx : b.add(Op::Pad, {dx}, {{"pads", std::move(pads)}, {"value", 0.0}}));
}
// The repeats of an axis in front of it, and summed.
void back_tile(Backward& b) {
  const Shape &x = b.shape(b.x(0)), &repeats = attr_ints(b.attrs(), "repeats");
  Shape apart, axes;
  for (size_t axis = 0; axis < x.size(); ++axis) {
    axes.push_back(std::ssize(apart));
    apart.push_back(repeats[axis]);
    apart.push_back(x[axis]);
  }
  b.give(0, b.summed(b.reshaped(b.dy(), std::move(apart)), std::move(axes)));
}

}  // namespace

// clang-format off
//  operator   inputs attributes       types            work      batch            split            gradient        traits
ROW(Identity,  1, 1,  no_attrs,        infer_identity,  no_flops, keeps_first,     first_alike,     back_reshape,   is_view_of_first | has_kernels | is_first_alone)
ROW(Concat,    1, -1, axis_attrs,      infer_concat,    no_flops, keeps_concat,    concat_piece,    back_concat,    has_kernels | is_first_alone)
ROW(Reshape,   1, 1,  shape_attrs,     infer_reshape,   no_flops, keeps_reshape,   reshape_piece,   back_reshape,   is_view_of_first | has_kernels | is_first_alone)
ROW(Flatten,   1, 1,  axis_1,          infer_flatten,   no_flops, keeps_flatten,   view_piece,      back_reshape,   is_view_of_first | has_kernels | plain_in_onnx | is_first_alone)
ROW(Transpose, 1, 1,  transpose_attrs, infer_transpose, no_flops, keeps_transpose, transpose_piece, back_transpose, has_kernels)
ROW(Pad,       1, 1,  pad_attrs,       infer_pad,       no_flops, keeps_pad,       pad_piece,       back_pad,       has_kernels)
ROW(Expand,    1, 1,  shape_attrs,     infer_expand,    no_flops, keeps_expand,    expand_piece,    back_expand,    has_kernels | plain_in_onnx | is_first_alone)
ROW(Tile,      1, 1,  tile_attrs,      infer_tile,      no_flops, keeps_tile,      tile_piece,      back_tile,      plain_in_onnx)
ROW(Slice,     1, 1,  slice_attrs,     infer_slice,     no_flops, keeps_slice,     slice_piece,     back_slice,     takes_out)
// clang-format on

}  // namespace nlsplit::inline graph
