// Element-wise functions of one, two or more operands, of every type they are for.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <type_traits>

#include "graph/reference/array.h"

namespace nlsplit::inline graph::reference {
namespace {

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

std::function<double(double)> real_function(Op op, const Attrs& attrs) {
  const auto f = [&](std::string_view name) { return attr_float(attrs, name); };
  switch (op) {
    case Op::Relu:
      return [](double x) { return std::max(x, 0.0); };
    case Op::Sigmoid:
      return [](double x) { return 1 / (1 + std::exp(-x)); };
    case Op::Tanh:
      return [](double x) { return std::tanh(x); };
    case Op::HardSwish:
      return [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); };
    case Op::Exp:
      return [](double x) { return std::exp(x); };
    case Op::Sqrt:
      return [](double x) { return std::sqrt(x); };
    case Op::Neg:
      return [](double x) { return -x; };
    case Op::Erf:
      return [](double x) { return std::erf(x); };
    case Op::Gelu:
      if (attr_string(attrs, "approximate") == "tanh") {
        return [](double x) {
          return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
        };
      }
      return [](double x) { return x / 2 * (1 + std::erf(x / std::numbers::sqrt2)); };
    case Op::LeakyRelu:
      return [a = f("alpha")](double x) { return x < 0 ? a * x : x; };
    case Op::HardSigmoid:
      return [a = f("alpha"), b = f("beta")](double x) { return std::clamp(a * x + b, 0.0, 1.0); };
    case Op::Clip:  // not std::clamp: ONNX allows min > max, and max wins
      return [lo = f("min"), hi = f("max")](double x) { return std::min(std::max(x, lo), hi); };
    case Op::Abs:
      return [](double x) { return std::abs(x); };
    case Op::Acos:
      return [](double x) { return std::acos(x); };
    case Op::Acosh:
      return [](double x) { return std::acosh(x); };
    case Op::Asin:
      return [](double x) { return std::asin(x); };
    case Op::Asinh:
      return [](double x) { return std::asinh(x); };
    case Op::Atan:
      return [](double x) { return std::atan(x); };
    case Op::Atanh:
      return [](double x) { return std::atanh(x); };
    case Op::Ceil:
      return [](double x) { return std::ceil(x); };
    case Op::Cos:
      return [](double x) { return std::cos(x); };
    case Op::Cosh:
      return [](double x) { return std::cosh(x); };
    case Op::Floor:
      return [](double x) { return std::floor(x); };
    case Op::Log:
      return [](double x) { return std::log(x); };
    case Op::Mish:
      return [](double x) { return x * std::tanh(softplus(x)); };
    case Op::Reciprocal:
      return [](double x) { return 1 / x; };
    case Op::Round:
      return [](double x) { return std::nearbyint(x); };
    case Op::Sign:
      return [](double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x; };
    case Op::Sin:
      return [](double x) { return std::sin(x); };
    case Op::Sinh:
      return [](double x) { return std::sinh(x); };
    case Op::Softplus:
      return softplus;
    case Op::Softsign:
      return [](double x) { return x / (1 + std::abs(x)); };
    case Op::Tan:
      return [](double x) { return std::tan(x); };
    case Op::Celu:
      return [a = f("alpha")](double x) { return std::max(x, 0.0) + std::min(0.0, a * std::expm1(x / a)); };
    case Op::Elu:
      return [a = f("alpha")](double x) { return x < 0 ? a * std::expm1(x) : x; };
    case Op::Selu:
      return [a = f("alpha"), g = f("gamma")](double x) { return g * (x > 0 ? x : a * std::expm1(x)); };
    case Op::Shrink:
      return [b = f("bias"), l = f("lambd")](double x) { return x < -l ? x + b : x > l ? x - b : 0.0; };
    case Op::ThresholdedRelu:
      return [a = f("alpha")](double x) { return x > a ? x : 0.0; };
    default:
      CHECK(false, name_of(op));
  }
}

// The nearest 64-bit integer; 0 for what is no number.
int64_t saturated(double value) {
  constexpr double limit = 0x1p63;
  return value >= limit ? INT64_MAX : value <= -limit ? INT64_MIN : std::isnan(value) ? 0 : static_cast<int64_t>(value);
}

// Arithmetic on 64-bit integers that overflows as the hardware does.
int64_t wrapping(int64_t a, int64_t b, Op op) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  return static_cast<int64_t>(op == Op::Add ? x + y : op == Op::Sub ? x - y : x * y);
}

