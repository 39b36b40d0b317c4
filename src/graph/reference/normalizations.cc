// Averages of planes and normalizations: sums in double, one row of elements after the other.
#include <algorithm>
#include <cmath>

#include "graph/operators/shapes.h"
#include "graph/reference/array.h"

namespace nlsplit::inline graph::reference {
namespace {

// Elements of a plane of [batch, channels, …]; at least 1: an empty tensor has none to divide by.
int64_t plane_of(const Shape& shape) {
  return std::max<int64_t>(1, element_count(Shape(shape.begin() + 2, shape.end())));
}

void global_average_pool(const Array& x, Array& out) {
  const int64_t extent = out.count() == 0 ? 0 : x.count() / out.count();
  for (int64_t p = 0; p < out.count(); ++p) {
    double sum = 0;
    for (int64_t i = 0; i < extent; ++i) sum += x.number(p * extent + i);
    out.set(p, sum / static_cast<double>(extent));
  }
}

void batch_normalization(const Attrs& attrs, const Arrays& in, Array& out) {
  const double epsilon = attr_float(attrs, "epsilon");
  const int64_t channels = out.type.shape[1], plane = plane_of(out.type.shape);
  for (int64_t at = 0; at < out.count(); ++at) {
    const int64_t c = at / plane % channels;
    const double scale = in[1]->number(c), bias = in[2]->number(c), mean = in[3]->number(c), var = in[4]->number(c);
    out.set(at, (in[0]->number(at) - mean) * scale / std::sqrt(var + epsilon) + bias);
  }
}

void batch_normalization_training(const Attrs& attrs, const Arrays& in, std::vector<Array>& out) {
  const Array& x = *in[0];
  const int64_t channels = x.type.shape[1], plane = plane_of(x.type.shape), samples = x.type.shape[0];
  const auto n = static_cast<double>(samples * plane);
  for (int64_t c = 0; c < channels; ++c) {
    const auto sum_of = [&](const auto& term) {
      double sum = 0;
      for (int64_t s = 0; s < samples; ++s) {
        for (int64_t i = (s * channels + c) * plane; i < (s * channels + c + 1) * plane; ++i) sum += term(x.number(i));
      }
      return sum;
    };
    const double mean = sum_of([](double v) { return v; }) / n;
    out[1].set(c, mean);
    out[2].set(c, sum_of([&](double v) { return (v - mean) * (v - mean); }) / n);
  }
  const Arrays parameters{in[0], in[1], in[2], &out[1], &out[2]};
  batch_normalization(attrs, parameters, out[0]);
}

// Rows of `size` elements to mean 0 and variance 1 (of the population, as ONNX has it), then element i of row r scaled
// and shifted as scale(r, i) and shift(r, i) say.
template <class Scale, class Shift>
void normalize_rows(const Array& x, int64_t size, double epsilon, Array& out, const Scale& scale, const Shift& shift) {
  if (out.count() == 0) return;
  parallel_for(out.count() / size, [&](int64_t row) {
    const double* from = x.reals.data() + row * size;
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < size; ++i) mean += from[i];
    mean /= static_cast<double>(size);
    for (int64_t i = 0; i < size; ++i) squares += (from[i] - mean) * (from[i] - mean);
    const double deviation = std::sqrt(squares / static_cast<double>(size) + epsilon);
    for (int64_t i = 0; i < size; ++i)
      out.set(row * size + i, (from[i] - mean) / deviation * scale(row, i) + shift(row, i));
  });
}

void layer_normalization(const Attrs& attrs, const Arrays& in, Array& out) {
  const Array &scale = *in[1], *bias = in.size() > 2 ? in[2] : nullptr;
  normalize_rows(
      *in[0], scale.count(), attr_float(attrs, "epsilon"), out, [&](int64_t, int64_t i) { return scale.number(i); },
      [&](int64_t, int64_t i) { return bias != nullptr ? bias->number(i) : 0.0; });
}

void instance_normalization(const Attrs& attrs, const Arrays& in, Array& out) {
  const int64_t channels = out.type.shape[1];
  normalize_rows(
      *in[0], plane_of(out.type.shape), attr_float(attrs, "epsilon"), out,
      [&](int64_t row, int64_t) { return in[1]->number(row % channels); },
      [&](int64_t row, int64_t) { return in[2]->number(row % channels); });
}

void lrn(const Attrs& attrs, const Array& x, Array& out) {
  const double alpha = attr_float(attrs, "alpha"), beta = attr_float(attrs, "beta"), bias = attr_float(attrs, "bias");
  const Shape& shape = out.type.shape;
  const int64_t size = attr_int(attrs, "size"), channels = shape[1], plane = plane_of(shape);
  if (out.count() == 0) return;
  parallel_for(shape[0] * channels, [&](int64_t nc) {
    const int64_t n = nc / channels, c = nc % channels;
    const int64_t first = std::max<int64_t>(0, c - (size - 1) / 2), last = std::min(channels - 1, c + size / 2);
    for (int64_t i = 0; i < plane; ++i) {
      double squares = 0;
      for (int64_t k = first; k <= last; ++k) {
        const double v = x.number((n * channels + k) * plane + i);
        squares += v * v;
      }
      const double divisor = std::pow(bias + alpha / static_cast<double>(size) * squares, beta);
      out.set(nc * plane + i, x.number(nc * plane + i) / divisor);
    }
  });
}

}  // namespace

// clang-format off
NLS_REFERENCE(GlobalAveragePool, global_average_pool(*in[0], out))
NLS_REFERENCE(BatchNormalization, batch_normalization(attrs, in, out))
NLS_REFERENCE(BatchNormalizationTraining, batch_normalization_training(attrs, in, outputs))
NLS_REFERENCE(LayerNormalization, layer_normalization(attrs, in, out))
NLS_REFERENCE(InstanceNormalization, instance_normalization(attrs, in, out))
NLS_REFERENCE(LRN, lrn(attrs, *in[0], out))
// clang-format on

}  // namespace nlsplit::inline graph::reference
