// A computation whose result is a part of another's: what a split plan makes of a node.
//
//   const auto piece = piece_of(desc, 2, 3, 9);              // rows 3 … 8 of every plane
//   run_kernel(library, piece->desc, parts(*piece, inputs))  // equals those rows of the whole
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "graph/operators/shapes.h"
#include "graph/reference/evaluate.h"
#include "kernels/catalogue.h"

namespace nlsplit::testing {

struct Range {
  size_t axis = 0;
  int64_t begin = 0, end = 0;
};

struct Piece {
  ComputeDesc desc;                        // kernel empty
  std::vector<std::vector<Range>> inputs;  // what it takes of each input of the whole; nothing: all of it
};

// Row-major.
inline Tensor part_of(const Tensor& whole, const Range& range) {
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < whole.type.shape.size(); ++i) {
    if (i < range.axis) outer *= whole.type.shape[i];
    if (i > range.axis) inner *= whole.type.shape[i];
  }
  Tensor part{whole.type, {}};
  const int64_t extent = whole.type.shape[range.axis];
  part.type.shape[range.axis] = range.end - range.begin;
  if (whole.type.dtype != DType::f32) {
    const auto bytes = static_cast<size_t>(size_of(whole.type.dtype, inner));
    for (int64_t o = 0; o < outer; ++o)
      part.raw += whole.raw.substr(static_cast<size_t>(o * extent + range.begin) * bytes,
                                   static_cast<size_t>(range.end - range.begin) * bytes);
    return part;
  }
  for (int64_t o = 0; o < outer; ++o) {
    const auto row = whole.values.begin() + o * extent * inner;
    part.values.insert(part.values.end(), row + range.begin * inner, row + range.end * inner);
  }
  return part;
}

inline std::vector<Tensor> parts(const Piece& piece, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    all.push_back(inputs[i]);
    for (const Range& range : piece.inputs[i]) all.back() = part_of(all.back(), range);
  }
  return all;
}

class PieceOf {
 public:
  PieceOf(const ComputeDesc& whole, size_t axis, int64_t begin, int64_t end)
      : whole_(whole), axis_(axis), begin_(begin), end_(end), out_(whole.outputs[0].shape) {
    piece_.desc = whole;
    piece_.desc.kernel = {};
    piece_.inputs.resize(whole.inputs.size());
  }

  // Nothing: the operator has no such piece.
  std::optional<Piece> make() {
    if (whole_.outputs.size() != 1 || !cut()) return std::nullopt;
    for (size_t i = whole_.own_inputs(); i < whole_.inputs.size(); ++i) take(i, axis_, begin_, end_);
    for (size_t i = 0; i < piece_.inputs.size(); ++i) {
      for (const Range& range : piece_.inputs[i]) piece_.desc.inputs[i].shape[range.axis] = range.end - range.begin;
    }
    auto types = infer(whole_.op, Types(piece_.desc.inputs).first(whole_.own_inputs()), piece_.desc.attrs);
    if (!types.ok()) return std::nullopt;
    Shape wanted = out_;
    wanted[axis_] = end_ - begin_;
    CHECK((*types)[0].shape == wanted, "a piece of another size: " + signature(piece_.desc));
    piece_.desc.outputs = *types;
    return piece_;
  }

 private:
  using Ints = std::vector<int64_t>;
  const Shape& in(size_t i) const { return whole_.inputs[i].shape; }
  void take(size_t i, size_t axis, int64_t begin, int64_t end) { piece_.inputs[i].push_back({axis, begin, end}); }
  void take(size_t i, size_t axis) { take(i, axis, begin_, end_); }

  // An operand that is repeated along axes where it has one element, and along those in front of its own.
  void take_broadcast(size_t i, const Shape& over) {
    const size_t missing = over.size() - in(i).size();
    if (axis_ >= missing && in(i)[axis_ - missing] != 1) take(i, axis_ - missing);
  }