std::function<int64_t(int64_t)> whole_function(Op op, const Attrs& attrs) {
  switch (op) {
    case Op::Abs:
      return [](int64_t x) { return x < 0 ? wrapping(0, x, Op::Sub) : x; };
    case Op::Neg:
      return [](int64_t x) { return wrapping(0, x, Op::Sub); };
    case Op::Relu:
      return [](int64_t x) { return std::max<int64_t>(x, 0); };
    case Op::Sign:
      return [](int64_t x) { return int64_t{x > 0} - int64_t{x < 0}; };
    case Op::Not:
      return [](int64_t x) { return int64_t{x == 0}; };
    case Op::BitwiseNot:
      return [](int64_t x) { return ~x; };
    default: {  // the others as functions of floats, cut off
      auto f = real_function(op, attrs);
      return [f](int64_t x) { return saturated(f(static_cast<double>(x))); };
    }
  }
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

double real_pair(Op op, bool keeps_sign, double a, double b) {
  switch (op) {
    case Op::Add:
      return a + b;
    case Op::Sub:
      return a - b;
    case Op::Mul:
      return a * b;
    case Op::Div:
      return a / b;
    case Op::Max:
      return larger(a, b);
    case Op::Min:
      return smaller(a, b);
    case Op::Mod: {
      const double rest = std::fmod(a, b);
      return keeps_sign || rest == 0 || (rest < 0) == (b < 0) ? rest : rest + b;
    }
    case Op::PRelu:
      return a < 0 ? a * b : a;
    default:
      CHECK(false, name_of(op));
  }
}

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

// T: int64_t, or uint64_t for u64.
template <class T>
T whole_pair(Op op, bool flag, T a, T b) {
  switch (op) {
    case Op::Add:
    case Op::Sub:
    case Op::Mul:
      return static_cast<T>(wrapping(static_cast<int64_t>(a), static_cast<int64_t>(b), op));
    case Op::Div:  // ONNX leaves a division by zero open
      if (b == 0) return 0;
      if (is_minus_one(b)) return static_cast<T>(wrapping(0, static_cast<int64_t>(a), Op::Sub));
      return a / b;
    case Op::Max:
      return larger(a, b);
    case Op::Min:
      return smaller(a, b);
    case Op::Mod: {
      if (b == 0 || is_minus_one(b)) return 0;
      const T rest = a % b;
      return flag || rest == 0 || negative(rest) == negative(b) ? rest : rest + b;
    }
    case Op::PRelu:
      return negative(a) ? static_cast<T>(wrapping(static_cast<int64_t>(a), static_cast<int64_t>(b), Op::Mul)) : a;
    case Op::BitShift: {
      const auto bits = static_cast<uint64_t>(a), by = static_cast<uint64_t>(b);
      return by > 63 ? 0 : static_cast<T>(flag ? bits << by : bits >> by);
    }
    case Op::BitwiseAnd:
    case Op::And:
      return a & b;
    case Op::BitwiseOr:
    case Op::Or:
      return a | b;
    case Op::BitwiseXor:
    case Op::Xor:
      return a ^ b;
    default:
      CHECK(false, name_of(op));
  }
}

bool compares(Op op) {
  return op == Op::Equal || op == Op::Greater || op == Op::GreaterOrEqual || op == Op::Less || op == Op::LessOrEqual;
}

template <class T>
bool compare(Op op, T a, T b) {
  switch (op) {
    case Op::Equal:
      return a == b;
    case Op::Greater:
      return a > b;
    case Op::GreaterOrEqual:
      return a >= b;
    case Op::Less:
      return a < b;
    default:
      return a <= b;
  }
}

int64_t whole_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = wrapping(result, base, Op::Mul);
    base = wrapping(base, base, Op::Mul);
  }
  return result;
}

