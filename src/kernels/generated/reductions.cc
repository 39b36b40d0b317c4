// Along axes: reductions, the place of the largest, running sums, logarithms of shares. Sums are in f64, in the order
// of the elements.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "graph/operators/shapes.h"
#include "kernels/generated/functions.h"
#include "kernels/generated/lower.h"
#include "kernels/generated/space.h"

namespace nlsplit::inline kernels {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

bool is_natural(DType type) {
  return type == DType::u8 || type == DType::u16 || type == DType::u32 || type == DType::u64 || type == DType::boolean;
}

// The reduced axes as those of a fold: neighbours are one. What they add to the operand's index.
struct FoldAxes {
  std::vector<int64_t> extents, steps;

  void add(int64_t extent, int64_t step) {
    if (!extents.empty() && steps.back() == step * extent) {
      extents.back() *= extent;
      steps.back() = step;
    } else {
      extents.push_back(extent);
      steps.push_back(step);
    }
  }
};

// Folds over the same axes of the operand, one behind the other.
class FoldWriter {
 public:
  FoldWriter(LoopWriter& w, FoldAxes axes, int start) : w_(w), axes_(std::move(axes)), start_(start) {}

  // Begins a fold: the operand's element at its step.
  Element next_element() {
    Loops& loops = w_.loops;
    fold_ = {};
    fold_.first_axis = static_cast<int>(loops.extents.size());
    fold_.first_accumulator = static_cast<int>(loops.accumulators.size());
    loops.extents.insert(loops.extents.end(), axes_.extents.begin(), axes_.extents.end());
    fold_.end_axis = static_cast<int>(loops.extents.size());
    return w_.read(0, index_at(fold_.first_axis));
  }
  int index_at(int first_axis) {
    int index = start_;
    for (size_t k = 0; k < axes_.steps.size(); ++k)
      index = w_.add(index, w_.multiply(w_.axis(first_axis + static_cast<int>(k)), w_.integer(axes_.steps[k])));
    return index;
  }
  int position() { return w_.axis(fold_.first_axis); }  // of a fold over one axis
  // An accumulator that is being made; its value is what the step before left.
  int accumulator(int first) {
    w_.loops.accumulators.push_back({first, -1});
    return w_.carried(static_cast<int>(w_.loops.accumulators.size()) - 1, w_.type_of(first));
  }
  void becomes(int carried, int next) {
    w_.loops.accumulators[static_cast<size_t>(w_.loops.terms[static_cast<size_t>(carried)].which)].next = next;
  }
  void stores(int term, int place) { fold_.stored = term, fold_.place = place; }
  void end() {
    fold_.end_accumulator = static_cast<int>(w_.loops.accumulators.size());
    w_.loops.folds.push_back(fold_);
  }

