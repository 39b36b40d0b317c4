// What it takes to get from the gradient of an operator's output (dy) to those of its inputs. y = f(x, …), and the
// chain rule gives dx = (∂y/∂x)ᵀ dy (Baydin, Pearlmutter, Radul, Siskind, "Automatic differentiation in machine
// learning: a survey", JMLR 18, 2018, section 3.2). Each formula stands at its function; a multiplication, an addition
// and a call of a function are one operation each, as in the forward work.
#include "graph/ops_gradient.h"

#include <fmt/format.h>

#include <algorithm>

namespace nlsplit {
namespace {

double results(const GradientQuery& query) { return count(query.outputs[0]); }
bool asks(const GradientQuery& query, size_t input) { return (query.by >> input & 1) != 0; }

constexpr uint64_t bit(size_t input) { return uint64_t{1} << input; }

// One gradient only, of an operator with one operand: `each` operations an element.
Gradient each(const GradientQuery& query, double each_element, bool keeps_input, bool keeps_output) {
  Gradient gradient;
  gradient.flops = flops(each_element * results(query));
  gradient.keeps_inputs = keeps_input ? bit(0) : 0;
  gradient.keeps_output = keeps_output;
  return gradient;
}

// An operand that was broadcast gets the sum over all places it went to.
double sum_if_broadcast(const GradientQuery& query, size_t input) {
  return query.inputs[input].shape == query.outputs[0].shape ? 0 : results(query);
}

// Of two products with as many multiply-adds as the forward one: by the first operand it meets the second, and the
// reverse; by a bias it is summed.
Gradient product(const GradientQuery& query, double forward_flops) {
  Gradient gradient;
  double sum = 0;
  if (asks(query, 0)) {
    sum += forward_flops;
    gradient.keeps_inputs |= bit(1);
  }
  if (asks(query, 1)) {
    sum += forward_flops;
    gradient.keeps_inputs |= bit(0);
  }
  if (asks(query, 2)) sum += results(query);
  gradient.flops = flops(sum);
  return gradient;
}

// Multiply-adds of an output element: weights are [outputs, inputs of a group, spatial extents…].
}  // namespace

// y[o] = sum over taps of w[tap] x[o + tap]. Every pair (output, tap) is one multiply-add of y, one of dx
// (dx[o + tap] += w[tap] dy[o]) and one of dw (dw[tap] += x[o + tap] dy[o]); db sums dy. Chetlur et al., "cuDNN:
// efficient primitives for deep learning", 2014, have the three as one family of the same cost.
Differentiated gradient_conv(const GradientQuery& query) {
  return product(query, 2 * taps_of(query.inputs[1]) * results(query));
}

// The same pairs with x and y exchanged.
Differentiated gradient_conv_transpose(const GradientQuery& query) {
  return product(query, 2 * taps_of(query.inputs[1]) * count(query.inputs[0]));
}

// y = a b + c, M x K by K x N: da = dy bᵀ and db = aᵀ dy are M N K multiply-adds each; dc sums or scales dy.
Differentiated gradient_gemm(const GradientQuery& query) {
  const Shape& a = query.inputs[0].shape;
  const double k = static_cast<double>(attr_int(query.attrs, "transA") != 0 ? a[0] : a[1]);
  return product(query, 2 * k * results(query));
}

// The same for every matrix of the batch; where an operand is the same for all of them the sums go on over the batch.
Differentiated gradient_matmul(const GradientQuery& query) {
  return product(query, 2 * static_cast<double>(query.inputs[0].shape.back()) * results(query));
}

// y = a + b: da = db = dy.
Differentiated gradient_add(const GradientQuery& query) {
  Gradient gradient;
  double sum = 0;
  for (size_t i = 0; i < query.inputs.size(); ++i) {
    if (!asks(query, i)) continue;
    if (query.inputs[i].shape == query.outputs[0].shape) gradient.passes |= bit(i);
    sum += sum_if_broadcast(query, i);
  }
  gradient.flops = flops(sum);
  return gradient;
}

// y = a - b: da = dy, db = -dy.
Differentiated gradient_sub(const GradientQuery& query) {
  ASSIGN_OR_RETURN(Gradient gradient, gradient_add(query));
  if ((gradient.passes & bit(1)) != 0) gradient.flops += flops(results(query));
  gradient.passes &= ~bit(1);
  return gradient;
}

// y = a b: da = dy b, db = dy a.
Differentiated gradient_mul(const GradientQuery& query) {
  Gradient gradient;
  double sum = 0;
  for (size_t i = 0; i < 2; ++i) {
    if (!asks(query, i)) continue;
    sum += results(query) + sum_if_broadcast(query, i);
    gradient.keeps_inputs |= bit(1 - i);
  }
  gradient.flops = flops(sum);
  return gradient;
}

// y = a / b: da = dy / b, db = -dy y / b.
Differentiated gradient_div(const GradientQuery& query) {
  Gradient gradient;
  gradient.keeps_inputs = bit(1);
  gradient.keeps_output = asks(query, 1);
  double sum = 0;
  if (asks(query, 0)) sum += results(query) + sum_if_broadcast(query, 0);
  if (asks(query, 1)) sum += 3 * results(query) + sum_if_broadcast(query, 1);
  gradient.flops = flops(sum);
  return gradient;
}

Differentiated gradient_pass(const GradientQuery& query) {
  Gradient gradient;
  gradient.passes = query.by;
  return gradient;
}

// dx = dy where y > 0.
Differentiated gradient_relu(const GradientQuery& query) { return each(query, 1, false, true); }
// dx = dy y (1 - y)
Differentiated gradient_sigmoid(const GradientQuery& query) { return each(query, 3, false, true); }
// dx = dy (1 - y y)
Differentiated gradient_tanh(const GradientQuery& query) { return each(query, 3, false, true); }
// y = x clip(x / 6 + 1 / 2, 0, 1): dx = dy (x / 3 + 1 / 2) in the middle, dy or 0 outside. Two x may share a y.
Differentiated gradient_hard_swish(const GradientQuery& query) { return each(query, 3, true, false); }
// dx = dy y
Differentiated gradient_exp(const GradientQuery& query) { return each(query, 1, false, true); }
// dx = dy / (y + y)
Differentiated gradient_sqrt(const GradientQuery& query) { return each(query, 2, false, true); }
Differentiated gradient_neg(const GradientQuery& query) { return each(query, 1, false, false); }
// dx = dy (2 / sqrt(pi)) exp(-(x x))
Differentiated gradient_erf(const GradientQuery& query) { return each(query, 5, true, false); }

// dx = dy (Φ(x) + x φ(x)): Φ by a scale, erf, (1 + it) / 2 (4), φ by a square, a scale, exp, a scale (4), and the
// formula (3). With t = tanh(u), u = x (r + r c x²): dx = dy ((1 + t) / 2 + x (1 - t²) / 2 (r + 3 r c x²)): t (5), each
// bracket (2, 2, 2), and the products and sums between them (5).
Differentiated gradient_gelu(const GradientQuery& query) {
  return each(query, attr_string(query.attrs, "approximate") == "tanh" ? 16 : 11, true, false);
}

// dx = dy, or alpha dy where x < 0. Unless alpha is negative y has x's sign.
Differentiated gradient_leaky_relu(const GradientQuery& query) {
  const bool same_sign = attr_float(query.attrs, "alpha") >= 0;
  return each(query, 1, !same_sign, same_sign);
}

// dx = dy (times the slope) where y is strictly between its limits.
Differentiated gradient_clamp(const GradientQuery& query) { return each(query, 1, false, true); }

// dx[o + tap] += dy[o] for the tap whose x is y: a comparison for each tap. Both x and y are read (cudnnPoolingBackward
// takes them, too), so nothing but them is kept.
Differentiated gradient_max_pool(const GradientQuery& query) {
  double taps = 1;
  for (const int64_t extent : attr_ints(query.attrs, "kernel_shape")) taps *= static_cast<double>(extent);
  return each(query, taps, true, true);
}

// dx[o + tap] += dy[o] / taps for all taps.
Differentiated gradient_average_pool(const GradientQuery& query) {
  double taps = 1;
  for (const int64_t extent : attr_ints(query.attrs, "kernel_shape")) taps *= static_cast<double>(extent);
  return each(query, taps, false, false);
}

// dx = dy / n at all n places.
Differentiated gradient_mean(const GradientQuery& query) { return each(query, 1, false, false); }

// y = (x - mean) r scale + bias with r = 1 / sqrt(var + epsilon), mean and var given, not computed of x (ONNX's
// inference form; training with frozen statistics). dx = dy (r scale); dscale = r sum (x - mean) dy; dbias = sum dy.
Differentiated gradient_batch_norm(const GradientQuery& query) {
  if (asks(query, 3) || asks(query, 4))
    return unsupported("its mean and variance are given, not computed: it has no gradient by them");
  Gradient gradient;
  double sum = 0;
  if (asks(query, 0)) {
    sum += 1;
    gradient.keeps_inputs |= bit(1) | bit(4);
  }
  if (asks(query, 1)) {
    sum += 3;
    gradient.keeps_inputs |= bit(0) | bit(3) | bit(4);
  }
  if (asks(query, 2)) sum += 1;
  gradient.flops = flops(sum * results(query));
  return gradient;
}

// Over a row: z = (x - mean) r, y = scale z + bias; with g = scale dy: dx = r (g - mean(g) - z mean(g z)); dscale = sum
// dy z; dbias = sum dy (Ba, Kiros, Hinton, "Layer normalization", 2016; the derivation is batch normalization's, Ioffe
// and Szegedy 2015, section 3). Mean and r are not among the operator's results, so whoever needs z begins with them:
// sum; subtract, square, sum; subtract, times r (6). Then for dx: g, its sum, g z and its sum, and the four operations
// of the formula (8); for dscale: a product and a sum (2).
Differentiated gradient_normalize(const GradientQuery& query) {
  Gradient gradient;
  double sum = 0;
  if (asks(query, 0)) {
    sum += 14;
    gradient.keeps_inputs |= bit(0) | bit(1);
  }
  if (asks(query, 1)) {
    sum += 8;
    gradient.keeps_inputs |= bit(0);
  }
  if (asks(query, 2)) sum += 1;
  gradient.flops = flops(sum * results(query));
  return gradient;
}

// y = x / s^beta, s = bias + alpha / n times the sum of x² over n channels (Krizhevsky, Sutskever, Hinton, NeurIPS
// 2012). dx = dy / s^beta - (2 alpha beta / n) x times the sum of dy y / s over the same channels. s again: squares and
// sum (2 n), scale, shift, power (3); dy y / s (2) and its sum (n); the formula (4).
Differentiated gradient_lrn(const GradientQuery& query) {
  return each(query, 3 * static_cast<double>(attr_int(query.attrs, "size")) + 9, true, true);
}

// dx = y (dy - sum(dy y))
Differentiated gradient_softmax(const GradientQuery& query) { return each(query, 4, false, true); }

// Parts of dy go back to where they came from; what was left out gets zeros.
Differentiated gradient_copy(const GradientQuery&) { return Gradient{}; }

// dx[index] += dy, for every element of dy; the gradient by a table is as large as the table.
Differentiated gradient_gather(const GradientQuery& query) {
  if (asks(query, 1)) return unsupported("its indices have no gradient");
  Gradient gradient;
  gradient.flops = flops(results(query));
  gradient.keeps_inputs = bit(1);
  return gradient;
}

}  // namespace nlsplit