void combine(Op op, bool flag, const Array& a, int64_t i, const Array& b, int64_t j, Array& out, int64_t at) {
  const auto ia = static_cast<size_t>(i), jb = static_cast<size_t>(j), to = static_cast<size_t>(at);
  if (op == Op::Pow) {
    if (!a.real() && !b.real() && b.wholes[jb] >= 0)
      out.wholes[to] = wrapped(out.type.dtype, whole_power(a.wholes[ia], b.wholes[jb]));
    else
      out.set(at, std::pow(a.number(i), b.number(j)));
  } else if (compares(op)) {
    const bool answer = a.real() ? compare(op, a.reals[ia], b.reals[jb])
                        : a.type.dtype == DType::u64
                            ? compare(op, static_cast<uint64_t>(a.wholes[ia]), static_cast<uint64_t>(b.wholes[jb]))
                            : compare(op, a.wholes[ia], b.wholes[jb]);
    out.wholes[to] = answer ? 1 : 0;
  } else if (a.real()) {
    out.reals[to] = rounded(out.type.dtype, real_pair(op, flag, a.reals[ia], b.reals[jb]));
  } else if (a.type.dtype == DType::u64) {
    out.wholes[to] = static_cast<int64_t>(
        whole_pair<uint64_t>(op, flag, static_cast<uint64_t>(a.wholes[ia]), static_cast<uint64_t>(b.wholes[jb])));
  } else {
    out.wholes[to] = wrapped(out.type.dtype, whole_pair<int64_t>(op, flag, a.wholes[ia], b.wholes[jb]));
  }
}

}  // namespace