  bool cut() {
    switch (whole_.op) {
      case Op::Conv:
        return conv();
      case Op::ConvTranspose:
        return conv_transpose();
      case Op::MaxPool:
      case Op::AveragePool:
        if (axis_ < 2) return take(0, axis_), true;
        return attr_int(whole_.attrs, "ceil_mode") == 0 && window();
      case Op::GlobalAveragePool:
        return axis_ < 2 && (take(0, axis_), true);
      case Op::Gemm:
        return gemm();
      case Op::MatMul:
        return matmul();
      case Op::Linear:
        if (axis_ + 1 < out_.size()) return take(0, axis_), true;
        for (size_t i = 1; i < whole_.own_inputs(); ++i) take(i, 0);
        return true;
      case Op::Experts:
        if (axis_ + 1 == out_.size()) return false;
        for (size_t i = 0; i < 3; ++i) take(i, axis_);
        return true;
      case Op::BatchNormalization:
        take(0, axis_);
        for (size_t i = 1; axis_ == 1 && i < 5; ++i) take(i, 0);
        return true;
      case Op::InstanceNormalization:
        if (axis_ > 1) return false;
        take(0, axis_);
        for (size_t i = 1; axis_ == 1 && i < 3; ++i) take(i, 0);
        return true;
      case Op::LayerNormalization:
        return axis_ < own_axis() && (take(0, axis_), true);
      case Op::LRN:
        return axis_ != 1 && (take(0, axis_), true);
      case Op::Softmax:
        return axis_ != own_axis() && (take(0, axis_), true);
      case Op::Concat:
        if (axis_ == own_axis()) return false;
        for (size_t i = 0; i < whole_.own_inputs(); ++i) take(i, axis_);
        return true;
      case Op::Slice:
        return slice();
      case Op::Transpose:
        return take(0, static_cast<size_t>(attr_ints(whole_.attrs, "perm")[axis_])), true;
      case Op::ConvWeightGradient:
        if (axis_ > 1 || attr_int(whole_.attrs, "group") != 1) return false;
        return take(1 - axis_, 1), true;
      case Op::MaxPoolGradient:
      case Op::AveragePoolGradient:
        if (axis_ > 1) return false;
        for (size_t i = 0; i < whole_.own_inputs(); ++i) take(i, axis_);
        return true;
      case Op::BatchNormalizationTraining:
      case Op::BatchNormalizationTrainingGradient:
      case Op::BatchNormalizationScaleGradient:
      case Op::GatherGradient:
      case Op::SoftmaxCrossEntropyGradient:
        return false;
      case Op::SoftmaxCrossEntropy:
        return take(0, axis_), take(1, axis_), true;
      case Op::LayerNormalizationGradient:
        if (axis_ >= axis_of(attr_int(whole_.attrs, "axis"), out_.size()).value()) return false;
        return take(0, axis_), take(1, axis_), true;
      case Op::SoftmaxGradient:
      case Op::LogSoftmaxGradient:
        if (axis_ == own_axis()) return false;
        return take(0, axis_), take(1, axis_), true;
      case Op::Expand: {
        Ints shape = out_;
        shape[axis_] = end_ - begin_;
        set_attr(piece_.desc.attrs, "shape", shape);
        return take_broadcast(0, out_), true;
      }
      case Op::ReduceSum:
      case Op::ReduceMean:
        return attr_int(whole_.attrs, "keepdims") != 0 && !is_reduced() && (take(0, axis_), true);
      case Op::Pad:
        return pad();
      case Op::Attention:
        return attention();
      case Op::CachedAttention:
      case Op::PagedAttention:
        return cached();
      case Op::RotaryEmbedding:
        if (axis_ > 1) return false;
        take(0, axis_);
        if (axis_ == 0) take(3, 0);
        return true;
      case Op::LSTM:
      case Op::GRU:
      case Op::RNN:
        return false;
      default:  // element by element
        for (size_t i = 0; i < whole_.own_inputs(); ++i) take_broadcast(i, out_);
        return true;
    }
  }

  size_t own_axis() const { return axis_of(attr_int(whole_.attrs, "axis"), in(0).size()).value(); }
  bool is_reduced() const {
    return std::ranges::any_of(attr_ints(whole_.attrs, "axes"),
                               [&](int64_t axis) { return axis_of(axis, in(0).size()).value() == axis_; });
  }

