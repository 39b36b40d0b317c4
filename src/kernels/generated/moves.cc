// What computes nothing: elements by a map of places, or by indices that are operands.
#include <fmt/format.h>

#include <algorithm>

#include "graph/operators/shapes.h"
#include "kernels/generated/lower.h"
#include "kernels/generated/space.h"

namespace nlsplit::inline kernels {
namespace {

// The result's axes that operand x has, too, each with x's stride.
void lay_along(Space& space, size_t operand, size_t axis, int64_t stride) { space.along(operand, axis).step = stride; }

void gather_elements(LoopWriter& w, const ComputeDesc& desc, Space& space) {
  const Shape& shape = desc.inputs[0].shape;
  const std::vector<int64_t> strides = row_major_strides(shape);
  const size_t gathered = axis_of(attr_int(desc.attrs, "axis"), shape.size()).value();
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (axis != gathered) lay_along(space, 0, axis, strides[axis]);
  }
  space.broadcast(1, desc.inputs[1].shape);
  space.simplify();
  w.loops.extents = space.extents();
  const int index = index_inside(w, w.read(1, space.index(w, 1)), shape[gathered]);
  const int at = w.add(space.index(w, 0), w.multiply(index, w.integer(strides[gathered])));
  finish(w, desc, w.read(0, at), space.place(w));
}

void gather_nd(LoopWriter& w, const ComputeDesc& desc, Space& space) {
  const Shape &shape = desc.inputs[0].shape, &indices = desc.inputs[1].shape;
  const std::vector<int64_t> strides = row_major_strides(shape), of_indices = row_major_strides(indices);
  const auto batch = static_cast<size_t>(attr_int(desc.attrs, "batch_dims"));
  const auto depth = static_cast<size_t>(indices.back());
  const size_t lead = indices.size() - 1;
  for (size_t axis = 0; axis < batch; ++axis) lay_along(space, 0, axis, strides[axis]);
  for (size_t axis = 0; axis < lead; ++axis) lay_along(space, 1, axis, of_indices[axis]);
  for (size_t axis = lead; axis < desc.outputs[0].shape.size(); ++axis)
    lay_along(space, 0, axis, strides[batch + depth + axis - lead]);
  space.simplify();
  w.loops.extents = space.extents();
  int at = space.index(w, 0);
  const int tuple = space.index(w, 1);
  for (size_t k = 0; k < depth; ++k) {
    const Element index = w.read(1, w.add(tuple, w.integer(static_cast<int64_t>(k))));
    at = w.add(at, w.multiply(index_inside(w, index, shape[batch + k]), w.integer(strides[batch + k])));
  }
  finish(w, desc, w.read(0, at), space.place(w));
}

void one_hot(LoopWriter& w, const ComputeDesc& desc, Space& space) {
  const Shape &shape = desc.outputs[0].shape, &indices = desc.inputs[0].shape;
  const std::vector<int64_t> strides = row_major_strides(indices);
  const size_t hot = axis_of(attr_int(desc.attrs, "axis"), shape.size()).value();
  for (size_t axis = 0, of = 0; axis < shape.size(); ++axis) {
    if (axis != hot) lay_along(space, 0, axis, strides[of++]);
  }
  space.keep_apart(hot);
  space.simplify();
  w.loops.extents = space.extents();
  const int given = w.real(w.read(0, space.index(w, 0)));
  const double depth = static_cast<double>(attr_int(desc.attrs, "depth"));
  const int from_end = w.choose(w.less(given, w.number(0)), w.add(given, w.number(depth)), given);
  const int position = space.axis_of(hot) < 0 ? w.integer(0) : w.axis(space.axis_of(hot));
  const int is_hot = w.equal(w.unary(LoopCode::cut, from_end), w.convert(LoopCode::real_of, position, Scalar::f64));
  finish(w, desc, w.read(1, w.choose(is_hot, w.integer(1), w.integer(0))), space.place(w));
}

void reverse_sequence(LoopWriter& w, const ComputeDesc& desc, Space& space) {
  const Shape& shape = desc.inputs[0].shape;
  const std::vector<int64_t> strides = row_major_strides(shape);
  const size_t batch = axis_of(attr_int(desc.attrs, "batch_axis"), shape.size()).value();
  const size_t time = axis_of(attr_int(desc.attrs, "time_axis"), shape.size()).value();
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (axis != time) lay_along(space, 0, axis, strides[axis]);
  }
  lay_along(space, 1, batch, 1);
  space.keep_apart(time);
  space.simplify();
  w.loops.extents = space.extents();
  const int length = w.clamped(w.read(1, space.index(w, 1)).term, 0, shape[time]);
  const int step = space.axis_of(time) < 0 ? w.integer(0) : w.axis(space.axis_of(time));
  const int mirrored = w.subtract(w.add(length, w.integer(-1)), step);
  // In bounds whatever the length: the bound of a difference is not known to be one.
  const int from = w.clamped(w.choose(w.less(step, length), mirrored, step), 0, shape[time] - 1);
  const int at = w.add(space.index(w, 0), w.multiply(from, w.integer(strides[time])));
  finish(w, desc, w.read(0, at), space.place(w));
}

