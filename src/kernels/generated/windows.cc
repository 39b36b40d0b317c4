// Windows over any number of axes: convolutions and pools that no other kernel takes.
#include <limits>

#include "kernels/generated/functions.h"
#include "kernels/generated/lower.h"
#include "kernels/generated/space.h"
#include "kernels/rows.h"

namespace nlsplit::inline kernels {
namespace {

// The result's places as axes of their own, and the taps of a window as those of a fold.
class WindowWriter {
 public:
  WindowWriter(LoopWriter& w, const ComputeDesc& desc)
      : w_(w),
        in_(desc.inputs[0].shape),
        strides_(row_major_strides(in_)),
        kernel_(attr_ints(desc.attrs, "kernel_shape")),
        window_strides_(attr_ints(desc.attrs, "strides")),
        pads_(attr_ints(desc.attrs, "pads")),
        dilations_(kernel_.size(), 1),
        space_(desc.outputs[0].shape, 1) {
    if (find_attr(desc.attrs, "dilations") != nullptr) dilations_ = attr_ints(desc.attrs, "dilations");
    space_.along(0, 0).step = strides_[0];
    for (size_t axis = 1; axis < in_.size(); ++axis) space_.keep_apart(axis);
    space_.simplify();
    w.loops.extents = space_.extents();
    w.loops.axes = static_cast<int>(w.loops.extents.size());
    fold_.first_axis = w.loops.axes;
    w.loops.extents.insert(w.loops.extents.end(), kernel_.begin(), kernel_.end());
    for (size_t axis = 0; axis < kernel_.size(); ++axis) look_along(axis, desc.outputs[0].shape[axis + 2]);
  }

  const Space& space() const { return space_; }
  int position(size_t axis) { return space_.axis_of(axis) < 0 ? w_.integer(0) : w_.axis(space_.axis_of(axis)); }
  int inside() const { return inside_; }
  // Where the sample and the tap lie in the operand's first channel.
  int start() { return w_.add(space_.index(w_, 0), offset_); }
  int tap() {  // its number
    int tap = w_.integer(0);
    for (size_t axis = 0; axis < kernel_.size(); ++axis)
      tap = w_.add(w_.multiply(tap, w_.integer(kernel_[axis])), w_.axis(fold_.first_axis + static_cast<int>(axis)));
    return tap;
  }
  // One more axis of the fold, within each tap.
  int channel(int64_t count) {
    w_.loops.extents.push_back(count);
    return w_.axis(static_cast<int>(w_.loops.extents.size()) - 1);
  }
  int carried(int first, size_t which) { return w_.carried(static_cast<int>(which), w_.type_of(first)); }
  void fold(std::vector<Accumulator> accumulators) {
    fold_.end_axis = static_cast<int>(w_.loops.extents.size());
    fold_.end_accumulator = static_cast<int>(accumulators.size());
    w_.loops.accumulators = std::move(accumulators);
    w_.loops.folds.push_back(fold_);
  }
  // How many of the window's places count: not those behind the padding.
  int counted(size_t axis) {
    const int behind = w_.integer(in_[axis + 2] + pads_[axis + kernel_.size()]);
    return w_.less(places_[axis], behind);
  }
  size_t axes() const { return kernel_.size(); }

 private:
  void look_along(size_t axis, int64_t places) {
    const int64_t extent = in_[axis + 2], stride = window_strides_[axis], dilation = dilations_[axis];
    const int tap = w_.multiply(w_.axis(fold_.first_axis + static_cast<int>(axis)), w_.integer(dilation));
    const int first = w_.add(w_.multiply(position(axis + 2), w_.integer(stride)), w_.integer(-pads_[axis]));
    int at = w_.add(first, tap);
    places_.push_back(at);
    const int64_t last = (places - 1) * stride - pads_[axis] + (kernel_[axis] - 1) * dilation;
    if (pads_[axis] > 0 || last >= extent) {
      const int here = w_.both(w_.less(w_.integer(-1), at), w_.less(at, w_.integer(extent)));
      inside_ = inside_ < 0 ? here : w_.both(inside_, here);
      at = w_.clamped(at, 0, extent - 1);
    }
    offset_ = w_.add(offset_ < 0 ? w_.integer(0) : offset_, w_.multiply(at, w_.integer(strides_[axis + 2])));
  }