  // Rows or columns: what their windows reach, without the padding that is not theirs.
  bool window() {
    const size_t s = axis_ - 2;
    const AttrValue* dilations = find_attr(whole_.attrs, "dilations");
    const int64_t stride = attr_ints(whole_.attrs, "strides")[s];
    const int64_t reach = (attr_ints(whole_.attrs, "kernel_shape")[s] - 1) *
                              (dilations == nullptr ? 1 : attr_ints(whole_.attrs, "dilations")[s]) +
                          1;
    Ints pads = attr_ints(whole_.attrs, "pads");
    const int64_t first = begin_ * stride - pads[s], last = (end_ - 1) * stride - pads[s] + reach;
    const int64_t from = std::max<int64_t>(first, 0), to = std::min(last, in(0)[axis_]);
    if (from >= to) return false;
    pads[s] = from - first;
    pads[s + pads.size() / 2] = last - to;
    set_attr(piece_.desc.attrs, "pads", pads);
    take(0, axis_, from, to);
    return true;
  }

  bool conv() {
    if (axis_ == 0) return take(0, 0), true;
    if (axis_ > 1) return window();
    const int64_t groups = attr_int(whole_.attrs, "group"), each = out_[1] / groups;
    if (groups > 1) {
      if (begin_ % each != 0 || end_ % each != 0) return false;
      const int64_t channels = in(0)[1] / groups;
      set_attr(piece_.desc.attrs, "group", (end_ - begin_) / each);
      take(0, 1, begin_ / each * channels, end_ / each * channels);
    }
    take(1, 0);
    if (whole_.own_inputs() > 2) take(2, 0);
    return true;
  }

  bool conv_transpose() {
    if (axis_ == 0) return take(0, 0), true;
    const int64_t groups = attr_int(whole_.attrs, "group");
    if (axis_ == 1) {
      if (groups > 1) {
        const int64_t each = out_[1] / groups, channels = in(0)[1] / groups;
        if (begin_ % each != 0 || end_ % each != 0) return false;
        set_attr(piece_.desc.attrs, "group", (end_ - begin_) / each);
        for (const size_t i : {0, 1}) take(i, 1 - i, begin_ / each * channels, end_ / each * channels);
      } else {
        take(1, 1);
      }
      if (whole_.own_inputs() > 2) take(2, 0);
      return true;
    }
    const size_t s = axis_ - 2;
    const int64_t stride = attr_ints(whole_.attrs, "strides")[s];
    const int64_t reach =
        (attr_ints(whole_.attrs, "kernel_shape")[s] - 1) * attr_ints(whole_.attrs, "dilations")[s] + 1;
    Ints pads = attr_ints(whole_.attrs, "pads"), more = attr_ints(whole_.attrs, "output_padding");
    // Row r of the operand reaches r * stride - pad … + reach - 1.
    const int64_t first = begin_ + pads[s], last = end_ - 1 + pads[s];
    const int64_t lowest = first < reach ? 0 : (first - reach + stride) / stride;
    const int64_t from = std::min({lowest, first / stride, in(0)[axis_] - 1});
    const int64_t to = std::min(last / stride + 1, in(0)[axis_]);
    if (from >= to) return false;
    pads[s] = first - from * stride;
    const int64_t excess = (to - from - 1) * stride + reach - pads[s] - (end_ - begin_);
    pads[s + pads.size() / 2] = std::max<int64_t>(excess, 0);
    more[s] = std::max<int64_t>(-excess, 0);
    set_attr(piece_.desc.attrs, "pads", pads);
    set_attr(piece_.desc.attrs, "output_padding", more);
    take(0, axis_, from, to);
    return true;
  }

  bool gemm() {
    const bool a = attr_int(whole_.attrs, "transA") != 0, b = attr_int(whole_.attrs, "transB") != 0;
    if (axis_ == 0) take(0, a ? 1 : 0);
    if (axis_ == 1) take(1, b ? 0 : 1);
    if (whole_.own_inputs() > 2) take_broadcast(2, out_);
    return true;
  }

