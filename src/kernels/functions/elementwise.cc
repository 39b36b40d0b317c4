// Unary functions, Sum, and the four arithmetic operators with numpy broadcasting.
#include <algorithm>
#include <array>

#include "kernels/functions/epilogue.h"
#include "kernels/functions/unary.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"
#include "kernels/moves/odometer.h"

namespace nlsplit::inline kernels {
namespace {

// Runs that stay in a first-level cache while the epilogue goes over them.
constexpr int64_t run_floats = 2048;
// What a worker takes at a time.
constexpr int64_t piece_floats = 4 * run_floats;

template <class F>
void in_runs(int64_t n, F f) {
  for (int64_t begin = 0; begin < n; begin += run_floats) f(begin, std::min(run_floats, n - begin));
}

// The same, several at a time by whoever is free.
template <class F>
void in_runs(const KernelCall& call, int64_t n, F f) {
  parallel_for(call, (n + piece_floats - 1) / piece_floats, [&](int64_t piece) {
    const int64_t at = piece * piece_floats;
    in_runs(std::min(piece_floats, n - at), [&](int64_t begin, int64_t count) { f(at + begin, count); });
  });
}

void run_unary(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Epilogue epilogue(call);
  const UnaryParameters p = unary_parameters(desc.op, desc.attrs);
  const float* from = input(call, 0);
  float* to = output(call);
  with_unary(desc.op, p.a, p.b, [&](auto f) {
    in_runs(call, stored_elements(desc.outputs[0]), [&](int64_t begin, int64_t count) {
      map_row(to + begin, count, f, from + begin);
      epilogue.apply(to, begin, count);
    });
  });
}

void run_sum(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Epilogue epilogue(call);
  float* to = output(call);
  in_runs(call, stored_elements(desc.outputs[0]), [&](int64_t begin, int64_t count) {
    if (to != input(call, 0))
      std::memcpy(to + begin, input(call, 0) + begin, static_cast<size_t>(count) * sizeof(float));
    for (size_t i = 1; i < desc.own_inputs(); ++i) map_row(to + begin, count, add, to + begin, input(call, i) + begin);
    epilogue.apply(to, begin, count);
  });
}

// The output's axes, outermost first, with each operand's stride (0: it is repeated), merged where both operands allow.
Axes axes_of(const Shape& out, const Shape& a, const Shape& b) {
  Axes axes;
  int64_t stride_a = 1, stride_b = 1;
  // From the last axis on; reversed at the end.
  for (size_t back = 0; back < out.size(); ++back) {
    const int64_t extent = out[out.size() - 1 - back];
    const int64_t in_a = back < a.size() ? a[a.size() - 1 - back] : 1;
    const int64_t in_b = back < b.size() ? b[b.size() - 1 - back] : 1;
    const int64_t own_a = in_a == 1 ? 0 : stride_a, own_b = in_b == 1 ? 0 : stride_b;
    stride_a *= in_a, stride_b *= in_b;
    if (extent == 1) continue;
    if (axes.count > 0) {
      const size_t last = axes.count - 1;
      if (own_a == axes.a[last] * axes.extent[last] && own_b == axes.b[last] * axes.extent[last]) {
        axes.extent[last] *= extent;
        continue;
      }
    }
    axes.push(extent, own_a, own_b);
  }
  const auto reverse = [&](auto& values) { std::reverse(values.begin(), values.begin() + axes.count); };
  reverse(axes.extent), reverse(axes.a), reverse(axes.b);
  return axes;
}

template <class F>
void combine(float* to, int64_t n, const float* a, bool repeat_a, const float* b, bool repeat_b, F f) {
  if (repeat_a) {
    const Packet one = broadcast(*a);
    map_row(
        to, n, [&](const Packet& y) { return f(one, y); }, b);
  } else if (repeat_b) {
    const Packet one = broadcast(*b);
    map_row(
        to, n, [&](const Packet& x) { return f(x, one); }, a);
  } else {
    map_row(to, n, f, a, b);
  }
}

// The rows, along the innermost axis, are handed out several at a time.
template <class F>
void walk(const KernelCall& call, Axes axes, const Epilogue& epilogue, F f) {
  const float *a = input(call, 0), *b = input(call, 1);
  float* to = output(call);
  if (axes.count == 0) {
    store_part(to, f(broadcast(*a), broadcast(*b)), 1);
    return epilogue.apply(to, 0, 1);
  }
  const size_t inner = --axes.count;
  const int64_t n = axes.extent[inner], rows = axes.size();
  const bool repeat_a = axes.a[inner] == 0, repeat_b = axes.b[inner] == 0;
  const int64_t at_once = std::max<int64_t>(1, piece_floats / n);
  parallel_for(call, (rows + at_once - 1) / at_once, [&](int64_t piece) {
    Odometer at(axes, piece * at_once);
    for (int64_t row = piece * at_once; row < std::min(rows, (piece + 1) * at_once); ++row, at.next()) {
      in_runs(n, [&](int64_t begin, int64_t count) {
        combine(to + row * n + begin, count, a + at.a + (repeat_a ? 0 : begin), repeat_a,
                b + at.b + (repeat_b ? 0 : begin), repeat_b, f);
        epilogue.apply(to, row * n + begin, count);
      });
    }
  });
}

// An operand along the two innermost axes, of which the inner one is short.
struct ShortRows {
  int64_t outer, inner;  // strides

