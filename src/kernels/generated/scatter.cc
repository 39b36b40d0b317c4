// A copy of the data, or zeros, then updates that are written into it one after the other: of equal indices the last
// counts, or all do in their order. Rows are what no update crosses.
#include <fmt/format.h>

#include "graph/operators/shapes.h"
#include "kernels/generated/lower.h"
#include "kernels/generated/space.h"

namespace nlsplit::inline kernels {
namespace {

// What an element becomes by an update.
Element updated(LoopWriter& w, const std::string& reduction, const Element& old, const Element& update) {
  if (reduction == "add") return arithmetic_in_loops(w, Op::Add, {}, old, update, old.dtype);
  if (reduction == "mul") return arithmetic_in_loops(w, Op::Mul, {}, old, update, old.dtype);
  const bool largest = reduction == "max";
  const int a = largest ? old.term : update.term, b = largest ? update.term : old.term;
  const int beyond = old.dtype == DType::u64 ? w.binary(LoopCode::below, a, b) : w.less(a, b);
  return w.chosen(beyond, update, old);
}

// Rows of the result as the only axes: one behind the other, each with folds that store.
class ScatterWriter {
 public:
  ScatterWriter(LoopWriter& w, const ComputeDesc& desc, int64_t rows)
      : w_(w), desc_(desc), row_elements_(w.loops.output.count / rows) {
    // A last axis of one row: its elements are neighbours, those of several rows are not.
    w.loops.extents = {rows, 1};
    w.loops.axes = w.loops.rows = 2;
  }

  void copy() {
    const int at = w_.add(row_start(), begin_fold({row_elements_}));
    end_fold(w_.read(0, at), at);
  }
  void clear() {
    const int at = w_.add(row_start(), begin_fold({row_elements_}));
    end_fold(w_.rounded(w_.number(0), w_.loops.output.dtype), at);
  }

  int row_start() { return row(row_elements_); }
  int row(int64_t elements) { return w_.multiply(w_.axis(0), w_.integer(elements)); }
  // The first of its axes.
  int begin_fold(const std::vector<int64_t>& extents) {
    fold_ = {};
    fold_.first_axis = static_cast<int>(w_.loops.extents.size());
    w_.loops.extents.insert(w_.loops.extents.end(), extents.begin(), extents.end());
    fold_.end_axis = static_cast<int>(w_.loops.extents.size());
    return w_.axis(fold_.first_axis);
  }
  int axis(size_t which) { return w_.axis(fold_.first_axis + static_cast<int>(which)); }

  void replace(const Element& x, int to) { end_fold(x, to); }
  void update(int from, int to) {
    const std::string& reduction = attr_string(desc_.attrs, "reduction");
    const Element update = w_.read(2, from);
    end_fold(reduction == "none" ? update : updated(w_, reduction, w_.written(to), update), to);
  }

 private:
  void end_fold(const Element& x, int place) {
    fold_.stored = w_.stored(x), fold_.place = place;
    w_.loops.folds.push_back(fold_);
  }

  LoopWriter& w_;
  const ComputeDesc& desc_;
  const int64_t row_elements_;
  Fold fold_;
};

void scatter_elements(LoopWriter& w, const ComputeDesc& desc) {
  const Shape &shape = desc.inputs[0].shape, &indices = desc.inputs[1].shape;
  const std::vector<int64_t> strides = row_major_strides(shape), of_indices = row_major_strides(indices);
  const size_t scattered = axis_of(attr_int(desc.attrs, "axis"), shape.size()).value();
  // Axes in front are rows, where there are as many indices as places.
  const auto end = static_cast<std::ptrdiff_t>(scattered);
  const bool in_rows = std::equal(shape.begin(), shape.begin() + end, indices.begin());
  const size_t first = in_rows ? scattered : 0;
  const int64_t rows = element_count(Shape(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(first)));
  ScatterWriter scatter(w, desc, rows);
  scatter.copy();
  const Shape inner(indices.begin() + static_cast<std::ptrdiff_t>(first), indices.end());
  scatter.begin_fold(inner);
  int from = scatter.row(element_count(inner)), to = scatter.row_start();
  for (size_t axis = first; axis < shape.size(); ++axis) {
    const int position = scatter.axis(axis - first);
    from = w.add(from, w.multiply(position, w.integer(of_indices[axis])));
    if (axis != scattered) to = w.add(to, w.multiply(position, w.integer(strides[axis])));
  }
  const int index = index_inside(w, w.read(1, from), shape[scattered]);
  scatter.update(from, w.add(to, w.multiply(index, w.integer(strides[scattered]))));
}

void scatter_nd(LoopWriter& w, const ComputeDesc& desc) {
  const Shape &shape = desc.inputs[0].shape, &indices = desc.inputs[1].shape;
  const std::vector<int64_t> strides = row_major_strides(shape);
  const auto depth = static_cast<size_t>(indices.back());
  const int64_t part = element_count(Shape(shape.begin() + indices.back(), shape.end()));
  ScatterWriter scatter(w, desc, 1);
  scatter.copy();
  const int tuple = scatter.begin_fold({element_count(Shape(indices.begin(), indices.end() - 1)), part});
  int to = scatter.axis(1);
  for (size_t k = 0; k < depth; ++k) {
    const int at = w.add(w.multiply(tuple, w.integer(indices.back())), w.integer(static_cast<int64_t>(k)));
    to = w.add(to, w.multiply(index_inside(w, w.read(1, at), shape[k]), w.integer(strides[k])));
  }
  scatter.update(w.add(w.multiply(tuple, w.integer(part)), scatter.axis(1)), to);
}

// Indices are into the whole result.
void max_unpool(LoopWriter& w, const ComputeDesc& desc) {
  ScatterWriter scatter(w, desc, 1);
  scatter.clear();
  const int from = scatter.begin_fold({element_count(desc.inputs[0].shape)});
  scatter.replace(w.read(0, from), w.clamped(w.read(1, from).term, 0, w.loops.output.count - 1));
}

}  // namespace

std::string refuse_scatter(const ComputeDesc& desc) {
  if (element_count(desc.outputs[0].shape) == 0) return "there is nothing to scatter into";
  for (const TensorType& type : desc.inputs) {
    if (element_count(type.shape) == 0) return "there is nothing to scatter";
  }
  if (!desc.epilogue.empty()) return "steps after what is written more than once";
  if (desc.op == Op::MaxUnpool) return "";
  if (desc.inputs[0].dtype == DType::boolean && attr_string(desc.attrs, "reduction") != "none")
    return "truth values are not numbers";
  return is_index_in_loops(desc.inputs[1].dtype) ? "" : fmt::format("{} are not indices", to_string(desc.inputs[1]));
}

Loops lower_scatter(const ComputeDesc& desc) {
  LoopWriter w;
  add_inputs(w, desc);
  if (desc.op == Op::ScatterND)
    scatter_nd(w, desc);
  else if (desc.op == Op::MaxUnpool)
    max_unpool(w, desc);
  else
    scatter_elements(w, desc);
  return std::move(w.loops);
}

}  // namespace nlsplit::inline kernels