void unary_function(Op op, const Attrs& attrs, const Array& x, Array& out) {
  if (op == Op::IsNaN || op == Op::IsInf) {
    const bool low = op == Op::IsInf && attr_int(attrs, "detect_negative") != 0;
    const bool high = op == Op::IsInf && attr_int(attrs, "detect_positive") != 0;
    for (size_t i = 0; i < out.wholes.size(); ++i) {
      const double value = x.reals[i];
      const bool found = op == Op::IsNaN ? std::isnan(value) : std::isinf(value) && (value < 0 ? low : high);
      out.wholes[i] = found ? 1 : 0;
    }
  } else if (x.real()) {
    const auto f = real_function(op, attrs);
    for (size_t i = 0; i < out.reals.size(); ++i) out.reals[i] = rounded(out.type.dtype, f(x.reals[i]));
  } else {
    const auto f = whole_function(op, attrs);
    for (size_t i = 0; i < out.wholes.size(); ++i) out.wholes[i] = wrapped(out.type.dtype, f(x.wholes[i]));
  }
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

void binary_function(Op op, const Attrs& attrs, const Array& a, const Array& b, Array& out) {
  const bool flag = op == Op::Mod        ? attr_int(attrs, "fmod") != 0
                    : op == Op::BitShift ? attr_string(attrs, "direction") == "LEFT"
                                         : false;
  const std::vector<int64_t> from_a = broadcast_strides(a.type.shape, out.type.shape);
  const std::vector<int64_t> from_b = broadcast_strides(b.type.shape, out.type.shape);
  int64_t at = 0;
  for_each_index(out.type.shape, [&](const Shape& index) {
    combine(op, flag, a, offset_of(index, from_a), b, offset_of(index, from_b), out, at++);
  });
}

// Sums of floats are rounded once, at the end.
void variadic(Op op, const Arrays& inputs, Array& out) {
  const Op pair = op == Op::Max || op == Op::Min ? op : Op::Add;
  TensorType wide = out.type;
  if (is_real(wide.dtype)) wide.dtype = DType::f64;
  Array total = zeros(wide);
  for (size_t k = 0; k < inputs.size(); ++k) {
    const std::vector<int64_t> from = broadcast_strides(inputs[k]->type.shape, out.type.shape);
    walk(out.type.shape, from, [&](int64_t at, int64_t offset) {
      if (k == 0)
        total.copy(at, *inputs[0], offset);
      else
        combine(pair, false, total, at, *inputs[k], offset, total, at);
    });
  }
  const auto count = static_cast<double>(inputs.size());
  for (int64_t i = 0; i < out.count(); ++i) {
    if (op == Op::Mean || out.real())
      out.set(i, total.number(i) / (op == Op::Mean ? count : 1));
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

// clang-format off
NLS_REFERENCE(Add, binary_function(op, attrs, *in[0], *in[1], out))
NLS_REFERENCE(Sub, binary_function(op, attrs, *in[0], *in[1], out))
NLS_REFERENCE(Mul, binary_function(op, attrs, *in[0], *in[1], out))
NLS_REFERENCE(Div, binary_function(op, attrs, *in[0], *in[1], out))
NLS_REFERENCE(Pow, binary_function(op, attrs, *in[0], *in[1], out))
NLS_REFERENCE(Mod, binary_function(op, attrs, *in[0], *in[1], out))
NLS_REFERENCE(PRelu, binary_function(op, attrs, *in[0], *in[1], out))
NLS_REFERENCE(BitShift, binary_function(op, attrs, *in[0], *in[1], out))
NLS_REFERENCE(BitwiseAnd, binary_function(op, attrs, *in[0], *in[1], out))
NLS_REFERENCE(BitwiseOr, binary_function(op, attrs, *in[0], *in[1], out))
NLS_REFERENCE(BitwiseXor, binary_function(op, attrs, *in[0], *in[1], out))
NLS_REFERENCE(And, binary_function(op, attrs, *in[0], *in[1], out))
NLS_REFERENCE(Or, binary_function(op, attrs, *in[0], *in[1], out))
NLS_REFERENCE(Xor, binary_function(op, attrs, *in[0], *in[1], out))
NLS_REFERENCE(Equal, binary_function(op, attrs, *in[0], *in[1], out))
NLS_REFERENCE(Greater, binary_function(op, attrs, *in[0], *in[1], out))
NLS_REFERENCE(GreaterOrEqual, binary_function(op, attrs, *in[0], *in[1], out))
NLS_REFERENCE(Less, binary_function(op, attrs, *in[0], *in[1], out))
NLS_REFERENCE(LessOrEqual, binary_function(op, attrs, *in[0], *in[1], out))
NLS_REFERENCE(Sum, variadic(op, in, out))
NLS_REFERENCE(Max, variadic(op, in, out))
NLS_REFERENCE(Mean, variadic(op, in, out))
NLS_REFERENCE(Min, variadic(op, in, out))
NLS_REFERENCE(Where, where(in, out))
NLS_REFERENCE(Relu, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Sigmoid, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Tanh, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(HardSwish, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Exp, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Sqrt, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Neg, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Erf, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Gelu, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(LeakyRelu, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(HardSigmoid, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Clip, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Abs, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Acos, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Acosh, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Asin, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Asinh, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Atan, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Atanh, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Ceil, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Cos, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Cosh, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Floor, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Log, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Mish, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Reciprocal, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Round, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Sign, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Sin, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Sinh, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Softplus, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Softsign, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Tan, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Celu, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Elu, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Selu, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Shrink, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(ThresholdedRelu, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Not, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(BitwiseNot, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(IsNaN, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(IsInf, unary_function(op, attrs, *in[0], out))
NLS_REFERENCE(Cast, cast(*in[0], out))
// clang-format on

}  // namespace nlsplit::inline graph::reference
