// Reductions, and what else goes along axes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "graph/reference/array.h"

namespace nlsplit::inline graph::reference {
namespace {

// Of what is reduced to one element, in order.
double reduced(Op op, const std::vector<double>& values) {
  double sum = 0, largest = -std::numeric_limits<double>::infinity(), smallest = -largest, product = 1;
  for (const double v : values) {
    sum += op == Op::ReduceL1 ? std::abs(v) : op == Op::ReduceL2 || op == Op::ReduceSumSquare ? v * v : v;
    product *= v;
    largest = std::isnan(v) || v > largest ? v : largest;
    smallest = std::isnan(v) || v < smallest ? v : smallest;
  }
  switch (op) {
    case Op::ReduceL1:
    case Op::ReduceSum:
    case Op::ReduceSumSquare:
      return sum;
    case Op::ReduceL2:
      return std::sqrt(sum);
    case Op::ReduceLogSum:
      return std::log(sum);
    case Op::ReduceLogSumExp: {
      if (!std::isfinite(largest)) return largest;
      double exponentials = 0;
      for (const double v : values) exponentials += std::exp(v - largest);
      return largest + std::log(exponentials);
    }
    case Op::ReduceMean:
      return sum / static_cast<double>(values.size());
    case Op::ReduceMax:
      return largest;
    case Op::ReduceMin:
      return smallest;
    case Op::ReduceProd:
      return product;
    default:
      CHECK(false, name_of(op));
  }
}

// The largest or smallest of no integers: the least or greatest that there is.
int64_t of_none(Op op, DType type) {
  const int64_t all_bits = wrapped(type, -1);
  if (all_bits >= 0 || type == DType::u64) return op == Op::ReduceMax ? 0 : all_bits;
  const int64_t least = INT64_MIN >> (64 - 8 * size_of(type));
  return op == Op::ReduceMax ? least : ~least;
}

// Those of integers that stay integers.
bool reduced_whole(Op op, DType type, const std::vector<int64_t>& values, int64_t& result) {
  const bool is_unsigned = type == DType::u64;
  uint64_t sum = 0, product = 1;
  for (const int64_t v : values) {
    const auto bits = static_cast<uint64_t>(v);
    sum += op == Op::ReduceSumSquare ? bits * bits : op == Op::ReduceL1 && v < 0 && !is_unsigned ? 0 - bits : bits;
    product *= bits;
  }
  const auto less = [&](int64_t a, int64_t b) {
    return is_unsigned ? static_cast<uint64_t>(a) < static_cast<uint64_t>(b) : a < b;
  };
  switch (op) {
    case Op::ReduceL1:
    case Op::ReduceSum:
    case Op::ReduceSumSquare:
      result = static_cast<int64_t>(sum);
      return true;
    case Op::ReduceProd:
      result = static_cast<int64_t>(product);
      return true;
    case Op::ReduceMax:
    case Op::ReduceMin:
      if (values.empty()) {
        result = of_none(op, type);
        return true;
      }
      result = op == Op::ReduceMax ? *std::ranges::max_element(values, less) : *std::ranges::min_element(values, less);
      return true;
    default:
      return false;
  }
}

void reduce(Op op, const Attrs& attrs, const Array& x, Array& out) {
  const Shape& shape = x.type.shape;
  Shape kept = shape, along(shape.size(), 1);
  for (const int64_t given : attr_ints(attrs, "axes")) {
    const auto axis = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(shape.size()) : given);
    along[axis] = shape[axis];
    kept[axis] = 1;
  }
  const std::vector<int64_t> strides = strides_of(shape);
  walk(kept, strides, [&](int64_t at, int64_t start) {
    std::vector<double> reals;
    std::vector<int64_t> wholes;
    walk(along, strides, [&](int64_t, int64_t offset) {
      const int64_t i = start + offset;
      if (!x.real()) wholes.push_back(x.wholes[static_cast<size_t>(i)]);
      reals.push_back(x.number(i));
    });
    int64_t whole = 0;
    if (!x.real() && reduced_whole(op, x.type.dtype, wholes, whole))
      out.wholes[static_cast<size_t>(at)] = wrapped(out.type.dtype, whole);
    else
      out.set(at, reduced(op, reals));
  });
}

void arg_reduce(Op op, const Attrs& attrs, const Array& x, Array& out) {
  const Lines lines = lines_of(x.type.shape, attr_int(attrs, "axis"));
  const bool last = attr_int(attrs, "select_last_index") != 0;
  for (int64_t o = 0; o < lines.outer; ++o) {
    for (int64_t i = 0; i < lines.inner; ++i) {
      int64_t best = 0;
      for (int64_t k = 1; k < lines.extent; ++k) {
        const double value = x.number(lines.at(o, i, k)), known = x.number(lines.at(o, i, best));
        if ((op == Op::ArgMax ? value > known : value < known) || (last && value == known)) best = k;
      }
      out.wholes[static_cast<size_t>(o * lines.inner + i)] = best;
    }
  }
}

void cumsum(const Attrs& attrs, const Array& x, Array& out) {
  const Lines lines = lines_of(x.type.shape, attr_int(attrs, "axis"));
  const bool exclusive = attr_int(attrs, "exclusive") != 0, reverse = attr_int(attrs, "reverse") != 0;
  for (int64_t o = 0; o < lines.outer; ++o) {
    for (int64_t i = 0; i < lines.inner; ++i) {
      double sum = 0;
      uint64_t whole = 0;
      for (int64_t k = 0; k < lines.extent; ++k) {
        const int64_t at = lines.at(o, i, reverse ? lines.extent - 1 - k : k);
        const auto put = [&] {
          if (x.real())
            out.set(at, sum);
          else
            out.wholes[static_cast<size_t>(at)] = wrapped(out.type.dtype, static_cast<int64_t>(whole));
        };
        if (exclusive) put();
        if (x.real())
          sum += x.reals[static_cast<size_t>(at)];
        else
          whole += static_cast<uint64_t>(x.wholes[static_cast<size_t>(at)]);
        if (!exclusive) put();
      }
    }
  }
}

void softmax(Op op, const Attrs& attrs, const Array& x, Array& out) {
  const Lines lines = lines_of(x.type.shape, attr_int(attrs, "axis"));
  for (int64_t o = 0; o < lines.outer; ++o) {
    for (int64_t i = 0; i < lines.inner; ++i) {
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t k = 0; k < lines.extent; ++k) largest = std::max(largest, x.number(lines.at(o, i, k)));
      for (int64_t k = 0; k < lines.extent; ++k) sum += std::exp(x.number(lines.at(o, i, k)) - largest);
      for (int64_t k = 0; k < lines.extent; ++k) {
        const int64_t at = lines.at(o, i, k);
        const double shifted = x.number(at) - largest;
        out.set(at, op == Op::LogSoftmax ? shifted - std::log(sum) : std::exp(shifted) / sum);
      }
    }
  }
}

