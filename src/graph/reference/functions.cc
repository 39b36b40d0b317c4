// Element-wise functions of one, two or more operands, of every type they are for.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <type_traits>

#include "graph/reference/array.h"

namespace nlsplit::inline graph::reference {
namespace {

// ---- of one operand

// The nearest 64-bit integer; 0 for what is no number.
int64_t saturated(double value) {
  constexpr double limit = 0x1p63;
  return value >= limit ? INT64_MAX : value <= -limit ? INT64_MIN : std::isnan(value) ? 0 : static_cast<int64_t>(value);
}

// Each element rounded to the type; of integers by `whole`.
template <class Real, class Whole>
void map(const Array& x, Array& out, const Real& real, const Whole& whole) {
  for (size_t i = 0; i < out.reals.size(); ++i) out.reals[i] = rounded(out.type.dtype, real(x.reals[i]));
  for (size_t i = 0; i < out.wholes.size(); ++i) out.wholes[i] = wrapped(out.type.dtype, whole(x.wholes[i]));
}
// Integers as floats, cut off.
template <class Real>
void map(const Array& x, Array& out, const Real& real) {
  map(x, out, real, [&](int64_t v) { return saturated(real(static_cast<double>(v))); });
}
template <class Whole>
void map_wholes(const Array& x, Array& out, const Whole& whole) {
  for (size_t i = 0; i < out.wholes.size(); ++i) out.wholes[i] = wrapped(out.type.dtype, whole(x.wholes[i]));
}
template <class Test>
void test(const Array& x, Array& out, const Test& is) {
  for (size_t i = 0; i < out.wholes.size(); ++i) out.wholes[i] = is(x.reals[i]) ? 1 : 0;
}

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double gelu(double x) { return x / 2 * (1 + std::erf(x / std::numbers::sqrt2)); }
double gelu_by_tanh(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

void cast(const Array& x, Array& out) {
  const bool whole = !x.real() && !out.real();
  for (int64_t i = 0; i < x.count(); ++i) {
    if (whole)
      out.wholes[static_cast<size_t>(i)] = wrapped(out.type.dtype, x.wholes[static_cast<size_t>(i)]);
    else
      out.set(i, x.number(i));
  }
}

// ---- of two. Of integers T is int64_t, or uint64_t for u64.

// Arithmetic that overflows as the hardware does.
template <class T>
T sum_of(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
template <class T>
T difference_of(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
template <class T>
T product_of(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

template <class T>
T smaller(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T larger(T a, T b) {
  return a < b ? b : a;
}
// What is no number wins.
double smaller(double a, double b) { return std::isnan(a) || a < b ? a : b; }
double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

template <class T>
bool negative(T a) {
  if constexpr (std::is_signed_v<T>) return a < 0;
  return false;
}
// The one division whose result no integer of the width is.
template <class T>
bool is_minus_one(T a) {
  if constexpr (std::is_signed_v<T>) return a == -1;
  return false;
}

// ONNX leaves a division by zero open.
template <class T>
T whole_quotient(T a, T b) {
  if (b == 0) return 0;
  return is_minus_one(b) ? difference_of(T{0}, a) : static_cast<T>(a / b);
}

double real_rest(double a, double b, bool keeps_sign) {
  const double rest = std::fmod(a, b);
  return keeps_sign || rest == 0 || (rest < 0) == (b < 0) ? rest : rest + b;
}
template <class T>
T whole_rest(T a, T b, bool keeps_sign) {
  if (b == 0 || is_minus_one(b)) return 0;
  const T rest = a % b;
  return keeps_sign || rest == 0 || negative(rest) == negative(b) ? rest : rest + b;
}

template <class T>
T shifted(T a, T by, bool left) {
  const auto bits = static_cast<uint64_t>(a), places = static_cast<uint64_t>(by);
  return places > 63 ? 0 : static_cast<T>(left ? bits << places : bits >> places);
}

int64_t whole_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = product_of(result, base);
    base = product_of(base, base);
  }
  return result;
}

template <class Real, class Whole>
void combine(const Array& a, int64_t i, const Array& b, int64_t j, Array& out, int64_t at, const Real& real,
             const Whole& whole) {
  const auto ia = static_cast<size_t>(i), jb = static_cast<size_t>(j), to = static_cast<size_t>(at);
  if (a.real()) {
    out.reals[to] = rounded(out.type.dtype, real(a.reals[ia], b.reals[jb]));
  } else if (a.type.dtype == DType::u64) {
    out.wholes[to] =
        static_cast<int64_t>(whole(static_cast<uint64_t>(a.wholes[ia]), static_cast<uint64_t>(b.wholes[jb])));
  } else {
    out.wholes[to] = wrapped(out.type.dtype, whole(a.wholes[ia], b.wholes[jb]));
  }
}

// Calls visit(place in a, place in b, place in out) for every element of out.
template <class Visit>
void for_each_pair(const Arrays& in, const Array& out, const Visit& visit) {
  const std::vector<int64_t> from_a = broadcast_strides(in[0]->type.shape, out.type.shape);
  const std::vector<int64_t> from_b = broadcast_strides(in[1]->type.shape, out.type.shape);
  int64_t at = 0;
  for_each_index(out.type.shape,
                 [&](const Shape& index) { visit(offset_of(index, from_a), offset_of(index, from_b), at++); });
}

template <class Real, class Whole>
void pairs(const Arrays& in, Array& out, const Real& real, const Whole& whole) {
  for_each_pair(in, out,
                [&](int64_t i, int64_t j, int64_t at) { combine(*in[0], i, *in[1], j, out, at, real, whole); });
}
template <class Whole>
void whole_pairs(const Arrays& in, Array& out, const Whole& whole) {
  pairs(
      in, out, [](double, double) { return 0.0; }, whole);
}

template <class Test>
void compare(const Arrays& in, Array& out, const Test& is) {
  const Array &a = *in[0], &b = *in[1];
  for_each_pair(in, out, [&](int64_t i, int64_t j, int64_t at) {
    const auto ia = static_cast<size_t>(i), jb = static_cast<size_t>(j);
    const bool answer = a.real() ? is(a.reals[ia], b.reals[jb])
                        : a.type.dtype == DType::u64
                            ? is(static_cast<uint64_t>(a.wholes[ia]), static_cast<uint64_t>(b.wholes[jb]))
                            : is(a.wholes[ia], b.wholes[jb]);
    out.wholes[static_cast<size_t>(at)] = answer ? 1 : 0;
  });
}

void power(const Arrays& in, Array& out) {
  const Array &a = *in[0], &b = *in[1];
  for_each_pair(in, out, [&](int64_t i, int64_t j, int64_t at) {
    const auto ia = static_cast<size_t>(i), jb = static_cast<size_t>(j);
    if (!a.real() && !b.real() && b.wholes[jb] >= 0)
      out.wholes[static_cast<size_t>(at)] = wrapped(out.type.dtype, whole_power(a.wholes[ia], b.wholes[jb]));
    else
      out.set(at, std::pow(a.number(i), b.number(j)));
  });
}

// ---- of any number of operands

// One after the other; of floats in double. The total is divided, and rounded once.
template <class Real, class Whole>
void chain(const Arrays& in, Array& out, const Real& real, const Whole& whole, double divisor = 1) {
  TensorType wide = out.type;
  if (is_real(wide.dtype)) wide.dtype = DType::f64;
  Array total = zeros(wide);
  for (size_t k = 0; k < in.size(); ++k) {
    const std::vector<int64_t> from = broadcast_strides(in[k]->type.shape, out.type.shape);
    walk(out.type.shape, from, [&](int64_t at, int64_t offset) {
      if (k == 0)
        total.copy(at, *in[0], offset);
      else
        combine(total, at, *in[k], offset, total, at, real, whole);
    });
  }
  for (int64_t i = 0; i < out.count(); ++i) {
    if (divisor != 1 || out.real())
      out.set(i, total.number(i) / divisor);
    else
      out.copy(i, total, i);
  }
}

void where(const Arrays& inputs, Array& out) {
  std::vector<int64_t> strides[3];
  for (size_t k = 0; k < 3; ++k) strides[k] = broadcast_strides(inputs[k]->type.shape, out.type.shape);
  int64_t at = 0;
  for_each_index(out.type.shape, [&](const Shape& index) {
    const size_t k = inputs[0]->wholes[static_cast<size_t>(offset_of(index, strides[0]))] != 0 ? 1 : 2;
    out.copy(at++, *inputs[k], offset_of(index, strides[k]));
  });
}

}  // namespace

// clang-format off
NLS_REFERENCE(Relu, map(*in[0], out, [](double x) { return std::max(x, 0.0); }, [](int64_t x) { return std::max<int64_t>(x, 0); }))
NLS_REFERENCE(Sigmoid, map(*in[0], out, [](double x) { return 1 / (1 + std::exp(-x)); }))
NLS_REFERENCE(Tanh, map(*in[0], out, [](double x) { return std::tanh(x); }))
NLS_REFERENCE(HardSwish, map(*in[0], out, [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); }))
NLS_REFERENCE(Exp, map(*in[0], out, [](double x) { return std::exp(x); }))
NLS_REFERENCE(Sqrt, map(*in[0], out, [](double x) { return std::sqrt(x); }))
NLS_REFERENCE(Neg, map(*in[0], out, [](double x) { return -x; }, [](int64_t x) { return difference_of<int64_t>(0, x); }))
NLS_REFERENCE(Erf, map(*in[0], out, [](double x) { return std::erf(x); }))
NLS_REFERENCE(Gelu, map(*in[0], out, attr_string(attrs, "approximate") == "tanh" ? gelu_by_tanh : gelu))
NLS_REFERENCE(LeakyRelu, map(*in[0], out, [a = attr_float(attrs, "alpha")](double x) { return x < 0 ? a * x : x; }))
NLS_REFERENCE(HardSigmoid, map(*in[0], out, [a = attr_float(attrs, "alpha"), b = attr_float(attrs, "beta")](double x) { return std::clamp(a * x + b, 0.0, 1.0); }))
// Not std::clamp: ONNX allows min > max, and max wins.
NLS_REFERENCE(Clip, map(*in[0], out, [lo = attr_float(attrs, "min"), hi = attr_float(attrs, "max")](double x) { return std::min(std::max(x, lo), hi); }))
NLS_REFERENCE(Abs, map(*in[0], out, [](double x) { return std::abs(x); }, [](int64_t x) { return x < 0 ? difference_of<int64_t>(0, x) : x; }))
NLS_REFERENCE(Acos, map(*in[0], out, [](double x) { return std::acos(x); }))
NLS_REFERENCE(Acosh, map(*in[0], out, [](double x) { return std::acosh(x); }))
NLS_REFERENCE(Asin, map(*in[0], out, [](double x) { return std::asin(x); }))
NLS_REFERENCE(Asinh, map(*in[0], out, [](double x) { return std::asinh(x); }))
NLS_REFERENCE(Atan, map(*in[0], out, [](double x) { return std::atan(x); }))
NLS_REFERENCE(Atanh, map(*in[0], out, [](double x) { return std::atanh(x); }))
NLS_REFERENCE(Ceil, map(*in[0], out, [](double x) { return std::ceil(x); }))
NLS_REFERENCE(Cos, map(*in[0], out, [](double x) { return std::cos(x); }))
NLS_REFERENCE(Cosh, map(*in[0], out, [](double x) { return std::cosh(x); }))
NLS_REFERENCE(Floor, map(*in[0], out, [](double x) { return std::floor(x); }))
NLS_REFERENCE(Log, map(*in[0], out, [](double x) { return std::log(x); }))
NLS_REFERENCE(Mish, map(*in[0], out, [](double x) { return x * std::tanh(softplus(x)); }))
NLS_REFERENCE(Reciprocal, map(*in[0], out, [](double x) { return 1 / x; }))
NLS_REFERENCE(Round, map(*in[0], out, [](double x) { return std::nearbyint(x); }))
NLS_REFERENCE(Sign, map(*in[0], out, [](double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x; }, [](int64_t x) { return int64_t{x > 0} - int64_t{x < 0}; }))
NLS_REFERENCE(Sin, map(*in[0], out, [](double x) { return std::sin(x); }))
NLS_REFERENCE(Sinh, map(*in[0], out, [](double x) { return std::sinh(x); }))
NLS_REFERENCE(Softplus, map(*in[0], out, softplus))
NLS_REFERENCE(Softsign, map(*in[0], out, [](double x) { return x / (1 + std::abs(x)); }))
NLS_REFERENCE(Tan, map(*in[0], out, [](double x) { return std::tan(x); }))
NLS_REFERENCE(Celu, map(*in[0], out, [a = attr_float(attrs, "alpha")](double x) { return std::max(x, 0.0) + std::min(0.0, a * std::expm1(x / a)); }))
NLS_REFERENCE(Elu, map(*in[0], out, [a = attr_float(attrs, "alpha")](double x) { return x < 0 ? a * std::expm1(x) : x; }))
NLS_REFERENCE(Selu, map(*in[0], out, [a = attr_float(attrs, "alpha"), g = attr_float(attrs, "gamma")](double x) { return g * (x > 0 ? x : a * std::expm1(x)); }))
NLS_REFERENCE(Shrink, map(*in[0], out, [b = attr_float(attrs, "bias"), l = attr_float(attrs, "lambd")](double x) { return x < -l ? x + b : x > l ? x - b : 0.0; }))
NLS_REFERENCE(ThresholdedRelu, map(*in[0], out, [a = attr_float(attrs, "alpha")](double x) { return x > a ? x : 0.0; }))
NLS_REFERENCE(Not, map_wholes(*in[0], out, [](int64_t x) { return int64_t{x == 0}; }))
NLS_REFERENCE(BitwiseNot, map_wholes(*in[0], out, [](int64_t x) { return ~x; }))
NLS_REFERENCE(IsNaN, test(*in[0], out, [](double x) { return std::isnan(x); }))
NLS_REFERENCE(IsInf, test(*in[0], out, [low = attr_int(attrs, "detect_negative"), high = attr_int(attrs, "detect_positive")](double x) { return std::isinf(x) && (x < 0 ? low : high) != 0; }))
NLS_REFERENCE(Cast, cast(*in[0], out))

NLS_REFERENCE(Add, pairs(in, out, [](double a, double b) { return a + b; }, [](auto a, auto b) { return sum_of(a, b); }))
NLS_REFERENCE(Sub, pairs(in, out, [](double a, double b) { return a - b; }, [](auto a, auto b) { return difference_of(a, b); }))
NLS_REFERENCE(Mul, pairs(in, out, [](double a, double b) { return a * b; }, [](auto a, auto b) { return product_of(a, b); }))
NLS_REFERENCE(Div, pairs(in, out, [](double a, double b) { return a / b; }, [](auto a, auto b) { return whole_quotient(a, b); }))
NLS_REFERENCE(Pow, power(in, out))
NLS_REFERENCE(Mod, pairs(in, out, [f = attr_int(attrs, "fmod") != 0](double a, double b) { return real_rest(a, b, f); }, [f = attr_int(attrs, "fmod") != 0](auto a, auto b) { return whole_rest(a, b, f); }))
NLS_REFERENCE(PRelu, pairs(in, out, [](double a, double b) { return a < 0 ? a * b : a; }, [](auto a, auto b) { return negative(a) ? product_of(a, b) : a; }))
NLS_REFERENCE(BitShift, whole_pairs(in, out, [left = attr_string(attrs, "direction") == "LEFT"](auto a, auto b) { return shifted(a, b, left); }))
NLS_REFERENCE(BitwiseAnd, whole_pairs(in, out, [](auto a, auto b) { return a & b; }))
NLS_REFERENCE(BitwiseOr, whole_pairs(in, out, [](auto a, auto b) { return a | b; }))
NLS_REFERENCE(BitwiseXor, whole_pairs(in, out, [](auto a, auto b) { return a ^ b; }))
NLS_REFERENCE(And, whole_pairs(in, out, [](auto a, auto b) { return a & b; }))
NLS_REFERENCE(Or, whole_pairs(in, out, [](auto a, auto b) { return a | b; }))
NLS_REFERENCE(Xor, whole_pairs(in, out, [](auto a, auto b) { return a ^ b; }))
NLS_REFERENCE(Equal, compare(in, out, [](auto a, auto b) { return a == b; }))
NLS_REFERENCE(Greater, compare(in, out, [](auto a, auto b) { return a > b; }))
NLS_REFERENCE(GreaterOrEqual, compare(in, out, [](auto a, auto b) { return a >= b; }))
NLS_REFERENCE(Less, compare(in, out, [](auto a, auto b) { return a < b; }))
NLS_REFERENCE(LessOrEqual, compare(in, out, [](auto a, auto b) { return a <= b; }))

NLS_REFERENCE(Sum, chain(in, out, [](double a, double b) { return a + b; }, [](auto a, auto b) { return sum_of(a, b); }))
NLS_REFERENCE(Mean, chain(in, out, [](double a, double b) { return a + b; }, [](auto a, auto b) { return sum_of(a, b); }, static_cast<double>(in.size())))
NLS_REFERENCE(Max, chain(in, out, [](double a, double b) { return larger(a, b); }, [](auto a, auto b) { return larger(a, b); }))
NLS_REFERENCE(Min, chain(in, out, [](double a, double b) { return smaller(a, b); }, [](auto a, auto b) { return smaller(a, b); }))
NLS_REFERENCE(Where, where(in, out))
// clang-format on

}  // namespace nlsplit::inline graph::reference
