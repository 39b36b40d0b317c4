// Reductions, and what else goes along axes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "graph/reference/array.h"

namespace nlsplit::inline graph::reference {
namespace {

// ---- reductions: what is reduced to one element comes as a list, in order

using Reals = std::vector<double>;
using Wholes = std::vector<int64_t>;

template <class Term>
double sum_of_terms(const Reals& values, const Term& term) {
  double sum = 0;
  for (const double v : values) sum += term(v);
  return sum;
}
double sum(const Reals& values) {
  return sum_of_terms(values, [](double v) { return v; });
}
double sum_of_squares(const Reals& values) {
  return sum_of_terms(values, [](double v) { return v * v; });
}
double product(const Reals& values) {
  double product = 1;
  for (const double v : values) product *= v;
  return product;
}
// What is no number wins.
double largest(const Reals& values) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const double v : values) largest = std::isnan(v) || v > largest ? v : largest;
  return largest;
}
double smallest(const Reals& values) {
  double smallest = std::numeric_limits<double>::infinity();
  for (const double v : values) smallest = std::isnan(v) || v < smallest ? v : smallest;
  return smallest;
}
double log_sum_exp(const Reals& values) {
  const double above = largest(values);
  if (!std::isfinite(above)) return above;
  return above + std::log(sum_of_terms(values, [=](double v) { return std::exp(v - above); }));
}

template <class Term>
int64_t whole_sum(const Wholes& values, const Term& term) {
  uint64_t sum = 0;
  for (const int64_t v : values) sum += term(static_cast<uint64_t>(v));
  return static_cast<int64_t>(sum);
}
int64_t whole_product(const Wholes& values) {
  uint64_t product = 1;
  for (const int64_t v : values) product *= static_cast<uint64_t>(v);
  return static_cast<int64_t>(product);
}
uint64_t magnitude(DType type, uint64_t bits) {
  return type != DType::u64 && static_cast<int64_t>(bits) < 0 ? 0 - bits : bits;
}
// The largest or smallest of no integers: the least or greatest that there is.
int64_t whole_extreme(DType type, const Wholes& values, bool largest) {
  const auto less = [&](int64_t a, int64_t b) {
    return type == DType::u64 ? static_cast<uint64_t>(a) < static_cast<uint64_t>(b) : a < b;
  };
  if (!values.empty())
    return largest ? *std::ranges::max_element(values, less) : *std::ranges::min_element(values, less);
  const int64_t all_bits = wrapped(type, -1);
  if (all_bits >= 0 || type == DType::u64) return largest ? 0 : all_bits;
  const int64_t least = INT64_MIN >> (64 - 8 * size_of(type));
  return largest ? least : ~least;
}

// use(place in the result, places in x)
template <class Use>
void for_each_reduced(const Attrs& attrs, const Array& x, const Use& use) {
  const Shape& shape = x.type.shape;
  Shape kept = shape, along(shape.size(), 1);
  for (const int64_t given : attr_ints(attrs, "axes")) {
    const auto axis = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(shape.size()) : given);
    along[axis] = shape[axis];
    kept[axis] = 1;
  }
  const std::vector<int64_t> strides = strides_of(shape);
  walk(kept, strides, [&](int64_t at, int64_t start) {
    std::vector<int64_t> places;
    walk(along, strides, [&](int64_t, int64_t offset) { places.push_back(start + offset); });
    use(at, places);
  });
}

// Integers as floats, cut off.
template <class Real>
void reduce(const Attrs& attrs, const Array& x, Array& out, const Real& real) {
  for_each_reduced(attrs, x, [&](int64_t at, const std::vector<int64_t>& places) {
    Reals values;
    for (const int64_t place : places) values.push_back(x.number(place));
    out.set(at, real(values));
  });
}
template <class Real, class Whole>
void reduce(const Attrs& attrs, const Array& x, Array& out, const Real& real, const Whole& whole) {
  if (x.real()) return reduce(attrs, x, out, real);
  for_each_reduced(attrs, x, [&](int64_t at, const std::vector<int64_t>& places) {
    Wholes values;
    for (const int64_t place : places) values.push_back(x.wholes[static_cast<size_t>(place)]);
    out.wholes[static_cast<size_t>(at)] = wrapped(out.type.dtype, whole(x.type.dtype, values));
  });
}

