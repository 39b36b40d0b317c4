// Gradients that are operators of their own (graph/operators/gradients.cc), and losses.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "graph/operators/shapes.h"
#include "graph/reference/array.h"

namespace nlsplit::inline graph::reference {
namespace {

// dx = dy f'(v), v being the result or the operand as the operator has it.
template <class Slope>
void by_slope(const Arrays& in, Array& out, const Slope& slope) {
  for (int64_t i = 0; i < out.count(); ++i) out.set(i, in[0]->number(i) * slope(in[1]->number(i)));
}

double gelu_slope(double x) {  // Φ(x) + x φ(x)
  return (1 + std::erf(x / std::numbers::sqrt2)) / 2 +
         x * std::exp(-x * x / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
}
double gelu_by_tanh_slope(double x) {
  const double c = std::sqrt(2 / std::numbers::pi), t = std::tanh(c * (x + 0.044715 * x * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

// Σ dy (x - mean) / sqrt(var + e) over all places of a channel.
void batch_norm_scale_gradient(const Attrs& attrs, const Arrays& in, Array& out) {
  const Shape& x = in[1]->type.shape;
  const int64_t channels = x[1], inner = in[1]->count() / std::max<int64_t>(1, x[0] * channels);
  for (int64_t c = 0; c < channels; ++c) {
    const double mean = in[2]->number(c), r = 1 / std::sqrt(in[3]->number(c) + attr_float(attrs, "epsilon"));
    double sum = 0;
    for (int64_t n = 0; n < x[0]; ++n) {
      for (int64_t i = (n * channels + c) * inner; i < (n * channels + c + 1) * inner; ++i)
        sum += in[0]->number(i) * (in[1]->number(i) - mean);
    }
    out.set(c, sum * r);
  }
}

// With t = normalized x, over the n places of a channel: dx = scale r (dy - mean(dy) - t mean(dy t)), r = 1 / sqrt(var
// + e). Ioffe and Szegedy, "Batch normalization", ICML 2015, section 3, its equations put together.
void batch_norm_training_gradient(const Attrs& attrs, const Arrays& in, Array& out) {
  const Shape& x = in[1]->type.shape;
  const int64_t channels = x[1], inner = in[1]->count() / std::max<int64_t>(1, x[0] * channels);
  const auto for_places = [&](int64_t c, const auto& f) {
    for (int64_t n = 0; n < x[0]; ++n) {
      for (int64_t i = (n * channels + c) * inner; i < (n * channels + c + 1) * inner; ++i) f(i);
    }
  };
  for (int64_t c = 0; c < channels; ++c) {
    const double mean = in[3]->number(c), r = 1 / std::sqrt(in[4]->number(c) + attr_float(attrs, "epsilon"));
    double sum = 0, product = 0;
    for_places(c, [&](int64_t i) {
      sum += in[0]->number(i);
      product += in[0]->number(i) * (in[1]->number(i) - mean) * r;
    });
    const auto n = static_cast<double>(x[0] * inner);
    for_places(c, [&](int64_t i) {
      const double t = (in[1]->number(i) - mean) * r;
      out.set(i, in[2]->number(c) * r * (in[0]->number(i) - sum / n - t * product / n));
    });
  }
}

// With t = normalized x and g = dy scale, over a row of n: dx = r (g - mean(g) - t mean(g t)), r = 1 / sqrt(var + e).
void layer_norm_gradient(const Attrs& attrs, const Arrays& in, Array& out) {
  const Shape& shape = out.type.shape;
  const auto axis = axis_of(attr_int(attrs, "axis"), shape.size()).value();
  const int64_t n = element_count(Shape(shape.begin() + static_cast<std::ptrdiff_t>(axis), shape.end()));
  const auto extent = static_cast<double>(n);
  for (int64_t row = 0; n > 0 && row < out.count() / n; ++row) {
    const auto x = [&](int64_t i) { return in[1]->number(row * n + i); };
    const auto g = [&](int64_t i) { return in[0]->number(row * n + i) * in[2]->number(i); };
    double mean = 0, variance = 0, sum = 0, sum_t = 0;
    for (int64_t i = 0; i < n; ++i) mean += x(i) / extent;
    for (int64_t i = 0; i < n; ++i) variance += (x(i) - mean) * (x(i) - mean) / extent;
    const double r = 1 / std::sqrt(variance + attr_float(attrs, "epsilon"));
    for (int64_t i = 0; i < n; ++i) sum += g(i), sum_t += g(i) * (x(i) - mean) * r;
    for (int64_t i = 0; i < n; ++i)
      out.set(row * n + i, r * (g(i) - sum / extent - (x(i) - mean) * r * sum_t / extent));
  }
}

// y[c] = x[c] s[c]^-b with s[c] = bias + a / size Σ x[k]², k around c:
// dx[k] = dy[k] s[k]^-b - 2 a b / size x[k] Σ dy[c] x[c] s[c]^(-b - 1), c having k around it.
void lrn_gradient(const Attrs& attrs, const Arrays& in, Array& out) {
  const Shape& shape = out.type.shape;
  const double beta = attr_float(attrs, "beta"), bias = attr_float(attrs, "bias");
  const int64_t size = attr_int(attrs, "size"), channels = shape[1];
  const double share = attr_float(attrs, "alpha") / static_cast<double>(size);
  if (out.count() == 0) return;
  const int64_t inner = out.count() / (shape[0] * channels);
  for (int64_t n = 0; n < shape[0]; ++n) {
    for (int64_t i = 0; i < inner; ++i) {
      const auto at = [&](int64_t c) { return (n * channels + c) * inner + i; };
      const auto x = [&](int64_t c) { return in[1]->number(at(c)); };
      const auto first = [&](int64_t c) { return std::max<int64_t>(0, c - (size - 1) / 2); };
      const auto last = [&](int64_t c) { return std::min(channels - 1, c + size / 2); };
      std::vector<double> s(static_cast<size_t>(channels), bias), dx(s.size(), 0);
      for (int64_t c = 0; c < channels; ++c) {
        for (int64_t k = first(c); k <= last(c); ++k) s[static_cast<size_t>(c)] += share * x(k) * x(k);
      }
      for (int64_t c = 0; c < channels; ++c) {
        const double dy = in[0]->number(at(c)), own = s[static_cast<size_t>(c)];
        dx[static_cast<size_t>(c)] += dy * std::pow(own, -beta);
        for (int64_t k = first(c); k <= last(c); ++k)
          dx[static_cast<size_t>(k)] -= 2 * share * beta * x(k) * dy * x(c) * std::pow(own, -beta - 1);
      }
      for (int64_t c = 0; c < channels; ++c) out.set(at(c), dx[static_cast<size_t>(c)]);
    }
  }
}

// dx = y (dy - Σ dy y); of the logarithm dx = dy - e^y Σ dy.
void softmax_gradient(Op op, const Attrs& attrs, const Arrays& in, Array& out) {
  const Lines lines = lines_of(out.type.shape, attr_int(attrs, "axis"));
  const Array &dy = *in[0], &y = *in[1];
  for (int64_t o = 0; o < lines.outer; ++o) {
    for (int64_t i = 0; i < lines.inner; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < lines.extent; ++k) {
        const int64_t at = lines.at(o, i, k);
        sum += dy.number(at) * (op == Op::SoftmaxGradient ? y.number(at) : 1);
      }
      for (int64_t k = 0; k < lines.extent; ++k) {
        const int64_t at = lines.at(o, i, k);
        out.set(at, op == Op::SoftmaxGradient ? y.number(at) * (dy.number(at) - sum)
                                              : dy.number(at) - std::exp(y.number(at)) * sum);
      }
    }
  }
}

// As Gather takes them: an index below zero counts from the end, and one outside is the nearest inside.
void gather_gradient(const Attrs& attrs, const Arrays& in, Array& out) {
  const Lines lines = lines_of(out.type.shape, attr_int(attrs, "axis"));
  const int64_t count = in[1]->count();
  std::vector<double> sums(static_cast<size_t>(out.count()), 0);
  for (int64_t o = 0; o < lines.outer; ++o) {
    for (int64_t j = 0; j < count; ++j) {
      int64_t k = in[1]->wholes[static_cast<size_t>(j)];
      if (k < 0) k += lines.extent;
      k = std::clamp<int64_t>(k, 0, lines.extent - 1);
      for (int64_t i = 0; i < lines.inner; ++i)
        sums[static_cast<size_t>(lines.at(o, i, k))] += in[0]->number((o * count + j) * lines.inner + i);
    }
  }
  for (int64_t i = 0; i < out.count(); ++i) out.set(i, sums[static_cast<size_t>(i)]);
}

struct Row {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  int64_t label = 0;
};
Row row_of(const Array& logits, const Array& labels, int64_t row, int64_t classes) {
  Row of;
  for (int64_t c = 0; c < classes; ++c) of.largest = std::max(of.largest, logits.number(row * classes + c));
  for (int64_t c = 0; c < classes; ++c) of.sum += std::exp(logits.number(row * classes + c) - of.largest);
  of.label = std::clamp<int64_t>(labels.wholes[static_cast<size_t>(row)], 0, classes - 1);
  return of;
}

void cross_entropy(const Arrays& in, Array& out) {
  const int64_t classes = in[0]->type.shape.back();
  for (int64_t r = 0; classes > 0 && r < out.count(); ++r) {
    const Row row = row_of(*in[0], *in[1], r, classes);
    out.set(r, row.largest + std::log(row.sum) - in[0]->number(r * classes + row.label));
  }
}

// dx = dy (softmax(x) - one at the label)
void cross_entropy_gradient(const Arrays& in, Array& out) {
  const int64_t classes = in[1]->type.shape.back();
  for (int64_t r = 0; classes > 0 && r < in[0]->count(); ++r) {
    const Row row = row_of(*in[1], *in[2], r, classes);
    for (int64_t c = 0; c < classes; ++c) {
      const double share = std::exp(in[1]->number(r * classes + c) - row.largest) / row.sum;
      out.set(r * classes + c, in[0]->number(r) * (share - (c == row.label ? 1 : 0)));
    }
  }
}

// dx of an element is the product of the others, which may have zeros among them: those in front of it times those
// behind it.
void reduce_prod_gradient(const Attrs& attrs, const Arrays& in, Array& out) {
  const Shape& shape = out.type.shape;
  Shape kept = shape, along(shape.size(), 1);
  for (const int64_t given : attr_ints(attrs, "axes")) {
    const size_t axis = axis_of(given, shape.size()).value();
    along[axis] = shape[axis];
    kept[axis] = 1;
  }
  const std::vector<int64_t> strides = strides_of(shape);
  walk(kept, strides, [&](int64_t at, int64_t start) {
    std::vector<int64_t> places;
    std::vector<double> in_front;
    double product = 1;
    walk(along, strides, [&](int64_t, int64_t offset) {
      places.push_back(start + offset);
      in_front.push_back(product);
      product *= in[1]->number(places.back());
    });
    double behind = 1;
    for (size_t i = places.size(); i-- > 0;) {
      out.set(places[i], in[0]->number(at) * in_front[i] * behind);
      behind *= in[1]->number(places[i]);
    }
  });
}

// dx of an element is its cofactor: the determinant without its row and column, with a sign (Laplace).
void det_gradient(const Arrays& in, Array& out) {
  const int64_t n = out.type.shape.back();
  for (int64_t i = 0; n > 0 && i < out.count(); ++i) {
    const int64_t matrix = i / (n * n), row = i / n % n, column = i % n;
    std::vector<double> minor;
    for (int64_t k = 0; k < n * n; ++k) {
      if (k / n != row && k % n != column) minor.push_back(in[1]->number(matrix * n * n + k));
    }
    const double sign = (row + column) % 2 == 0 ? 1 : -1;
    out.set(i, in[0]->number(matrix) * sign * determinant(std::move(minor), n - 1));
  }
}

}  // namespace

// clang-format off
NLS_REFERENCE(ReluGradient, by_slope(in, out, [](double y) { return y > 0 ? 1.0 : 0.0; }))
NLS_REFERENCE(SigmoidGradient, by_slope(in, out, [](double y) { return y * (1 - y); }))
NLS_REFERENCE(TanhGradient, by_slope(in, out, [](double y) { return 1 - y * y; }))
NLS_REFERENCE(HardSwishGradient, by_slope(in, out, [](double x) { return x <= -3 ? 0 : x >= 3 ? 1 : x / 3 + 0.5; }))
NLS_REFERENCE(ErfGradient, by_slope(in, out, [](double x) { return 2 * std::numbers::inv_sqrtpi * std::exp(-x * x); }))
NLS_REFERENCE(LeakyReluGradient, by_slope(in, out, [a = attr_float(attrs, "alpha")](double v) { return v < 0 ? a : 1.0; }))
NLS_REFERENCE(HardSigmoidGradient, by_slope(in, out, [a = attr_float(attrs, "alpha")](double y) { return y > 0 && y < 1 ? a : 0.0; }))
NLS_REFERENCE(ClipGradient, by_slope(in, out, [lo = attr_float(attrs, "min"), hi = attr_float(attrs, "max")](double y) { return y > lo && y < hi ? 1.0 : 0.0; }))
NLS_REFERENCE(GeluGradient, by_slope(in, out, attr_string(attrs, "approximate") == "tanh" ? gelu_by_tanh_slope : gelu_slope))
NLS_REFERENCE(BatchNormalizationScaleGradient, batch_norm_scale_gradient(attrs, in, out))
NLS_REFERENCE(BatchNormalizationTrainingGradient, batch_norm_training_gradient(attrs, in, out))
NLS_REFERENCE(LayerNormalizationGradient, layer_norm_gradient(attrs, in, out))
NLS_REFERENCE(LRNGradient, lrn_gradient(attrs, in, out))
NLS_REFERENCE(SoftmaxGradient, softmax_gradient(op, attrs, in, out))
NLS_REFERENCE(LogSoftmaxGradient, softmax_gradient(op, attrs, in, out))
NLS_REFERENCE(GatherGradient, gather_gradient(attrs, in, out))
NLS_REFERENCE(ReduceProdGradient, reduce_prod_gradient(attrs, in, out))
NLS_REFERENCE(DetGradient, det_gradient(in, out))
NLS_REFERENCE(SoftmaxCrossEntropy, cross_entropy(in, out))
NLS_REFERENCE(SoftmaxCrossEntropyGradient, cross_entropy_gradient(in, out))
// clang-format on

}  // namespace nlsplit::inline graph::reference