  bool is_dense(int64_t n) const { return inner == 1 && outer == n; }
  // Elements of `rows` rows of n from row `first` on, one behind the other.
  const float* spread(const float* from, int64_t n, int64_t first, int64_t rows, float* to) const {
    for (int64_t i = 0; i < n; ++i) to[i] = from[first * outer + i * inner];
    if (outer == 0) {  // what is there already, again
      for (int64_t done = n, total = n * rows; done < total; done *= 2)
        std::memcpy(to + done, to, static_cast<size_t>(std::min(done, total - done)) * sizeof(float));
      return to;
    }
    for (int64_t row = 1; row < rows; ++row) {
      for (int64_t i = 0; i < n; ++i) to[row * n + i] = from[(first + row) * outer + i * inner];
    }
    return to;
  }
};

// Rows of a few elements, a number for each channel of an image whose channels lie last say: many of them are one run,
// and what they repeat is written out before.
template <class F>
void walk_short_rows(const KernelCall& call, Axes axes, const Epilogue& epilogue, F f) {
  const int64_t n = axes.extent[axes.count - 1], m = axes.extent[axes.count - 2];
  const ShortRows a{axes.a[axes.count - 2], axes.a[axes.count - 1]}, b{axes.b[axes.count - 2], axes.b[axes.count - 1]};
  axes.count -= 2;
  const int64_t at_once = run_floats / n, runs = (m + at_once - 1) / at_once;
  constexpr int64_t runs_a_piece = piece_floats / run_floats;
  const int64_t pieces = (runs + runs_a_piece - 1) / runs_a_piece;
  parallel_for(call, axes.size() * pieces, [&](int64_t piece) {
    alignas(64) std::array<float, run_floats> spread_a, spread_b;
    const Odometer at(axes, piece / pieces);
    const int64_t begin = piece % pieces * runs_a_piece * at_once, end = std::min(m, begin + runs_a_piece * at_once);
    for (int64_t row = begin; row < end; row += at_once) {
      const int64_t rows = std::min(at_once, end - row);
      const auto operand = [&](size_t i, int64_t offset, const ShortRows& lies, float* room) {
        const float* from = input(call, i) + offset;
        if (lies.is_dense(n)) return from + row * n;
        return lies.outer == 0 && row > begin ? room : lies.spread(from, n, row, rows, room);
      };
      const float *x = operand(0, at.a, a, spread_a.data()), *y = operand(1, at.b, b, spread_b.data());
      const int64_t place = (piece / pieces * m + row) * n;
      map_row(output(call) + place, rows * n, f, x, y);
      epilogue.apply(output(call), place, rows * n);
    }
  });
}

void run_binary(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  if (element_count(desc.outputs[0].shape) == 0) return;
  const Epilogue epilogue(call);
  const Shape stored = {stored_elements(desc.outputs[0])};  // in blocks nothing is broadcast
  const Axes axes = desc.outputs[0].block > 0
                        ? axes_of(stored, stored, stored)
                        : axes_of(desc.outputs[0].shape, desc.inputs[0].shape, desc.inputs[1].shape);
  const auto go = [&](auto f) {
    if (axes.count == 1 && axes.a[0] == 1 && axes.b[0] == 1) {  // nothing is repeated
      return in_runs(call, axes.extent[0], [&](int64_t begin, int64_t count) {
        map_row(output(call) + begin, count, f, input(call, 0) + begin, input(call, 1) + begin);
        epilogue.apply(output(call), begin, count);
      });
    }
    constexpr int64_t short_row = 16;  // of longer ones the work is in the elements
    if (axes.count > 1 && axes.extent[axes.count - 1] < short_row) return walk_short_rows(call, axes, epilogue, f);
    walk(call, axes, epilogue, f);
  };
  switch (desc.op) {
    case Op::Add:
      return go([](const Packet& a, const Packet& b) { return add(a, b); });
    case Op::Sub:
      return go([](const Packet& a, const Packet& b) { return subtract(a, b); });
    case Op::Mul:
      return go([](const Packet& a, const Packet& b) { return multiply(a, b); });
    case Op::Div:
      return go([](const Packet& a, const Packet& b) { return divide(a, b); });
    default:
      CHECK(false, "not a binary operator");
  }
}

}  // namespace

const KernelCode code::unary = {run_unary};
const KernelCode code::sum = {run_sum};
const KernelCode code::binary = {run_binary};

}  // namespace nlsplit::inline kernels