template <class Better>
void arg_reduce(const Attrs& attrs, const Array& x, Array& out, const Better& better) {
  const Lines lines = lines_of(x.type.shape, attr_int(attrs, "axis"));
  const bool last = attr_int(attrs, "select_last_index") != 0;
  for (int64_t o = 0; o < lines.outer; ++o) {
    for (int64_t i = 0; i < lines.inner; ++i) {
      int64_t best = 0;
      for (int64_t k = 1; k < lines.extent; ++k) {
        const double value = x.number(lines.at(o, i, k)), known = x.number(lines.at(o, i, best));
        if (better(value, known) || (last && value == known)) best = k;
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

void softmax(const Attrs& attrs, const Array& x, Array& out, bool logarithm) {
  const Lines lines = lines_of(x.type.shape, attr_int(attrs, "axis"));
  for (int64_t o = 0; o < lines.outer; ++o) {
    for (int64_t i = 0; i < lines.inner; ++i) {
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t k = 0; k < lines.extent; ++k) largest = std::max(largest, x.number(lines.at(o, i, k)));
      for (int64_t k = 0; k < lines.extent; ++k) sum += std::exp(x.number(lines.at(o, i, k)) - largest);
      for (int64_t k = 0; k < lines.extent; ++k) {
        const int64_t at = lines.at(o, i, k);
        const double shifted = x.number(at) - largest;
        out.set(at, logarithm ? shifted - std::log(sum) : std::exp(shifted) / sum);
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
NLS_REFERENCE(ReduceMean, reduce(attrs, *in[0], out, [](const Reals& v) { return sum(v) / static_cast<double>(v.size()); }))
NLS_REFERENCE(ReduceL1, reduce(attrs, *in[0], out, [](const Reals& v) { return sum_of_terms(v, [](double t) { return std::abs(t); }); }, [](DType type, const Wholes& v) { return whole_sum(v, [=](uint64_t t) { return magnitude(type, t); }); }))
NLS_REFERENCE(ReduceL2, reduce(attrs, *in[0], out, [](const Reals& v) { return std::sqrt(sum_of_squares(v)); }))
NLS_REFERENCE(ReduceLogSum, reduce(attrs, *in[0], out, [](const Reals& v) { return std::log(sum(v)); }))
NLS_REFERENCE(ReduceLogSumExp, reduce(attrs, *in[0], out, log_sum_exp))
NLS_REFERENCE(ReduceMax, reduce(attrs, *in[0], out, largest, [](DType type, const Wholes& v) { return whole_extreme(type, v, true); }))
NLS_REFERENCE(ReduceMin, reduce(attrs, *in[0], out, smallest, [](DType type, const Wholes& v) { return whole_extreme(type, v, false); }))
NLS_REFERENCE(ReduceProd, reduce(attrs, *in[0], out, product, [](DType, const Wholes& v) { return whole_product(v); }))
NLS_REFERENCE(ReduceSum, reduce(attrs, *in[0], out, sum, [](DType, const Wholes& v) { return whole_sum(v, [](uint64_t t) { return t; }); }))
NLS_REFERENCE(ReduceSumSquare, reduce(attrs, *in[0], out, sum_of_squares, [](DType, const Wholes& v) { return whole_sum(v, [](uint64_t t) { return t * t; }); }))
NLS_REFERENCE(ArgMax, arg_reduce(attrs, *in[0], out, std::greater<>()))
NLS_REFERENCE(ArgMin, arg_reduce(attrs, *in[0], out, std::less<>()))
NLS_REFERENCE(CumSum, cumsum(attrs, *in[0], out))
NLS_REFERENCE(Softmax, softmax(attrs, *in[0], out, false))
NLS_REFERENCE(LogSoftmax, softmax(attrs, *in[0], out, true))
NLS_REFERENCE(TopK, top_k(attrs, *in[0], out, outputs[1]))
// clang-format on

}  // namespace nlsplit::inline graph::reference