  bool matmul() {
    const size_t rank = out_.size(), a = in(0).size(), b = in(1).size();
    if (a < 2 || b < 2) return false;
    if (axis_ + 1 == rank) {
      take(1, b - 1);
      if (whole_.own_inputs() > 2) take(2, 0);
    } else if (axis_ + 2 == rank) {
      take(0, a - 2);
    } else {
      take_broadcast(0, out_);
      take_broadcast(1, out_);
    }
    return true;
  }

  bool slice() {
    Ints axes, starts, ends;
    const auto sliced = sliced_axes(in(0), whole_.attrs).value();
    for (size_t axis = 0; axis < sliced.size(); ++axis) {
      const int64_t first = sliced[axis].start + (axis == axis_ ? begin_ : 0);
      axes.push_back(static_cast<int64_t>(axis));
      starts.push_back(first);
      ends.push_back(first + (axis == axis_ ? end_ - begin_ : sliced[axis].count));
    }
    piece_.desc.attrs = {{"axes", axes}, {"ends", ends}, {"starts", starts}, {"steps", Ints(axes.size(), 1)}};
    return true;
  }

  bool pad() {
    Ints pads = attr_ints(whole_.attrs, "pads");
    const int64_t extent = in(0)[axis_], before = pads[axis_];
    const int64_t from = std::clamp<int64_t>(begin_ - before, 0, extent);
    const int64_t to = std::clamp<int64_t>(end_ - before, from, extent);
    if (from == to) return false;
    pads[axis_] = from + before - begin_;
    pads[axis_ + in(0).size()] = end_ - (to + before);
    set_attr(piece_.desc.attrs, "pads", pads);
    take(0, axis_, from, to);
    return true;
  }

  bool attention() {
    const bool causal = attr_int(whole_.attrs, "causal") != 0, masked = whole_.own_inputs() > 3;
    if (axis_ == 3) return take(2, 3), true;
    if (masked) take_broadcast(3, {out_[0], out_[1], out_[2], in(1)[2]});
    take(0, axis_);
    if (axis_ == 0) {
      take(1, 0);
      take(2, 0);
    } else if (axis_ == 1) {
      const int64_t shared = out_[1] / in(1)[1];
      if (begin_ % shared != 0 || end_ % shared != 0) return false;
      for (const size_t i : {1, 2}) take(i, 1, begin_ / shared, end_ / shared);
    } else if (causal) {  // what the last of them does not see is not needed
      const int64_t seen = end_ + in(1)[2] - in(0)[2];
      for (const size_t i : {1, 2}) take(i, 2, 0, seen);
      if (masked) take(3, in(3).size() - 1, 0, seen);
    }
    return true;
  }

  bool cached() {
    const bool paged = whole_.op == Op::PagedAttention;
    if (axis_ == 3) return take(2, 3), true;
    if (axis_ == 2 && attr_int(whole_.attrs, "causal") != 0) return false;
    take(0, axis_);
    if (!paged && whole_.own_inputs() > 4) take_broadcast(4, {out_[0], out_[1], out_[2], in(1)[2]});
    if (axis_ == 0) {
      for (size_t i = paged ? 3 : 1; i < (paged ? 5u : 4u); ++i) take(i, 0);
    } else if (axis_ == 1) {
      const int64_t shared = out_[1] / in(1)[1];
      if (begin_ % shared != 0 || end_ % shared != 0) return false;
      for (const size_t i : {1, 2}) take(i, 1, begin_ / shared, end_ / shared);
    }
    return true;
  }

  const ComputeDesc& whole_;
  size_t axis_;
  int64_t begin_, end_;
  const Shape& out_;
  Piece piece_;
};

// Positions [begin, end) along an axis of the only result. Nothing: the operator mixes what is along that axis, or such
// a piece would see padding only.
inline std::optional<Piece> piece_of(const ComputeDesc& whole, size_t axis, int64_t begin, int64_t end) {
  return PieceOf(whole, axis, begin, end).make();
}

}  // namespace nlsplit::testing
