#include "graph/differentiate/rules.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "graph/differentiate/backward.h"
#include "graph/operators/shapes.h"

namespace nlsplit {
namespace {

using Axes = std::vector<int64_t>;

// ---- pairs of elements

void back_add(Backward& b) {
  for (size_t i = 0; i < b.inputs(); ++i) {
    if (b.wants(i)) b.give(i, b.sum_to(b.dy(), b.shape(b.x(i))));
  }
}
void back_sub(Backward& b) {
  if (b.wants(0)) b.give(0, b.sum_to(b.dy(), b.shape(b.x(0))));
  if (b.wants(1)) b.give(1, b.sum_to(b.add(Op::Neg, {b.dy()}), b.shape(b.x(1))));
}
void back_mul(Backward& b) {
  for (size_t i = 0; i < 2; ++i) {
    if (b.wants(i)) b.give(i, b.sum_to(b.add(Op::Mul, {b.dy(), b.x(1 - i)}), b.shape(b.x(i))));
  }
}
// y = a / b: da = dy / b, db = -dy y / b.
void back_div(Backward& b) {
  if (b.wants(0)) b.give(0, b.sum_to(b.add(Op::Div, {b.dy(), b.x(1)}), b.shape(b.x(0))));
  if (!b.wants(1)) return;
  const ValueId quotient = b.add(Op::Div, {b.add(Op::Mul, {b.dy(), b.y()}), b.x(1)});
  b.give(1, b.sum_to(b.add(Op::Neg, {quotient}), b.shape(b.x(1))));
}
void back_where(Backward& b) {
  const ValueId zero = b.constant({}, 0);
  if (b.wants(1)) b.give(1, b.sum_to(b.add(Op::Where, {b.x(0), b.dy(), zero}), b.shape(b.x(1))));
  if (b.wants(2)) b.give(2, b.sum_to(b.add(Op::Where, {b.x(0), zero, b.dy()}), b.shape(b.x(2))));
}

// ---- functions of each element; from the result where that says enough, because it is kept anyway

template <Op gradient>
void by_result(Backward& b) {
  b.give(0, b.add(gradient, {b.dy(), b.y()}, b.attrs()));
}
template <Op gradient>
void by_operand(Backward& b) {
  b.give(0, b.add(gradient, {b.dy(), b.x(0)}, b.attrs()));
}
// dx = dy e^x = dy y
void back_exp(Backward& b) { b.give(0, b.add(Op::Mul, {b.dy(), b.y()})); }
// dx = dy / (2 y)
void back_sqrt(Backward& b) { b.give(0, b.add(Op::Div, {b.dy(), b.add(Op::Add, {b.y(), b.y()})})); }
void back_neg(Backward& b) { b.give(0, b.add(Op::Neg, {b.dy()})); }
// dx = dy / x
void back_log(Backward& b) { b.give(0, b.add(Op::Div, {b.dy(), b.x(0)})); }

// ---- windows. y[o] = Σ w[tap] x[o + tap]: every pair (output, tap) is one multiply-add of y, one of dx
// (dx[o + tap] += w[tap] dy[o]) and one of dw (dw[tap] += x[o + tap] dy[o]). Chetlur et al., "cuDNN: efficient
// primitives for deep learning", 2014.

Axes all_but_channels(const Shape& shape) {
  Axes axes{0};
  for (size_t axis = 2; axis < shape.size(); ++axis) axes.push_back(static_cast<int64_t>(axis));
  return axes;
}
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
    const Axes &kernel = attr_ints(b.attrs(), "kernel_shape"), &strides = attr_ints(b.attrs(), "strides"),
               &dilations = attr_ints(b.attrs(), "dilations"), &pads = attr_ints(b.attrs(), "pads");
    Axes left;
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
  set_attr(attrs, "extents", Axes(x.begin() + 2, x.end()));
  b.give(0, b.add(Op::AveragePoolGradient, {b.dy()}, std::move(attrs)));
}

// ---- sums over axes

// dx = factor dy, at all places that the sum has taken together.
void spread(Backward& b, const Axes& given, double factor) {
  const Shape& x = b.shape(b.x(0));
  Shape kept = x;
  for (const int64_t one : given) {
    const auto axis = axis_of(one, x.size());
    if (!axis.ok()) return b.fail(axis.error());
    kept[*axis] = 1;
  }
  const ValueId dy = b.reshaped(b.scaled(b.dy(), factor), kept);
  b.give(0, kept == x ? dy : b.add(Op::Expand, {dy}, {{"shape", x}}));
}
double share(const Backward& b) {
  return static_cast<double>(element_count(b.shape(b.y()))) / static_cast<double>(element_count(b.shape(b.x(0))));
}
void back_reduce_sum(Backward& b) { spread(b, attr_ints(b.attrs(), "axes"), 1); }
void back_reduce_mean(Backward& b) { spread(b, attr_ints(b.attrs(), "axes"), share(b)); }
void back_global_average_pool(Backward& b) {
  Axes axes(b.shape(b.x(0)).size() - 2);
  std::iota(axes.begin(), axes.end(), 2);
  spread(b, axes, share(b));
}

// ---- products

// Y = alpha op(A) op(B) + beta C.
void back_gemm(Backward& b) {
  const int64_t ta = attr_int(b.attrs(), "transA"), tb = attr_int(b.attrs(), "transB");
  const auto product = [&](ValueId left, ValueId right, int64_t turn_left, int64_t turn_right) {
    return b.add(
        Op::Gemm, {left, right},
        {{"alpha", attr_float(b.attrs(), "alpha")}, {"beta", 1.0}, {"transA", turn_left}, {"transB", turn_right}});
  };
  if (b.wants(0)) b.give(0, ta != 0 ? product(b.x(1), b.dy(), tb, 1) : product(b.dy(), b.x(1), 0, 1 - tb));
  if (b.wants(1)) b.give(1, tb != 0 ? product(b.dy(), b.x(0), 1, ta) : product(b.x(0), b.dy(), 1 - ta, 0));
  if (b.wants(2)) b.give(2, b.sum_to(b.scaled(b.dy(), attr_float(b.attrs(), "beta")), b.shape(b.x(2))));
}
// dA = dY Bᵀ, dB = Aᵀ dY; a matrix that all samples share gets the product of all their rows.
void back_matmul(Backward& b) {
  const Shape a = b.shape(b.x(0)), w = b.shape(b.x(1));
  if (a.size() < 2 || w.size() < 2) return b.fail(unsupported("no gradient of a MatMul by a vector is known"));
  if (b.wants(0)) b.give(0, b.sum_to(b.add(Op::MatMul, {b.dy(), b.transposed(b.x(1))}), a));
  if (b.wants(1) && w.size() == 2) {
    const ValueId rows = b.reshaped(b.x(0), {element_count(a) / a.back(), a.back()});
    const ValueId dy = b.reshaped(b.dy(), {element_count(a) / a.back(), w.back()});
    b.give(1, b.add(Op::Gemm, {rows, dy},
                    {{"alpha", 1.0}, {"beta", 1.0}, {"transA", int64_t{1}}, {"transB", int64_t{0}}}));
  } else if (b.wants(1)) {
    b.give(1, b.sum_to(b.add(Op::MatMul, {b.transposed(b.x(0)), b.dy()}), w));
  }
  if (b.wants(2)) b.give(2, b.sum_to(b.dy(), b.shape(b.x(2))));
}

// ---- normalizations

// Mean and variance are constants: y = (x - mean) r scale + bias with r = 1 / sqrt(var + epsilon), channel by channel.
void back_batch_norm(Backward& b) {
  const Shape& x = b.shape(b.x(0));
  if (b.wants(3) || b.wants(4)) return b.fail(unsupported("BatchNormalization's mean and variance are not trained"));
  Shape along(x.size(), 1);
  along[1] = x[1];
  const ValueId deviation =
      b.add(Op::Sqrt, {b.add(Op::Add, {b.x(4), b.constant({}, attr_float(b.attrs(), "epsilon"))})});
  if (b.wants(0)) b.give(0, b.add(Op::Mul, {b.dy(), b.reshaped(b.add(Op::Div, {b.x(1), deviation}), along)}));
  const Axes axes = all_but_channels(x);
  if (b.wants(1)) {
    const ValueId centred = b.add(Op::Sub, {b.x(0), b.reshaped(b.x(3), along)});
    b.give(1, b.add(Op::Div, {b.summed(b.add(Op::Mul, {b.dy(), centred}), axes), deviation}));
  }
  if (b.wants(2)) b.give(2, b.summed(b.dy(), axes));
}
// The normalized x is computed again.
void back_layer_norm(Backward& b) {
  if (b.wants(0)) b.give(0, b.add(Op::LayerNormalizationGradient, {b.dy(), b.x(0), b.x(1)}, b.attrs()));
  if (b.wants(1)) {
    const ValueId normalized = b.add(Op::LayerNormalization, {b.x(0), b.constant(b.shape(b.x(1)), 1)}, b.attrs());
    b.give(1, b.sum_to(b.add(Op::Mul, {b.dy(), normalized}), b.shape(b.x(1))));
  }
  if (b.wants(2)) b.give(2, b.sum_to(b.dy(), b.shape(b.x(2))));
}
// Each plane is a row of a LayerNormalization.
void back_instance_norm(Backward& b) {
  const Shape x = b.shape(b.x(0));
  const int64_t plane = element_count(x) / (x[0] * x[1]);
  Shape along(x.size(), 1);
  along[1] = x[1];
  const ValueId rows = b.reshaped(b.x(0), {x[0], x[1], plane}), ones = b.constant({plane}, 1);
  const Attrs attrs{{"axis", int64_t{2}}, {"epsilon", attr_float(b.attrs(), "epsilon")}};
  if (b.wants(0)) {
    const ValueId dy = b.reshaped(b.add(Op::Mul, {b.dy(), b.reshaped(b.x(1), along)}), {x[0], x[1], plane});
    b.give(0, b.reshaped(b.add(Op::LayerNormalizationGradient, {dy, rows, ones}, attrs), x));
  }
  if (b.wants(1)) {
    const ValueId normalized = b.reshaped(b.add(Op::LayerNormalization, {rows, ones}, attrs), x);
    b.give(1, b.summed(b.add(Op::Mul, {b.dy(), normalized}), all_but_channels(x)));
  }
  if (b.wants(2)) b.give(2, b.summed(b.dy(), all_but_channels(x)));
}

// ---- what only moves elements: back to where they came from

void back_reshape(Backward& b) { b.give(0, b.reshaped(b.dy(), b.shape(b.x(0)))); }
void back_expand(Backward& b) { b.give(0, b.sum_to(b.dy(), b.shape(b.x(0)))); }
void back_transpose(Backward& b) {
  const Axes& perm = attr_ints(b.attrs(), "perm");
  Axes inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  b.give(0, b.add(Op::Transpose, {b.dy()}, {{"perm", std::move(inverse)}}));
}
ValueId sliced(Backward& b, ValueId from, Axes axes, Axes starts, Axes ends) {
  Axes steps(axes.size(), 1);
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
  const Axes& pads = attr_ints(b.attrs(), "pads");
  const Shape& x = b.shape(b.x(0));
  Axes axes(x.size()), starts(x.size()), ends(x.size());
  for (size_t axis = 0; axis < x.size(); ++axis) {
    if (pads[axis] < 0 || pads[axis + x.size()] < 0)
      return b.fail(unsupported("no gradient of a Pad that cuts is known"));
    axes[axis] = static_cast<int64_t>(axis), starts[axis] = pads[axis], ends[axis] = pads[axis] + x[axis];
  }
  b.give(0, sliced(b, b.dy(), std::move(axes), std::move(starts), std::move(ends)));
}
void back_slice(Backward& b) {
  const Shape& x = b.shape(b.x(0));
  const auto sliced = sliced_axes(x, b.attrs());
  if (!sliced.ok()) return b.fail(sliced.error());
  Axes pads(2 * x.size());
  for (size_t axis = 0; axis < x.size(); ++axis) {
    const SlicedAxis& along = (*sliced)[axis];
    if (along.step != 1) return b.fail(unsupported("no gradient of a Slice in steps is known"));
    pads[axis] = along.start;
    pads[axis + x.size()] = x[axis] - along.start - along.count;
  }
  b.give(0, b.add(Op::Pad, {b.dy()}, {{"pads", std::move(pads)}, {"value", 0.0}}));
}
void back_gather(Backward& b) {
  if (b.wants(1)) return b.fail(unsupported("Gather: its indices have no gradient"));
  const Shape& x = b.shape(b.x(0));
  const auto axis = axis_of(attr_int(b.attrs(), "axis"), x.size());
  if (!axis.ok()) return b.fail(axis.error());
  b.give(0, b.add(Op::GatherGradient, {b.dy(), b.x(1)}, {{"axis", static_cast<int64_t>(*axis)}, {"extent", x[*axis]}}));
}

// ---- losses

void back_cross_entropy(Backward& b) {
  if (b.wants(1)) return b.fail(unsupported("SoftmaxCrossEntropy: its labels have no gradient"));
  b.give(0, b.add(Op::SoftmaxCrossEntropyGradient, {b.dy(), b.x(0), b.x(1)}));
}

struct Row {
  Op op;
  BackwardRule rule;
};
constexpr Row backward_rules[] = {
    {Op::Add, back_add},
    {Op::Sum, back_add},
    {Op::Sub, back_sub},
    {Op::Mul, back_mul},
    {Op::Div, back_div},
    {Op::Where, back_where},
    {Op::Relu, by_result<Op::ReluGradient>},
    {Op::Sigmoid, by_result<Op::SigmoidGradient>},
    {Op::Tanh, by_result<Op::TanhGradient>},
    {Op::HardSwish, by_operand<Op::HardSwishGradient>},
    {Op::Exp, back_exp},
    {Op::Sqrt, back_sqrt},
    {Op::Neg, back_neg},
    {Op::Log, back_log},
    {Op::Erf, by_operand<Op::ErfGradient>},
    {Op::LeakyRelu, by_operand<Op::LeakyReluGradient>},
    {Op::HardSigmoid, by_operand<Op::HardSigmoidGradient>},
    {Op::Clip, by_operand<Op::ClipGradient>},
    {Op::Gelu, by_operand<Op::GeluGradient>},
    {Op::Conv, back_conv},
    {Op::ConvTranspose, back_conv_transpose},
    {Op::MaxPool, back_max_pool},
    {Op::AveragePool, back_average_pool},
    {Op::GlobalAveragePool, back_global_average_pool},
    {Op::ReduceSum, back_reduce_sum},
    {Op::ReduceMean, back_reduce_mean},
    {Op::Gemm, back_gemm},
    {Op::MatMul, back_matmul},
    {Op::BatchNormalization, back_batch_norm},
    {Op::LayerNormalization, back_layer_norm},
    {Op::InstanceNormalization, back_instance_norm},
    {Op::LRN, by_operand<Op::LRNGradient>},
    {Op::Softmax, by_result<Op::SoftmaxGradient>},
    {Op::LogSoftmax, by_result<Op::LogSoftmaxGradient>},
    {Op::Identity, back_reshape},
    {Op::Reshape, back_reshape},
    {Op::Flatten, back_reshape},
    {Op::Expand, back_expand},
    {Op::Transpose, back_transpose},
    {Op::Concat, back_concat},
    {Op::Pad, back_pad},
    {Op::Slice, back_slice},
    {Op::Gather, back_gather},
    {Op::SoftmaxCrossEntropy, back_cross_entropy},
};

}  // namespace

BackwardRule backward_rule(Op op) {
  const auto* row = std::ranges::find(backward_rules, op, &Row::op);
  return row == std::end(backward_rules) ? nullptr : row->rule;
}

}  // namespace nlsplit