// Of equal elements the one with the lower index comes first.
void top_k(const Attrs& attrs, const Array& x, Array& values, Array& indices) {
  const Lines lines = lines_of(x.type.shape, attr_int(attrs, "axis"));
  const bool largest = attr_int(attrs, "largest") != 0;
  Lines kept = lines;
  kept.extent = attr_int(attrs, "k");
  for (int64_t o = 0; o < lines.outer; ++o) {
    for (int64_t i = 0; i < lines.inner; ++i) {
      std::vector<int64_t> order(static_cast<size_t>(lines.extent));
      std::iota(order.begin(), order.end(), int64_t{0});
      std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
        const double va = x.number(lines.at(o, i, a)), vb = x.number(lines.at(o, i, b));
        return largest ? va > vb : va < vb;
      });
      for (int64_t k = 0; k < kept.extent; ++k) {
        const int64_t to = kept.at(o, i, k), from = order[static_cast<size_t>(k)];
        values.copy(to, x, lines.at(o, i, from));
        indices.wholes[static_cast<size_t>(to)] = from;
      }
    }
  }
}

}  // namespace

// clang-format off
NLS_REFERENCE(ReduceMean, reduce(op, attrs, *in[0], out))
NLS_REFERENCE(ReduceL1, reduce(op, attrs, *in[0], out))
NLS_REFERENCE(ReduceL2, reduce(op, attrs, *in[0], out))
NLS_REFERENCE(ReduceLogSum, reduce(op, attrs, *in[0], out))
NLS_REFERENCE(ReduceLogSumExp, reduce(op, attrs, *in[0], out))
NLS_REFERENCE(ReduceMax, reduce(op, attrs, *in[0], out))
NLS_REFERENCE(ReduceMin, reduce(op, attrs, *in[0], out))
NLS_REFERENCE(ReduceProd, reduce(op, attrs, *in[0], out))
NLS_REFERENCE(ReduceSum, reduce(op, attrs, *in[0], out))
NLS_REFERENCE(ReduceSumSquare, reduce(op, attrs, *in[0], out))
NLS_REFERENCE(ArgMax, arg_reduce(op, attrs, *in[0], out))
NLS_REFERENCE(ArgMin, arg_reduce(op, attrs, *in[0], out))
NLS_REFERENCE(CumSum, cumsum(attrs, *in[0], out))
NLS_REFERENCE(Softmax, softmax(op, attrs, *in[0], out))
NLS_REFERENCE(LogSoftmax, softmax(op, attrs, *in[0], out))
NLS_REFERENCE(TopK, top_k(attrs, *in[0], out, outputs[1]))
// clang-format on

}  // namespace nlsplit::inline graph::reference