// Each element from the operand that has its position along the axis.
Loops lower_concat(const ComputeDesc& desc) {
  LoopWriter w;
  add_inputs(w, desc);
  const Shape& to = desc.outputs[0].shape;
  const size_t joined = axis_of(attr_int(desc.attrs, "axis"), to.size()).value(), own = desc.own_inputs();
  Space space(to, own);
  for (size_t i = 0; i < own; ++i) {
    const std::vector<int64_t> strides = row_major_strides(desc.inputs[i].shape);
    for (size_t axis = 0; axis < to.size(); ++axis) {
      if (axis != joined) lay_along(space, i, axis, strides[axis]);
    }
  }
  space.keep_apart(joined);
  space.simplify();
  w.loops.extents = space.extents();
  const int position = space.axis_of(joined) < 0 ? w.integer(0) : w.axis(space.axis_of(joined));
  Element result;
  int64_t end = to[joined];
  for (size_t i = own; i-- > 0;) {
    const Shape& from = desc.inputs[i].shape;
    const int64_t begin = end - from[joined];
    if (from[joined] > 0) {
      const int inside = w.clamped(w.add(position, w.integer(-begin)), 0, from[joined] - 1);
      const int stride = w.integer(row_major_strides(from)[joined]);
      const Element x = w.read(static_cast<int>(i), w.add(space.index(w, i), w.multiply(inside, stride)));
      result = result.term < 0 ? x : w.chosen(w.less(position, w.integer(end)), x, result);
    }
    end = begin;
  }
  finish(w, desc, result, space.place(w));
  return std::move(w.loops);
}

// Inside of the operand, or the value.
Loops lower_pad(const ComputeDesc& desc) {
  LoopWriter w;
  add_inputs(w, desc);
  const Shape &from = desc.inputs[0].shape, &to = desc.outputs[0].shape;
  const std::vector<int64_t>& pads = attr_ints(desc.attrs, "pads");
  const std::vector<int64_t> strides = row_major_strides(from);
  Space space(to, 1);
  for (size_t axis = 0; axis < to.size(); ++axis) {
    if (pads[axis] == 0 && to[axis] == from[axis])
      lay_along(space, 0, axis, strides[axis]);
    else
      space.keep_apart(axis);
  }
  space.simplify();
  w.loops.extents = space.extents();
  int index = space.index(w, 0), inside = w.truth(true);
  for (size_t axis = 0; axis < to.size(); ++axis) {
    if (pads[axis] == 0 && to[axis] == from[axis]) continue;
    const int position = space.axis_of(axis) < 0 ? w.integer(0) : w.axis(space.axis_of(axis));
    const int at = w.add(position, w.integer(-pads[axis]));
    const int here = w.clamped(at, 0, from[axis] - 1);
    inside = w.both(inside, w.equal(at, here));
    index = w.add(index, w.multiply(here, w.integer(strides[axis])));
  }
  const Element outside = w.rounded(w.number(attr_float(desc.attrs, "value")), desc.outputs[0].dtype);
  finish(w, desc, w.chosen(inside, w.read(0, index), outside), space.place(w));
  return std::move(w.loops);
}

}  // namespace

