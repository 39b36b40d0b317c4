// Gradients of BatchNormalization by its scale, of LayerNormalization by its operand and of Softmax; the loss of a
// Softmax and its gradient. Sums go through lanes and chains whose elements a row's length alone chooses.
#include <algorithm>
#include <cmath>

#include "graph/operators/shapes.h"
#include "kernels/functions/epilogue.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"
#include "kernels/normalizations/chains.h"

namespace nlsplit::inline kernels {
namespace {

// f(row) for all rows, several at a time, so that short ones are worth handing out.
template <class F>
void rows_in_pieces(const KernelCall& call, int64_t rows, int64_t row_floats, const F& f) {
  constexpr int64_t piece_floats = 8192;
  const int64_t at_once = std::max<int64_t>(1, piece_floats / std::max<int64_t>(row_floats, 1));
  parallel_for(call, (rows + at_once - 1) / at_once, [&](int64_t piece) {
    for (int64_t row = piece * at_once; row < std::min(rows, (piece + 1) * at_once); ++row) f(row);
  });
}

// Σ dy (x - mean), times 1 / sqrt(var + epsilon).
void run_batch_norm_scale(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Shape& x = desc.inputs[1].shape;
  const int64_t samples = x[0], channels = x[1];
  const int64_t plane = element_count(x) / std::max<int64_t>(samples * channels, 1);
  const double epsilon = attr_float(desc.attrs, "epsilon");
  float* out = output(call);
  sum_planes(
      call, samples, channels, plane,
      [&](int64_t c) {
        return [mean = broadcast(input(call, 2)[c])](const Packet& dy, const Packet& v, const Packet& total) {
          return multiply_add(dy, subtract(v, mean), total);
        };
      },
      out, input(call, 0), input(call, 1));
  for (int64_t c = 0; c < channels; ++c)
    out[c] = static_cast<float>(out[c] * (1 / std::sqrt(input(call, 3)[c] + epsilon)));
  Epilogue(call).apply(out, 0, channels);
}

// With t = normalized x and g = dy scale, over a row of n: dx = r (g - mean(g) - t mean(g t)).
void run_layer_norm_gradient(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const int64_t n = element_count(desc.inputs[2].shape), total = element_count(desc.outputs[0].shape);
  if (total == 0) return;
  const Epilogue epilogue(call);
  const double epsilon = attr_float(desc.attrs, "epsilon");
  const float* scale = input(call, 2);
  rows_in_pieces(call, total / n, n, [&](int64_t row) {
    const float *dy = input(call, 0) + row * n, *x = input(call, 1) + row * n;
    const Moments m = moments_of(x, n, epsilon);
    const Packet mean = broadcast(m.mean), r = broadcast(m.inverse);
    const auto normal = [&](const Packet& v) { return multiply(subtract(v, mean), r); };
    const float sum = sum_in_chains(
        n, [](const Packet& g, const Packet& s, const Packet& sums) { return multiply_add(g, s, sums); }, dy, scale);
    const float sum_t = sum_in_chains(
        n,
        [&](const Packet& g, const Packet& s, const Packet& v, const Packet& sums) {
          return multiply_add(multiply(g, s), normal(v), sums);
        },
        dy, scale, x);
    const Packet share = broadcast(sum / static_cast<float>(n)), share_t = broadcast(sum_t / static_cast<float>(n));
    map_row(
        output(call) + row * n, n,
        [&](const Packet& g, const Packet& s, const Packet& v) {
          return multiply(r, subtract(subtract(multiply(g, s), share), multiply(normal(v), share_t)));
        },
        dy, scale, x);
    epilogue.apply(output(call), row * n, n);
  });
}

// dx = y (dy - Σ dy y); of the logarithm dx = dy - e^y Σ dy.
void run_softmax_gradient(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Shape& shape = desc.outputs[0].shape;
  const int64_t total = element_count(shape);
  if (total == 0) return;
  const size_t axis = axis_of(attr_int(desc.attrs, "axis"), shape.size()).value();
  int64_t inner = 1;
  for (size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
  const int64_t extent = shape[axis], each = extent * inner;
  const Epilogue epilogue(call);
  const bool logarithm = desc.op == Op::LogSoftmaxGradient;
  const auto term = [&](const Packet& dy, const Packet& y, const Packet& sum) {
    return logarithm ? add(sum, dy) : multiply_add(dy, y, sum);
  };
  const auto slope = [&](const Packet& dy, const Packet& y, const Packet& sum) {
    return logarithm ? subtract(dy, multiply(Eigen::internal::pexp(y), sum)) : multiply(y, subtract(dy, sum));
  };
  rows_in_pieces(call, total / each, each, [&](int64_t o) {
    const float *dy = input(call, 0) + o * each, *y = input(call, 1) + o * each;
    float* to = output(call) + o * each;
    if (axis + 1 == shape.size()) {
      const Packet sum = broadcast(sum_in_chains(extent, term, dy, y));
      map_row(
          to, extent, [&](const Packet& a, const Packet& b) { return slope(a, b, sum); }, dy, y);
    }
    for (int64_t i = 0; axis + 1 < shape.size() && i < inner; i += width) {
      const int64_t part = std::min<int64_t>(width, inner - i);
      const auto get = [&](const float* from, int64_t k) {
        const float* at = from + k * inner + i;
        return part == width ? load(at) : load_part(at, part);
      };
      Packet sum = zeros();
      for (int64_t k = 0; k < extent; ++k) sum = term(get(dy, k), get(y, k), sum);
      for (int64_t k = 0; k < extent; ++k) {
        const Packet dx = slope(get(dy, k), get(y, k), sum);
        float* at = to + k * inner + i;
        part == width ? store(at, dx) : store_part(at, dx, part);
      }
    }
    epilogue.apply(output(call), o * each, each);
  });
}

// Of a row of logits: the largest, and the sum of the exponentials of the others less it.
struct Exponentials {
  float largest = 0, sum = 0;
};
Exponentials exponentials_of(const float* row, int64_t n) {
  Exponentials e;
  e.largest = largest_of_row(row, n);
  const Packet largest = broadcast(e.largest);
  e.sum = sum_in_chains(
      n, [&](const Packet& x, const Packet& sum) { return add(sum, Eigen::internal::pexp(subtract(x, largest))); },
      row);
  return e;
}

// log Σ exp(x) - x[label]; its gradient dy (softmax(x) - one at the label).
void run_cross_entropy(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const bool is_gradient = desc.op == Op::SoftmaxCrossEntropyGradient;
  const size_t at = is_gradient ? 1 : 0;  // of the logits
  const int64_t n = desc.inputs[at].shape.back(), rows = element_count(desc.inputs[at + 1].shape);
  if (rows == 0) return;
  const Epilogue epilogue(call);
  rows_in_pieces(call, n == 0 ? 0 : rows, n, [&](int64_t row) {
    const float* x = input(call, at) + row * n;
    const Exponentials e = exponentials_of(x, n);
    const int64_t label = whole_at(call, at + 1, row, n - 1);
    if (!is_gradient) {
      output(call)[row] = static_cast<float>(e.largest + std::log(static_cast<double>(e.sum)) - x[label]);
      return epilogue.apply(output(call), row, 1);
    }
    const float dy = input(call, 0)[row];
    const Packet largest = broadcast(e.largest), share = broadcast(dy / e.sum);
    float* to = output(call) + row * n;
    map_row(
        to, n, [&](const Packet& v) { return multiply(Eigen::internal::pexp(subtract(v, largest)), share); }, x);
    to[label] -= dy;
    epilogue.apply(output(call), row * n, n);
  });
}

}  // namespace

const KernelCode code::batch_norm_scale_gradient = {run_batch_norm_scale};
const KernelCode code::layer_norm_gradient = {run_layer_norm_gradient};
const KernelCode code::softmax_gradient = {run_softmax_gradient};
const KernelCode code::cross_entropy = {run_cross_entropy};

}  // namespace nlsplit::inline kernels