 private:
  LoopWriter& w_;
  FoldAxes axes_;
  int start_;
  Fold fold_;
};

// What is no number wins.
int extreme_so_far(LoopWriter& w, bool largest, int so_far, int x) {
  const int beyond = largest ? w.less(so_far, x) : w.less(x, so_far);
  return w.choose(w.either(w.is_nan(x), beyond), x, so_far);
}

int real_extreme(LoopWriter& w, FoldWriter& folds, bool largest) {
  const int x = folds.next_element().term;
  const int so_far = folds.accumulator(w.number(largest ? -infinite : infinite, w.type_of(x)));
  folds.becomes(so_far, extreme_so_far(w, largest, so_far, x));
  folds.end();
  return so_far;
}

template <class TermOf>
int real_sum(LoopWriter& w, FoldWriter& folds, const TermOf& term) {
  const int x = w.real(folds.next_element());
  const int sum = folds.accumulator(w.number(0));
  folds.becomes(sum, w.add(sum, term(x)));
  folds.end();
  return sum;
}

int as_f64(LoopWriter& w, int x) {
  return w.type_of(x) == Scalar::f32 ? w.convert(LoopCode::widen, x, Scalar::f64) : x;
}

int log_sum_exp(LoopWriter& w, FoldWriter& folds, bool real) {
  int above = -1;
  if (real) {
    above = as_f64(w, real_extreme(w, folds, true));
  } else {
    const int x = w.real(folds.next_element());
    above = folds.accumulator(w.number(-infinite));
    folds.becomes(above, extreme_so_far(w, true, above, x));
    folds.end();
  }
  const int sum = real_sum(w, folds, [&](int x) { return exponential(w, w.subtract(x, above)); });
  const int finite = w.less(w.unary(LoopCode::magnitude, above), w.number(infinite));
  return w.choose(finite, w.add(above, logarithm(w, sum)), above);
}

// In f64; count: of what is reduced to one.
int real_reduction(LoopWriter& w, FoldWriter& folds, Op op, bool real, int64_t count) {
  const auto square = [&](int x) { return w.multiply(x, x); };
  switch (op) {
    case Op::ReduceL1:
      return real_sum(w, folds, [&](int x) { return w.unary(LoopCode::magnitude, x); });
    case Op::ReduceL2:
      return w.unary(LoopCode::root, real_sum(w, folds, square));
    case Op::ReduceSumSquare:
      return real_sum(w, folds, square);
    case Op::ReduceSum:
      return real_sum(w, folds, [](int x) { return x; });
    case Op::ReduceMean:
      return w.divide(real_sum(w, folds, [](int x) { return x; }), w.number(static_cast<double>(count)));
    case Op::ReduceLogSum:
      return logarithm(w, real_sum(w, folds, [](int x) { return x; }));
    case Op::ReduceLogSumExp:
      return log_sum_exp(w, folds, real);
    default: {
      const int x = w.real(folds.next_element());
      const int product = folds.accumulator(w.number(1));
      folds.becomes(product, w.multiply(product, x));
      folds.end();
      return product;
    }
  }
}

// The largest or smallest of no integers: the least or greatest that there is.
int64_t extreme_of_none(DType type, bool largest) {
  const int64_t bits = 8 * size_of(type);
  if (type == DType::boolean) return largest ? 0 : 1;
  if (is_natural(type)) return largest ? 0 : bits == 64 ? -1 : (int64_t{1} << bits) - 1;
  const int64_t least = INT64_MIN >> (64 - bits);
  return largest ? least : ~least;
}

int whole_reduction(LoopWriter& w, FoldWriter& folds, Op op, DType type) {
  const Element element = folds.next_element();
  const int x =
      w.type_of(element.term) == Scalar::truth ? w.choose(element.term, w.integer(1), w.integer(0)) : element.term;
  int so_far = -1;
  const auto ends = [&](int first, const auto& next) {
    so_far = folds.accumulator(w.integer(first));
    folds.becomes(so_far, next(so_far));
    folds.end();
    return so_far;
  };
  switch (op) {
    case Op::ReduceMax:
    case Op::ReduceMin: {
      const bool largest = op == Op::ReduceMax;
      so_far = folds.accumulator(w.integer(extreme_of_none(type, largest)));
      const int a = largest ? so_far : x, b = largest ? x : so_far;
      const int beyond = type == DType::u64 ? w.binary(LoopCode::below, a, b) : w.less(a, b);
      folds.becomes(so_far, w.choose(beyond, x, so_far));
      folds.end();
      return so_far;
    }
    case Op::ReduceProd:
      return ends(1, [&](int product) { return w.multiply(product, x); });
    case Op::ReduceSumSquare:
      return ends(0, [&](int sum) { return w.add(sum, w.multiply(x, x)); });
    case Op::ReduceL1: {
      const int size = is_natural(type) ? x : w.choose(w.less(x, w.integer(0)), w.subtract(w.integer(0), x), x);
      return ends(0, [&](int sum) { return w.add(sum, size); });
    }
    default:
      return ends(0, [&](int sum) { return w.add(sum, x); });
  }
}

bool has_whole_form(Op op) {
  return op == Op::ReduceMax || op == Op::ReduceMin || op == Op::ReduceProd || op == Op::ReduceSumSquare ||
         op == Op::ReduceL1 || op == Op::ReduceSum;
}

Element reduced(LoopWriter& w, FoldWriter& folds, const ComputeDesc& desc, int64_t count) {
  const DType from = desc.inputs[0].dtype, to = desc.outputs[0].dtype;
  if (!is_real(from) && has_whole_form(desc.op)) return w.whole(whole_reduction(w, folds, desc.op, from), to);
  if (desc.op == Op::ReduceMax || desc.op == Op::ReduceMin)
    return w.of(real_extreme(w, folds, desc.op == Op::ReduceMax), to);
  return w.rounded(real_reduction(w, folds, desc.op, is_real(from), count), to);
}

// The space of the axes that stay, with the operand's steps along them; what is taken together goes into `axes`.
Space kept_space(const Shape& shape, const std::vector<bool>& folded, FoldAxes& axes) {
  const std::vector<int64_t> strides = row_major_strides(shape);
  Shape kept;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (folded[axis])
      axes.add(shape[axis], strides[axis]);
    else
      kept.push_back(shape[axis]);
  }
  Space space(kept, 1);
  for (size_t axis = 0, of = 0; axis < shape.size(); ++axis) {
    if (!folded[axis]) space.along(0, of++).step = strides[axis];
  }
  space.simplify();
  return space;
}

