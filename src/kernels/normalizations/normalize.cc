// BatchNormalization, LRN, Softmax, ReduceMean, ReduceSum.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "kernels/functions/epilogue.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"
#include "kernels/normalizations/chains.h"
#include "kernels/normalizations/lrn.h"

namespace nlsplit::inline kernels {
namespace {

// Extents before, at and behind an axis.
struct Around {
  int64_t outer = 1, extent = 1, inner = 1;
  bool last = false;  // there is no axis behind it
};
Around around(const Shape& shape, size_t axis) {
  Around r;
  for (size_t i = 0; i < shape.size(); ++i) (i < axis ? r.outer : i == axis ? r.extent : r.inner) *= shape[i];
  r.last = axis + 1 == shape.size();
  return r;
}

void run_batch_norm(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Epilogue epilogue(call);
  const Around s = around(desc.inputs[0].shape, 1);
  const double epsilon = attr_float(desc.attrs, "epsilon");
  const float *scales = input(call, 1), *biases = input(call, 2), *means = input(call, 3), *variances = input(call, 4);
  for (int64_t plane = 0; plane < s.outer * s.extent; ++plane) {
    const int64_t c = plane % s.extent, at = plane * s.inner;
    const Packet mean = broadcast(means[c]), bias = broadcast(biases[c]);
    const Packet scale = broadcast(static_cast<float>(scales[c] / std::sqrt(variances[c] + epsilon)));
    // The mean goes first: x * scale + (bias - mean * scale) would cancel where the mean is large.
    map_row(
        output(call) + at, s.inner, [&](const Packet& x) { return multiply_add(subtract(x, mean), scale, bias); },
        input(call, 0) + at);
    epilogue.apply(output(call), at, s.inner);
  }
}

void run_lrn(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Epilogue epilogue(call);
  const Around s = around(desc.inputs[0].shape, 1);
  const int64_t size = attr_int(desc.attrs, "size");
  const LrnFunction normalize(desc.attrs);
  for (int64_t sample = 0; sample < s.outer; ++sample) {
    const float* from = input(call, 0) + sample * s.extent * s.inner;
    for (int64_t c = 0; c < s.extent; ++c) {
      const int64_t first = std::max<int64_t>(0, c - (size - 1) / 2);
      const int64_t last = std::min(s.extent - 1, c + size / 2);
      float* to = output(call) + (sample * s.extent + c) * s.inner;
      for (int64_t p = 0; p < s.inner; p += width) {
        const int64_t part = std::min<int64_t>(width, s.inner - p);
        const auto get = [&](int64_t channel) {
          const float* at = from + channel * s.inner + p;
          return part == width ? load(at) : load_part(at, part);
        };
        Packet squares = zeros();
        for (int64_t other = first; other <= last; ++other) {
          const Packet x = get(other);
          squares = multiply_add(x, x, squares);
        }
        const Packet result = normalize(get(c), squares);
        part == width ? store(to + p, result) : store_part(to + p, result, part);
      }
      epilogue.apply(output(call), to - output(call), s.inner);
    }
  }
}

void softmax_row(const float* from, float* to, int64_t n) {
  const Packet largest = broadcast(largest_of_row(from, n));
  const auto exponential = [&](const Packet& x) { return Eigen::internal::pexp(subtract(x, largest)); };
  Packet lanes = zeros();  // as sum_of_row
  int64_t i = 0;
  for (; i + width <= n; i += width) {
    const Packet e = exponential(load(from + i));
    store(to + i, e);
    lanes = add(lanes, e);
  }
  if (i < n) {
    store_part(to + i, exponential(load_part(from + i, n - i)), n - i);
    lanes = add(lanes, load_part(to + i, n - i));
  }
  const Packet share = broadcast(1.0f / sum_of_lanes(lanes));
  map_row(
      to, n, [&](const Packet& e) { return multiply(e, share); }, to);
}

// Along an axis `stride` floats apart, for `part` neighbouring columns.
void softmax_columns(const float* from, float* to, int64_t n, int64_t stride, int64_t part) {
  const auto get = [&](const float* at) { return part == width ? load(at) : load_part(at, part); };
  const auto put = [&](float* at, const Packet& x) { part == width ? store(at, x) : store_part(at, x, part); };
  Packet largest = get(from);
  for (int64_t i = 1; i < n; ++i) largest = at_least(get(from + i * stride), largest);
  Packet sum = zeros();
  for (int64_t i = 0; i < n; ++i) {
    const Packet e = Eigen::internal::pexp(subtract(get(from + i * stride), largest));
    put(to + i * stride, e);
    sum = add(sum, e);
  }
  for (int64_t i = 0; i < n; ++i) put(to + i * stride, divide(get(to + i * stride), sum));
}

void run_softmax(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Shape& shape = desc.inputs[0].shape;
  const int64_t total = element_count(shape);
  if (total == 0) return;
  const int64_t axis = attr_int(desc.attrs, "axis");
  const Around s = around(shape, static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(shape.size()) : axis));
  const Epilogue epilogue(call);
  constexpr int64_t piece_floats = 8192;  // so that short rows are worth handing out
  const int64_t each = s.extent * s.inner, at_once = std::max<int64_t>(1, piece_floats / each);
  parallel_for(call, (s.outer + at_once - 1) / at_once, [&](int64_t piece) {
    for (int64_t o = piece * at_once; o < std::min(s.outer, (piece + 1) * at_once); ++o) {
      const int64_t at = o * each;
      // By the axis, not by how many elements are behind it: a piece of a result may have one of many.
      if (s.last) softmax_row(input(call, 0) + at, output(call) + at, s.extent);
      for (int64_t i = 0; !s.last && i < s.inner; i += width) {
        softmax_columns(input(call, 0) + at + i, output(call) + at + i, s.extent, s.inner,
                        std::min<int64_t>(width, s.inner - i));
      }
      epilogue.apply(output(call), at, each);
    }
  });
}

// The axes, those of one kind that are neighbours taken together, as [reduced][kept][reduced].
struct Planes {
  int64_t outer = 1, kept = 1, n = 1;
};
constexpr size_t most_axes = 8;
std::optional<Planes> planes_of(const Shape& shape, const std::array<bool, most_axes>& reduced) {
  size_t axis = 0;
  Planes p;
  while (axis < shape.size() && reduced[axis]) p.outer *= shape[axis++];
  while (axis < shape.size() && !reduced[axis]) p.kept *= shape[axis++];
  const size_t last = axis;
  while (axis < shape.size() && reduced[axis]) p.n *= shape[axis++];
  if (axis < shape.size() || last == axis) return std::nullopt;
  return p;
}

// A sum of planes, where the axes are such. Else rows of the input, in its order, are added to where they belong: a
// kept last axis by vectors, a reduced one as a sum.
void run_reduce(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Shape& shape = desc.inputs[0].shape;
  const int64_t total = element_count(shape), results = element_count(desc.outputs[0].shape);
  float* out = output(call);
  std::fill(out, out + results, 0.0f);
  if (total == 0) return Epilogue(call).apply(out, 0, results);
  std::array<bool, most_axes> reduced{};
  for (int64_t axis : attr_ints(desc.attrs, "axes")) {
    reduced[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(shape.size()) : axis)] = true;
  }
  const std::optional<Planes> planes = planes_of(shape, reduced);
  if (planes && desc.op == Op::ReduceSum) {
    const auto sum = [](const Packet& x, const Packet& total) { return add(total, x); };
    sum_planes(
        call, planes->outer, planes->kept, planes->n, [&](int64_t) { return sum; }, out, input(call, 0));
    return Epilogue(call).apply(out, 0, results);
  }
  // Trailing axes of one kind are one row.
  size_t axes = shape.size();
  int64_t row = 1;
  const bool row_reduced = axes > 0 && reduced[axes - 1];
  while (axes > 0 && reduced[axes - 1] == row_reduced) row *= shape[--axes];
  std::array<int64_t, most_axes> stride{}, at{};
  int64_t next = row_reduced ? 1 : row;
  for (size_t axis = axes; axis-- > 0;) {
    stride[axis] = reduced[axis] ? 0 : next;
    if (!reduced[axis]) next *= shape[axis];
  }
  int64_t to = 0;
  for (int64_t from = 0; from < total; from += row) {
    if (row_reduced) {
      out[to] += sum_of_row(input(call, 0) + from, row);
    } else {
      map_row(out + to, row, add, out + to, input(call, 0) + from);
    }
    for (size_t axis = axes; axis-- > 0;) {
      to += stride[axis];
      if (++at[axis] < shape[axis]) break;
      to -= stride[axis] * shape[axis];
      at[axis] = 0;
    }
  }
  if (desc.op == Op::ReduceMean) {
    const Packet count = broadcast(static_cast<float>(total) / static_cast<float>(results));
    map_row(
        out, results, [&](const Packet& x) { return divide(x, count); }, out);
  }
  Epilogue(call).apply(out, 0, results);
}

}  // namespace

const KernelCode code::batch_norm = {run_batch_norm};
const KernelCode code::lrn = {run_lrn};
const KernelCode code::softmax = {run_softmax};
const KernelCode code::reduce_mean = {run_reduce};
const KernelCode code::reduce_sum = {run_reduce};

}  // namespace nlsplit::inline kernels