bool is_index_in_loops(DType type) { return is_whole(type) && type != DType::u64; }

int index_inside(LoopWriter& w, const Element& index, int64_t extent) {
  const int from_end = w.add(index.term, w.integer(extent));
  return w.clamped(w.choose(w.less(index.term, w.integer(0)), from_end, index.term), 0, extent - 1);
}

std::string refuse_move(const ComputeDesc& desc) {
  // A pass over tables of positions: of extents that files make.
  constexpr int64_t most = 1 << 20;
  constexpr size_t most_joined = 8;  // each element looks at all of them
  if (desc.op == Op::Concat && desc.own_inputs() > most_joined)
    return fmt::format("{} operands are too many to choose from", desc.own_inputs());
  if (desc.op == Op::Pad && element_count(desc.inputs[0].shape) == 0) return "there is nothing to pad";
  if (desc.op != Op::Tile) return {};
  for (const int64_t extent : desc.outputs[0].shape) {
    if (extent > most) return fmt::format("an extent of {} is too many places for a table", extent);
  }
  return {};
}

std::string refuse_gather(const ComputeDesc& desc) {
  if (element_count(desc.inputs[0].shape) == 0) return "there is nothing to gather from";
  if (desc.op == Op::GatherElements || desc.op == Op::GatherND || desc.op == Op::ReverseSequence)
    return is_index_in_loops(desc.inputs[1].dtype) ? "" : fmt::format("{} are not indices", to_string(desc.inputs[1]));
  return {};
}

Loops lower_move(const ComputeDesc& desc) {
  if (desc.op == Op::Concat) return lower_concat(desc);
  if (desc.op == Op::Pad) return lower_pad(desc);
  LoopWriter w;
  add_inputs(w, desc);
  const Shape &from = desc.inputs[0].shape, &to = desc.outputs[0].shape;
  const std::vector<int64_t> strides = row_major_strides(from);
  Space space(to, 1);
  if (desc.op == Op::Slice) {
    const std::vector<SlicedAxis> axes = sliced_axes(from, desc.attrs).value();
    for (size_t axis = 0; axis < to.size(); ++axis)
      space.along(0, axis) = {
          axes[axis].start * strides[axis], to[axis] == 1 ? 0 : axes[axis].step * strides[axis], {}};
  } else if (desc.op == Op::Transpose) {
    const std::vector<int64_t>& perm = attr_ints(desc.attrs, "perm");
    for (size_t axis = 0; axis < to.size(); ++axis)
      space.along(0, axis).step = strides[static_cast<size_t>(perm[axis])];
  } else if (desc.op == Op::Expand) {
    space.broadcast(0, from);
  } else {
    for (size_t axis = 0; axis < to.size(); ++axis) {
      for (int64_t i = 0; i < to[axis]; ++i) space.along(0, axis).table.push_back(i % from[axis] * strides[axis]);
    }
  }
  space.simplify();
  w.loops.extents = space.extents();
  finish(w, desc, w.read(0, space.index(w, 0)), space.place(w));
  return std::move(w.loops);
}

Loops lower_gather(const ComputeDesc& desc) {
  LoopWriter w;
  add_inputs(w, desc);
  Space space(desc.outputs[0].shape, 2);
  if (desc.op == Op::GatherElements) {
    gather_elements(w, desc, space);
  } else if (desc.op == Op::GatherND) {
    gather_nd(w, desc, space);
  } else if (desc.op == Op::OneHot) {
    one_hot(w, desc, space);
  } else {
    reverse_sequence(w, desc, space);
  }
  return std::move(w.loops);
}

}  // namespace nlsplit::inline kernels