void lower_reduction(LoopWriter& w, const ComputeDesc& desc) {
  const Shape& shape = desc.inputs[0].shape;
  std::vector<bool> folded(shape.size(), false);
  for (const int64_t axis : attr_ints(desc.attrs, "axes")) folded[axis_of(axis, shape.size()).value()] = true;
  int64_t count = 1;
  for (size_t axis = 0; axis < shape.size(); ++axis) count *= folded[axis] ? shape[axis] : 1;
  FoldAxes axes;
  const Space space = kept_space(shape, folded, axes);
  w.loops.extents = space.extents();
  w.loops.axes = static_cast<int>(w.loops.extents.size());
  FoldWriter folds(w, std::move(axes), space.index(w, 0));
  const Element result = reduced(w, folds, desc, count);
  finish(w, desc, result, space.place(w));
}

void lower_arg_reduction(LoopWriter& w, const ComputeDesc& desc) {
  const Shape& shape = desc.inputs[0].shape;
  std::vector<bool> folded(shape.size(), false);
  folded[axis_of(attr_int(desc.attrs, "axis"), shape.size()).value()] = true;
  FoldAxes axes;
  const Space space = kept_space(shape, folded, axes);
  w.loops.extents = space.extents();
  w.loops.axes = static_cast<int>(w.loops.extents.size());
  FoldWriter folds(w, std::move(axes), space.index(w, 0));
  const Element x = folds.next_element();
  const int value = w.type_of(x.term) == Scalar::f32 ? x.term : w.real(x);
  const int best = folds.accumulator(w.integer(0)), known = folds.accumulator(w.number(0, w.type_of(value)));
  int better = desc.op == Op::ArgMax ? w.less(known, value) : w.less(value, known);
  if (attr_int(desc.attrs, "select_last_index") != 0) better = w.either(better, w.equal(value, known));
  better = w.either(better, w.equal(folds.position(), w.integer(0)));
  folds.becomes(best, w.choose(better, folds.position(), best));
  folds.becomes(known, w.choose(better, value, known));
  folds.end();
  finish(w, desc, w.whole(best, desc.outputs[0].dtype), space.place(w));
}

// The result's axes as rows, and the one that is gone along: the last of the loops, wherever it lies.
struct LineSpace {
  int64_t outer = 1, extent = 1, inner = 1;
};
LineSpace lines_along(const Shape& shape, int64_t which) {
  const size_t axis = axis_of(which, shape.size()).value();
  LineSpace lines;
  for (size_t i = 0; i < shape.size(); ++i)
    (i < axis ? lines.outer : i == axis ? lines.extent : lines.inner) *= shape[i];
  return lines;
}

// Where a line begins, of rows (outer, inner).
int line_start(LoopWriter& w, const LineSpace& lines) {
  w.loops.extents = {lines.outer, lines.inner};
  if (lines.inner == 1) w.loops.extents = {lines.outer};
  w.loops.axes = w.loops.rows = static_cast<int>(w.loops.extents.size());
  const int start = w.multiply(w.axis(0), w.integer(lines.extent * lines.inner));
  return lines.inner == 1 ? start : w.add(start, w.axis(1));
}

