// Ops that move elements of any type and compute none.
#include <algorithm>
#include <cmath>

#include "graph/operators/shapes.h"
#include "graph/reference/array.h"

namespace nlsplit::inline graph::reference {
namespace {

size_t place(int64_t axis, size_t rank) {
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

// Negative ones count from the end.
int64_t index_in(int64_t index, int64_t extent) {
  return std::clamp<int64_t>(index < 0 ? index + extent : index, 0, std::max<int64_t>(extent - 1, 0));
}

// out[index] = x[source(index)], source changing the index in place.
void pick(const Array& x, Array& out, const std::function<void(Shape& index)>& source) {
  const std::vector<int64_t> strides = strides_of(x.type.shape);
  int64_t at = 0;
  for_each_index(out.type.shape, [&](const Shape& index) {
    Shape from = index;
    source(from);
    out.copy(at++, x, offset_of(from, strides));
  });
}

void accumulate(const std::string& reduction, const Array& updates, int64_t i, Array& out, int64_t to) {
  if (reduction == "none") return out.copy(to, updates, i);
  const auto at = static_cast<size_t>(to), from = static_cast<size_t>(i);
  if (out.real()) {
    const double a = out.reals[at], b = updates.reals[from];
    out.set(to, reduction == "add"   ? a + b
                : reduction == "mul" ? a * b
                : reduction == "max" ? std::max(a, b)
                                     : std::min(a, b));
    return;
  }
  const int64_t a = out.wholes[at], b = updates.wholes[from];
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  const bool less = out.type.dtype == DType::u64 ? x < y : a < b;
  const int64_t result = reduction == "add"   ? static_cast<int64_t>(x + y)
                         : reduction == "mul" ? static_cast<int64_t>(x * y)
                         : reduction == "max" ? (less ? b : a)
                                              : (less ? a : b);
  out.wholes[at] = wrapped(out.type.dtype, result);
}

void concat(const Attrs& attrs, const Arrays& inputs, Array& out) {
  const size_t axis = place(attr_int(attrs, "axis"), out.type.shape.size());
  const std::vector<int64_t> strides = strides_of(out.type.shape);
  int64_t start = 0;
  for (const Array* input : inputs) {
    walk(input->type.shape, strides,
         [&](int64_t at, int64_t offset) { out.copy(start * strides[axis] + offset, *input, at); });
    start += input->type.shape[axis];
  }
}

void transpose(const Attrs& attrs, const Array& x, Array& out) {
  const std::vector<int64_t> strides = strides_of(x.type.shape);
  std::vector<int64_t> from;
  for (const int64_t axis : attr_ints(attrs, "perm")) from.push_back(strides[static_cast<size_t>(axis)]);
  walk(out.type.shape, from, [&](int64_t at, int64_t offset) { out.copy(at, x, offset); });
}

void pad(const Attrs& attrs, const Array& x, Array& out) {
  const std::vector<int64_t>& pads = attr_ints(attrs, "pads");
  const double value = attr_float(attrs, "value");
  const std::vector<int64_t> strides = strides_of(x.type.shape);
  int64_t at = 0;
  for_each_index(out.type.shape, [&](const Shape& index) {
    bool inside = true;
    int64_t from = 0;
    for (size_t i = 0; i < index.size(); ++i) {
      const int64_t position = index[i] - pads[i];  // a negative pad crops
      inside = inside && position >= 0 && position < x.type.shape[i];
      if (inside) from += position * strides[i];  // far outside the product would overflow
    }
    if (inside)
      out.copy(at, x, from);
    else
      out.set(at, value);
    ++at;
  });
}

void expand(const Array& x, Array& out) {
  walk(out.type.shape, broadcast_strides(x.type.shape, out.type.shape),
       [&](int64_t at, int64_t offset) { out.copy(at, x, offset); });
}

void tile(const Array& x, Array& out) {
  pick(x, out, [&](Shape& index) {
    for (size_t axis = 0; axis < index.size(); ++axis) index[axis] %= x.type.shape[axis];
  });
}

void slice(const Attrs& attrs, const Array& x, Array& out) {
  const std::vector<SlicedAxis> axes = sliced_axes(x.type.shape, attrs).value();
  pick(x, out, [&](Shape& index) {
    for (size_t axis = 0; axis < index.size(); ++axis) index[axis] = axes[axis].start + index[axis] * axes[axis].step;
  });
}

void gather(const Attrs& attrs, const Arrays& inputs, Array& out) {
  const Array &x = *inputs[0], &indices = *inputs[1];
  const Lines lines = lines_of(x.type.shape, attr_int(attrs, "axis"));
  const int64_t count = indices.count();
  int64_t at = 0;
  for (int64_t o = 0; o < lines.outer; ++o) {
    for (int64_t k = 0; k < count; ++k) {
      const int64_t from = index_in(indices.wholes[static_cast<size_t>(k)], lines.extent);
      for (int64_t i = 0; i < lines.inner; ++i) out.copy(at++, x, lines.at(o, i, from));
    }
  }
}

void gather_elements(const Attrs& attrs, const Arrays& inputs, Array& out) {
  const Array &x = *inputs[0], &indices = *inputs[1];
  const size_t axis = place(attr_int(attrs, "axis"), x.type.shape.size());
  size_t at = 0;
  pick(x, out, [&](Shape& index) { index[axis] = index_in(indices.wholes[at++], x.type.shape[axis]); });
}

// The last axis of the indices points at a part of x: the rest of its axes.
void gather_nd(const Attrs& attrs, const Arrays& inputs, Array& out) {
  const Array &x = *inputs[0], &indices = *inputs[1];
  const auto batch = static_cast<size_t>(attr_int(attrs, "batch_dims"));
  const auto depth = static_cast<size_t>(indices.type.shape.back());
  const size_t lead = indices.type.shape.size() - 1;  // axes of the result that come from the indices
  const std::vector<int64_t> strides = strides_of(indices.type.shape);
  pick(x, out, [&](Shape& index) {
    int64_t tuple = 0;
    for (size_t axis = 0; axis < lead; ++axis) tuple += index[axis] * strides[axis];
    Shape from(index.begin(), index.begin() + static_cast<std::ptrdiff_t>(batch));
    for (size_t k = 0; k < depth; ++k)
      from.push_back(index_in(indices.wholes[static_cast<size_t>(tuple) + k], x.type.shape[batch + k]));
    from.insert(from.end(), index.begin() + static_cast<std::ptrdiff_t>(lead), index.end());
    index = std::move(from);
  });
}

void scatter_elements(const Attrs& attrs, const Arrays& inputs, Array& out) {
  const Array &x = *inputs[0], &indices = *inputs[1], &updates = *inputs[2];
  const std::string& reduction = attr_string(attrs, "reduction");
  const size_t axis = place(attr_int(attrs, "axis"), x.type.shape.size());
  const std::vector<int64_t> strides = strides_of(x.type.shape);
  out.reals = x.reals, out.wholes = x.wholes;
  int64_t at = 0;
  for_each_index(updates.type.shape, [&](const Shape& index) {
    Shape to = index;
    to[axis] = index_in(indices.wholes[static_cast<size_t>(at)], x.type.shape[axis]);
    accumulate(reduction, updates, at++, out, offset_of(to, strides));
  });
}

void scatter_nd(const Attrs& attrs, const Arrays& inputs, Array& out) {
  const Array &x = *inputs[0], &indices = *inputs[1], &updates = *inputs[2];
  const std::string& reduction = attr_string(attrs, "reduction");
  const auto depth = indices.type.shape.back();
  const std::vector<int64_t> strides = strides_of(x.type.shape);
  out.reals = x.reals, out.wholes = x.wholes;
  const int64_t part = element_count(Shape(x.type.shape.begin() + depth, x.type.shape.end()));
  for (int64_t i = 0; i < updates.count(); ++i) {
    const int64_t tuple = i / part * depth;
    int64_t to = i % part;
    for (int64_t k = 0; k < depth; ++k) {
      const auto axis = static_cast<size_t>(k);
      to += index_in(indices.wholes[static_cast<size_t>(tuple + k)], x.type.shape[axis]) * strides[axis];
    }
    accumulate(reduction, updates, i, out, to);
  }
}

void one_hot(const Attrs& attrs, const Arrays& inputs, Array& out) {
  const int64_t depth = attr_int(attrs, "depth");
  const Lines lines = lines_of(out.type.shape, attr_int(attrs, "axis"));
  for (int64_t o = 0; o < lines.outer; ++o) {
    for (int64_t i = 0; i < lines.inner; ++i) {
      const double given = inputs[0]->number(o * lines.inner + i);
      const double hot = given < 0 ? given + static_cast<double>(depth) : given;
      for (int64_t k = 0; k < depth; ++k)
        out.copy(lines.at(o, i, k), *inputs[1], std::trunc(hot) == static_cast<double>(k) ? 1 : 0);
    }
  }
}

void reverse_sequence(const Attrs& attrs, const Arrays& inputs, Array& out) {
  const Array &x = *inputs[0], &lengths = *inputs[1];
  const size_t batch = place(attr_int(attrs, "batch_axis"), x.type.shape.size());
  const size_t time = place(attr_int(attrs, "time_axis"), x.type.shape.size());
  pick(x, out, [&](Shape& index) {
    const int64_t length =
        std::clamp<int64_t>(lengths.wholes[static_cast<size_t>(index[batch])], 0, x.type.shape[time]);
    if (index[time] < length) index[time] = length - 1 - index[time];
  });
}

}  // namespace

// clang-format off
NLS_REFERENCE(Concat, concat(attrs, in, out))
NLS_REFERENCE(Transpose, transpose(attrs, *in[0], out))
NLS_REFERENCE(Pad, pad(attrs, *in[0], out))
NLS_REFERENCE(Expand, expand(*in[0], out))
NLS_REFERENCE(Tile, tile(*in[0], out))
NLS_REFERENCE(Slice, slice(attrs, *in[0], out))
NLS_REFERENCE(Gather, gather(attrs, in, out))
NLS_REFERENCE(GatherElements, gather_elements(attrs, in, out))
NLS_REFERENCE(GatherND, gather_nd(attrs, in, out))
NLS_REFERENCE(ScatterElements, scatter_elements(attrs, in, out))
NLS_REFERENCE(ScatterND, scatter_nd(attrs, in, out))
NLS_REFERENCE(OneHot, one_hot(attrs, in, out))
NLS_REFERENCE(ReverseSequence, reverse_sequence(attrs, in, out))
// clang-format on

}  // namespace nlsplit::inline graph::reference