  LoopWriter& w_;
  const Shape& in_;
  const std::vector<int64_t> strides_, kernel_, window_strides_, pads_;
  std::vector<int64_t> dilations_;
  Space space_;
  Fold fold_;
  std::vector<int> places_;
  int inside_ = -1, offset_ = -1;  // -1: always inside
};

int where_inside(LoopWriter& w, const WindowWriter& window, int x, int otherwise) {
  return window.inside() < 0 ? x : w.choose(window.inside(), x, otherwise);
}

void convolution(LoopWriter& w, const ComputeDesc& desc) {
  const Shape &in = desc.inputs[0].shape, &weights = desc.inputs[1].shape;
  const int64_t depth = weights[1], per_group = weights[0] / attr_int(desc.attrs, "group");
  const int64_t plane = row_major_strides(in)[1], taps = row_major_strides(weights)[1];
  WindowWriter window(w, desc);
  const int filter = window.position(1), channel = window.channel(depth);
  const int first = weights[0] == per_group
                        ? w.integer(0)
                        : w.multiply(w.binary(LoopCode::quotient, filter, w.integer(per_group)), w.integer(depth));
  const int from = w.add(window.start(), w.multiply(w.add(first, channel), w.integer(plane)));
  const int weight =
      w.add(w.multiply(w.add(w.multiply(filter, w.integer(depth)), channel), w.integer(taps)), window.tap());
  const int product = w.multiply(w.real(w.read(0, from)), w.real(w.read(1, weight)));
  const int bias = desc.own_inputs() > 2 ? w.real(w.read(2, filter)) : w.number(0), sum = window.carried(bias, 0);
  window.fold({{bias, where_inside(w, window, w.add(sum, product), sum)}});
  finish(w, desc, w.rounded(sum, desc.outputs[0].dtype), window.space().place(w));
}

// |x|^p, and x^(1/p).
int raised(LoopWriter& w, int x, int64_t p) {
  const int size = w.unary(LoopCode::magnitude, x);
  return p == 1 ? size : p == 2 ? w.multiply(x, x) : power(w, size, w.number(static_cast<double>(p)));
}
int rooted(LoopWriter& w, int x, int64_t p) {
  return p == 1 ? x : p == 2 ? w.unary(LoopCode::root, x) : power(w, x, w.number(1 / static_cast<double>(p)));
}

void pool(LoopWriter& w, const ComputeDesc& desc) {
  const int64_t plane = row_major_strides(desc.inputs[0].shape)[1];
  WindowWriter window(w, desc);
  const int x = w.real(w.read(0, w.add(window.start(), w.multiply(window.position(1), w.integer(plane)))));
  const int zero = w.number(0), sum = window.carried(zero, 0);
  const DType type = desc.outputs[0].dtype;
  int result = -1;
  if (desc.op == Op::MaxPool) {
    // What is no number stays if it is the first.
    const int none = w.truth(false), least = w.number(-std::numeric_limits<double>::infinity());
    const int known = window.carried(none, 1);
    const int next = w.choose(w.either(w.invert(known), w.less(sum, x)), x, sum);
    const int found = window.inside() < 0 ? w.truth(true) : w.either(known, window.inside());
    window.fold({{least, where_inside(w, window, next, sum)}, {none, found}});
    result = sum;
  } else if (desc.op == Op::AveragePool) {
    int counts = window.inside();
    if (attr_int(desc.attrs, "count_include_pad") != 0) {
      counts = window.counted(0);
      for (size_t axis = 1; axis < window.axes(); ++axis) counts = w.both(counts, window.counted(axis));
    }
    const int count = window.carried(zero, 1), more = w.add(count, w.number(1));
    window.fold({{zero, where_inside(w, window, w.add(sum, x), sum)},
                 {zero, counts < 0 ? more : w.choose(counts, more, count)}});
    result = w.divide(sum, count);
  } else {
    const int64_t p = attr_int(desc.attrs, "p");
    window.fold({{zero, where_inside(w, window, w.add(sum, raised(w, x, p)), sum)}});
    result = rooted(w, sum, p);
  }
  finish(w, desc, w.rounded(result, type), window.space().place(w));
}

}  // namespace

std::string refuse_windows(const ComputeDesc& desc) {
  const DType type = desc.outputs[0].dtype;
  if (!is_real(type)) return "windows of integers";
  if (desc.op != Op::LpPool && has_planes(desc) && type != DType::f64) return "images have kernels";
  if (desc.op == Op::LpPool && attr_int(desc.attrs, "p") > 2 && type == DType::f64) return "powers of f64";
  for (const TensorType& input : desc.inputs) {
    if (element_count(input.shape) == 0) return "there is nothing to look at";
  }
  return {};
}

Loops lower_windows(const ComputeDesc& desc) {
  LoopWriter w;
  add_inputs(w, desc);
  if (desc.op == Op::Conv)
    convolution(w, desc);
  else
    pool(w, desc);
  return std::move(w.loops);
}

}  // namespace nlsplit::inline kernels