void lower_running_sum(LoopWriter& w, const ComputeDesc& desc) {
  const LineSpace lines = lines_along(desc.inputs[0].shape, attr_int(desc.attrs, "axis"));
  const bool exclusive = attr_int(desc.attrs, "exclusive") != 0, reverse = attr_int(desc.attrs, "reverse") != 0;
  const DType type = desc.outputs[0].dtype;
  int start = line_start(w, lines);
  FoldAxes axes;
  axes.add(lines.extent, reverse ? -lines.inner : lines.inner);
  if (reverse) start = w.add(start, w.integer((lines.extent - 1) * lines.inner));
  FoldWriter folds(w, std::move(axes), start);
  const Element x = folds.next_element();
  const int place = folds.index_at(w.loops.axes);
  const bool real = is_real(type);
  const int first = real ? w.number(0) : w.integer(0);
  const int sum = folds.accumulator(first), before = folds.accumulator(first);
  folds.becomes(sum, w.add(sum, real ? w.real(x) : x.term));
  folds.becomes(before, sum);
  const int total = exclusive ? before : sum;
  const Element stored = real ? w.rounded(total, type) : w.whole(total, type);
  folds.stores(w.stored(with_steps(w, desc, stored, place)), place);
  folds.end();
}

void lower_shares(LoopWriter& w, const ComputeDesc& desc) {
  const LineSpace lines = lines_along(desc.inputs[0].shape, attr_int(desc.attrs, "axis"));
  const int start = line_start(w, lines);
  // The line again, as the last axis of the result.
  const int line = w.loops.axes++;
  w.loops.extents.push_back(lines.extent);
  FoldAxes axes;
  axes.add(lines.extent, lines.inner);
  FoldWriter folds(w, std::move(axes), start);
  const int x = w.real(folds.next_element());
  const int largest = folds.accumulator(w.number(-infinite));
  folds.becomes(largest, w.choose(w.less(largest, x), x, largest));
  folds.end();
  const int sum = real_sum(w, folds, [&](int v) { return exponential(w, w.subtract(v, largest)); });
  const int place = w.add(start, w.multiply(w.axis(line), w.integer(lines.inner)));
  const int shifted = w.subtract(w.real(w.read(0, place)), largest);
  const int value =
      desc.op == Op::LogSoftmax ? w.subtract(shifted, logarithm(w, sum)) : w.divide(exponential(w, shifted), sum);
  w.finish(with_steps(w, desc, w.rounded(value, desc.outputs[0].dtype), place), place);
}

}  // namespace

bool is_along_axes(Op op) {
  switch (op) {
    case Op::ReduceL1:
    case Op::ReduceL2:
    case Op::ReduceLogSum:
    case Op::ReduceLogSumExp:
    case Op::ReduceMax:
    case Op::ReduceMin:
    case Op::ReduceProd:
    case Op::ReduceSum:
    case Op::ReduceSumSquare:
    case Op::ReduceMean:
    case Op::ArgMax:
    case Op::ArgMin:
    case Op::CumSum:
    case Op::LogSoftmax:
    case Op::Softmax:
      return true;
    default:
      return false;
  }
}

std::string refuse_along_axes(const ComputeDesc& desc) {
  return element_count(desc.inputs[0].shape) == 0 ? "there is nothing to go along" : "";
}

Loops lower_along_axes(const ComputeDesc& desc) {
  LoopWriter w;
  add_inputs(w, desc);
  if (desc.op == Op::CumSum) {
    lower_running_sum(w, desc);
  } else if (desc.op == Op::LogSoftmax || desc.op == Op::Softmax) {
    lower_shares(w, desc);
  } else if (desc.op == Op::ArgMax || desc.op == Op::ArgMin) {
    lower_arg_reduction(w, desc);
  } else {
    lower_reduction(w, desc);
  }
  return std::move(w.loops);
}

}  // namespace nlsplit::inline kernels
