// Element by element: functions of one operand, arithmetic and comparisons of two, choices, conversions.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numbers>

#include "graph/operators/shapes.h"
#include "kernels/generated/functions.h"
#include "kernels/generated/lower.h"
#include "kernels/generated/space.h"

namespace nlsplit::inline kernels {
namespace {

int softplus(LoopWriter& w, int x) {
  // max(x, 0) + log(1 + e^-|x|); what 1 + u loses of a small u is put back (Kahan's correction).
  const int u = exponential(w, w.unary(LoopCode::negate, w.unary(LoopCode::magnitude, x)));
  const int sum = w.add(w.number(1), u);
  const int lost = w.divide(w.subtract(u, w.subtract(sum, w.number(1))), sum);
  const int positive = w.choose(w.less(x, w.number(0)), w.number(0), x);
  return w.add(positive, w.add(logarithm(w, sum), lost));
}

// As std::clamp(x, low, high) and as std::min(std::max(x, low), high), which are one.
int bounded(LoopWriter& w, int x, double low, double high) {
  const int lowest = w.number(low, w.type_of(x)), highest = w.number(high, w.type_of(x));
  const int at_least = w.choose(w.less(x, lowest), lowest, x);
  return w.choose(w.less(highest, at_least), highest, at_least);
}

// What keeps to the operand's own type: the result is one of its numbers.
bool keeps_type(Op op) {
  return op == Op::Relu || op == Op::Neg || op == Op::Abs || op == Op::Ceil || op == Op::Floor || op == Op::Round ||
         op == Op::Sign;
}

// In f32 or f64.
int exact_function(LoopWriter& w, Op op, int x, Scalar type) {
  const int zero = w.number(0, type);
  switch (op) {
    case Op::Relu:
      return w.choose(w.less(x, zero), zero, x);
    case Op::Neg:
      return w.unary(LoopCode::negate, x);
    case Op::Abs:
      return w.unary(LoopCode::magnitude, x);
    case Op::Ceil:
      return w.unary(LoopCode::ceil, x);
    case Op::Floor:
      return w.unary(LoopCode::floor, x);
    case Op::Round:
      return w.unary(LoopCode::nearest, x);
    default:
      return w.choose(w.less(zero, x), w.number(1, type), w.choose(w.less(x, zero), w.number(-1, type), x));
  }
}

// In f64; -1: not one of these.
int real_function(LoopWriter& w, Op op, const Attrs& attrs, int x) {
  if (keeps_type(op)) return exact_function(w, op, x, Scalar::f64);
  const auto number = [&](std::string_view name) { return attr_float(attrs, name); };
  const auto constant = [&](double value) { return w.number(value); };
  const int zero = w.number(0), one = w.number(1);
  const auto negative = [&] { return w.less(x, zero); };
  switch (op) {
    case Op::Sqrt:
      return w.unary(LoopCode::root, x);
    case Op::Reciprocal:
      return w.divide(one, x);
    case Op::Softsign:
      return w.divide(x, w.add(one, w.unary(LoopCode::magnitude, x)));
    case Op::LeakyRelu:
      return w.choose(negative(), w.multiply(constant(number("alpha")), x), x);
    case Op::HardSigmoid:
      return bounded(w, w.add(w.multiply(constant(number("alpha")), x), constant(number("beta"))), 0, 1);
    case Op::HardSwish:
      return w.multiply(x, bounded(w, w.add(w.divide(x, constant(6)), constant(0.5)), 0, 1));
    case Op::Clip:
      return bounded(w, x, number("min"), number("max"));
    case Op::Shrink: {
      const int bias = constant(number("bias")), lambda = constant(number("lambd"));
      const int above = w.choose(w.less(lambda, x), w.subtract(x, bias), zero);
      return w.choose(w.less(x, constant(-number("lambd"))), w.add(x, bias), above);
    }
    case Op::ThresholdedRelu:
      return w.choose(w.less(constant(number("alpha")), x), x, zero);
    case Op::Exp:
      return exponential(w, x);
    case Op::Log:
      return logarithm(w, x);
    case Op::Sigmoid:
      return w.divide(one, w.add(one, exponential(w, w.unary(LoopCode::negate, x))));
    case Op::Tanh:
      return hyperbolic_tangent(w, x);
    case Op::Erf:
      return error_function(w, x);
    case Op::Softplus:
      return softplus(w, x);
    case Op::Mish:
      return w.multiply(x, hyperbolic_tangent(w, softplus(w, x)));
    case Op::Celu: {
      const int alpha = constant(number("alpha"));
      const int below = w.multiply(alpha, exponential_less_one(w, w.divide(x, alpha)));
      return w.add(w.choose(negative(), zero, x), w.choose(w.less(below, zero), below, zero));
    }
    case Op::Elu:
      return w.choose(negative(), w.multiply(constant(number("alpha")), exponential_less_one(w, x)), x);
    case Op::Selu: {
      const int below = w.multiply(constant(number("alpha")), exponential_less_one(w, x));
      return w.multiply(constant(number("gamma")), w.choose(w.less(zero, x), x, below));
    }
    case Op::Gelu: {
      const int half = w.divide(x, constant(2));
      if (attr_string(attrs, "approximate") != "tanh")
        return w.multiply(half, w.add(one, error_function(w, w.divide(x, constant(std::numbers::sqrt2)))));
      const int cube = w.multiply(w.multiply(w.multiply(constant(0.044715), x), x), x);
      const int inner = w.multiply(w.unary(LoopCode::root, constant(2 / std::numbers::pi)), w.add(x, cube));
      return w.multiply(half, w.add(one, hyperbolic_tangent(w, inner)));
    }
    default:
      return -1;
  }
}

// Whole numbers of 64 bits; -1: as reals.
int whole_function(LoopWriter& w, Op op, int x) {
  const int zero = w.integer(0), negative = w.less(x, zero);
  switch (op) {
    case Op::Relu:
      return w.binary(LoopCode::larger, x, zero);
    case Op::Neg:
      return w.subtract(zero, x);
    case Op::Abs:
      return w.choose(negative, w.subtract(zero, x), x);
    case Op::Sign:
      return w.choose(w.less(zero, x), w.integer(1), w.choose(negative, w.integer(-1), zero));
    case Op::BitwiseNot:
      return w.binary(LoopCode::differ, x, w.integer(-1));
    default:
      return -1;
  }
}

// The number of an element as the reference has it: bool as 0 or 1.
int whole_of(LoopWriter& w, const Element& x) {
  return w.type_of(x.term) == Scalar::truth ? w.choose(x.term, w.integer(1), w.integer(0)) : x.term;
}

Element cast(LoopWriter& w, const Element& x, DType to) {
  if (x.dtype == to) return x;
  if (!is_real(x.dtype) && !is_real(to)) return w.whole(whole_of(w, x), to);
  if (w.type_of(x.term) == Scalar::f32 && (to == DType::f32 || is_half(to))) return w.exactly(x.term, to);
  return w.rounded(w.real(x), to);
}

int less_of(LoopWriter& w, const Element& a, const Element& b) {
  if (a.dtype == DType::u64) return w.binary(LoopCode::below, a.term, b.term);
  return w.less(whole_of(w, a), whole_of(w, b));  // of reals as they are
}
int equal_of(LoopWriter& w, const Element& a, const Element& b) { return w.equal(whole_of(w, a), whole_of(w, b)); }

int compared(LoopWriter& w, Op op, const Element& a, const Element& b) {
  switch (op) {
    case Op::Equal:
      return equal_of(w, a, b);
    case Op::Less:
      return less_of(w, a, b);
    case Op::LessOrEqual:
      return w.either(less_of(w, a, b), equal_of(w, a, b));
    case Op::Greater:
      return less_of(w, b, a);
    default:
      return w.either(less_of(w, b, a), equal_of(w, a, b));
  }
}

// ---- two whole numbers; of u64 without sign

struct WholePair {
  LoopWriter& w;
  int a, b;
  bool natural;

  int negative(int x) const { return natural ? w.truth(false) : w.less(x, w.integer(0)); }
  int is_minus_one() const { return natural ? w.truth(false) : w.equal(b, w.integer(-1)); }
  // Something that may be divided by.
  int divisor() const { return w.choose(w.either(w.equal(b, w.integer(0)), is_minus_one()), w.integer(1), b); }
  int quotient() const {
    const int q = w.binary(natural ? LoopCode::natural_quotient : LoopCode::quotient, a, divisor());
    const int all = w.choose(is_minus_one(), w.subtract(w.integer(0), a), q);
    return w.choose(w.equal(b, w.integer(0)), w.integer(0), all);
  }
  int rest(bool keeps_sign) const {
    const int zero = w.integer(0);
    int rest = w.binary(natural ? LoopCode::natural_rest : LoopCode::rest, a, divisor());
    if (!keeps_sign && !natural) {
      const int other = w.both(w.invert(w.equal(rest, zero)), w.binary(LoopCode::differ, negative(rest), negative(b)));
      rest = w.choose(other, w.add(rest, b), rest);
    }
    return w.choose(w.either(w.equal(b, zero), is_minus_one()), zero, rest);
  }
  int shifted(bool left) const {
    const int too_far = w.binary(LoopCode::below, w.integer(63), b);
    const int by = w.choose(too_far, w.integer(0), b);
    return w.choose(too_far, w.integer(0), w.binary(left ? LoopCode::shift_left : LoopCode::shift_right, a, by));
  }
};

int whole_arithmetic(LoopWriter& w, Op op, const Attrs& attrs, const Element& a, const Element& b) {
  const WholePair pair{w, a.term, b.term, a.dtype == DType::u64};
  switch (op) {
    case Op::Add:
      return w.add(pair.a, pair.b);
    case Op::Sub:
      return w.subtract(pair.a, pair.b);
    case Op::Mul:
      return w.multiply(pair.a, pair.b);
    case Op::Div:
      return pair.quotient();
    case Op::Mod:
      return pair.rest(attr_int(attrs, "fmod") != 0);
    case Op::PRelu:
      return w.choose(pair.negative(pair.a), w.multiply(pair.a, pair.b), pair.a);
    case Op::BitShift:
      return pair.shifted(attr_string(attrs, "direction") == "LEFT");
    case Op::BitwiseAnd:
    case Op::And:
      return w.both(pair.a, pair.b);
    case Op::BitwiseOr:
    case Op::Or:
      return w.either(pair.a, pair.b);
    default:
      return w.binary(LoopCode::differ, pair.a, pair.b);
  }
}

int real_arithmetic(LoopWriter& w, Op op, int a, int b) {
  switch (op) {
    case Op::Add:
      return w.add(a, b);
    case Op::Sub:
      return w.subtract(a, b);
    case Op::Mul:
      return w.multiply(a, b);
    case Op::Div:
      return w.divide(a, b);
    default:  // PRelu
      return w.choose(w.less(a, w.number(0, w.type_of(a))), w.multiply(a, b), a);
  }
}

// ---- any number of operands

// What is no number wins.
int extreme_of(LoopWriter& w, bool largest, const Element& total, const Element& next) {
  if (is_real(total.dtype)) {
    const int a = total.term, b = next.term;
    return w.choose(w.either(w.is_nan(a), largest ? w.less(b, a) : w.less(a, b)), a, b);
  }
  const int less = largest ? less_of(w, total, next) : less_of(w, next, total);
  return w.choose(less, next.term, total.term);
}

Element chained(LoopWriter& w, Op op, const std::vector<Element>& in, DType type) {
  if (op == Op::Max || op == Op::Min) {
    Element total = in[0];
    for (size_t k = 1; k < in.size(); ++k) total = w.of(extreme_of(w, op == Op::Max, total, in[k]), type);
    return total;
  }
  const auto divided = [&](int sum) {
    return op == Op::Sum ? sum : w.divide(sum, w.number(static_cast<double>(in.size())));
  };
  if (is_real(type)) {
    int sum = w.real(in[0]);
    for (size_t k = 1; k < in.size(); ++k) sum = w.add(sum, w.real(in[k]));
    return w.rounded(divided(sum), type);
  }
  Element sum = in[0];
  for (size_t k = 1; k < in.size(); ++k) sum = w.whole(w.add(sum.term, in[k].term), type);
  return op == Op::Sum || in.size() == 1 ? sum : w.rounded(divided(w.real(sum)), type);
}

Element elementwise(LoopWriter& w, const ComputeDesc& desc, const std::vector<Element>& in) {
  const DType type = desc.outputs[0].dtype;
  if (is_function_in_loops(desc.op)) return function_in_loops(w, desc.op, desc.attrs, in[0], type);
  if (is_arithmetic_in_loops(desc.op)) return arithmetic_in_loops(w, desc.op, desc.attrs, in[0], in[1], type);
  if (is_comparison(desc.op)) return w.of(compared(w, desc.op, in[0], in[1]), type);
  if (desc.op == Op::Where) return w.chosen(in[0].term, in[1], in[2]);
  return chained(w, desc.op, in, type);
}

}  // namespace

bool is_comparison(Op op) {
  return op == Op::Equal || op == Op::Greater || op == Op::GreaterOrEqual || op == Op::Less || op == Op::LessOrEqual;
}
bool is_chain(Op op) { return op == Op::Sum || op == Op::Mean || op == Op::Max || op == Op::Min; }

bool is_function_in_loops(Op op) {
  switch (op) {
    case Op::Relu:
    case Op::Neg:
    case Op::Abs:
    case Op::Ceil:
    case Op::Floor:
    case Op::Round:
    case Op::Sign:
    case Op::Sqrt:
    case Op::Reciprocal:
    case Op::Softsign:
    case Op::LeakyRelu:
    case Op::HardSigmoid:
    case Op::HardSwish:
    case Op::Clip:
    case Op::Shrink:
    case Op::ThresholdedRelu:
    case Op::Exp:
    case Op::Log:
    case Op::Sigmoid:
    case Op::Tanh:
    case Op::Erf:
    case Op::Softplus:
    case Op::Mish:
    case Op::Celu:
    case Op::Elu:
    case Op::Selu:
    case Op::Gelu:
    case Op::Not:
    case Op::BitwiseNot:
    case Op::IsNaN:
    case Op::IsInf:
    case Op::Cast:
      return true;
    default:
      return is_circular(op);
  }
}

bool is_arithmetic_in_loops(Op op) {
  switch (op) {
    case Op::Add:
    case Op::Sub:
    case Op::Mul:
    case Op::Div:
    case Op::Mod:
    case Op::Pow:
    case Op::PRelu:
    case Op::BitShift:
    case Op::BitwiseAnd:
    case Op::BitwiseOr:
    case Op::BitwiseXor:
    case Op::And:
    case Op::Or:
    case Op::Xor:
      return true;
    default:
      return false;
  }
}

std::string refuse_function(const ComputeDesc& desc) {
  // Cast from blocks is refused with all that shares scales.
  return desc.op == Op::Mish && desc.outputs[0].dtype == DType::f64 ? "its functions are not exact enough for f64" : "";
}

std::string refuse_arithmetic(const ComputeDesc& desc) {
  const DType type = desc.inputs[0].dtype;
  if (desc.op == Op::Mod && is_real(type)) return "the rest of a division of reals is a loop of its own";
  if (desc.op == Op::Pow && (!is_real(type) || type == DType::f64)) return fmt::format("powers of {}", name_of(type));
  return {};
}

Element function_in_loops(LoopWriter& w, Op op, const Attrs& attrs, const Element& x, DType result) {
  switch (op) {
    case Op::Cast:
      return cast(w, x, result);
    case Op::Not:
      return w.of(w.invert(x.term), result);
    case Op::IsNaN:
      return w.of(w.is_nan(x.term), result);
    case Op::IsInf: {
      const Scalar type = w.type_of(x.term);
      const int limit = w.number(std::numeric_limits<double>::infinity(), type);
      const int high = w.both(w.truth(attr_int(attrs, "detect_positive") != 0), w.equal(x.term, limit));
      const int low =
          w.both(w.truth(attr_int(attrs, "detect_negative") != 0), w.equal(w.unary(LoopCode::negate, x.term), limit));
      return w.of(w.either(high, low), result);
    }
    default:
      break;
  }
  if (!is_real(x.dtype)) {
    const int whole = whole_function(w, op, x.term);
    if (whole >= 0) return w.whole(whole, result);
    // As the reference does it: the bits of u64 as a signed number, too.
    const int real = w.convert(LoopCode::real_of, x.term, Scalar::f64);
    return w.whole(w.convert(LoopCode::whole_of, real_function(w, op, attrs, real), Scalar::whole), result);
  }
  if (is_circular(op)) return w.rounded(circular_function(w, op, w.real(x), x.dtype == DType::f64), result);
  if (keeps_type(op) && w.type_of(x.term) == Scalar::f32)
    return w.of(exact_function(w, op, x.term, Scalar::f32), result);
  return w.rounded(real_function(w, op, attrs, w.real(x)), result);
}

Element arithmetic_in_loops(LoopWriter& w, Op op, const Attrs& attrs, const Element& a, const Element& b,
                            DType result) {
  if (op == Op::Pow) return w.rounded(power(w, w.real(a), w.real(b)), result);
  if (w.type_of(a.term) == Scalar::truth) return w.of(whole_arithmetic(w, op, attrs, a, b), result);
  if (!is_real(a.dtype)) return w.whole(whole_arithmetic(w, op, attrs, a, b), result);
  // One operation in f32 is the one in f64, rounded: 53 digits are more than 2 · 24 + 1 (Figueroa, "When is double
  // rounding innocuous?", 1995).
  if (w.type_of(a.term) == Scalar::f32) return w.exactly(real_arithmetic(w, op, a.term, b.term), result);
  return w.rounded(real_arithmetic(w, op, a.term, b.term), result);
}

Loops lower_elementwise(const ComputeDesc& desc) {
  LoopWriter w;
  add_inputs(w, desc);
  const size_t own = desc.own_inputs();
  Space space(desc.outputs[0].shape, own);
  for (size_t i = 0; i < own; ++i) space.broadcast(i, desc.inputs[i].shape);
  space.simplify();
  w.loops.extents = space.extents();
  std::vector<Element> in;
  for (size_t i = 0; i < own; ++i) in.push_back(w.read(static_cast<int>(i), space.index(w, i)));
  finish(w, desc, elementwise(w, desc, in), space.place(w));
  return std::move(w.loops);
}

// In f32, where the result has 16 bits at most: beyond 2^24, where a sum with the zero is rounded, all are cut off.
Element quantized_in_f32(LoopWriter& w, const std::vector<Element>& in, DType type, double low, double high) {
  const int near = w.unary(LoopCode::nearest, w.divide(in[0].term, in[1].term));
  const int zero = in.size() > 2 ? w.convert(LoopCode::narrow, w.real(in[2]), Scalar::f32) : w.number(0, Scalar::f32);
  const int value = bounded(w, w.add(near, zero), low, high);
  const int known = w.choose(w.is_nan(value), w.number(0, Scalar::f32), value);
  // Added to a whole number below 2^22 it leaves the number in the low bits.
  constexpr float to_low_bits = 0x1.8p23f;
  const int bits = w.convert(LoopCode::bits_of, w.add(known, w.number(to_low_bits, Scalar::f32)), Scalar::whole);
  return w.whole(w.subtract(bits, w.integer(std::bit_cast<int32_t>(to_low_bits))), type);
}

// Scale and zero are one number, or one an index of the axis.
Loops lower_quantization(const ComputeDesc& desc) {
  LoopWriter w;
  add_inputs(w, desc);
  const Shape& shape = desc.outputs[0].shape;
  const size_t own = desc.own_inputs();
  Space space(shape, own);
  space.broadcast(0, shape);
  for (size_t i = 1; i < own; ++i) {
    if (element_count(desc.inputs[i].shape) == 1) continue;
    space.along(i, axis_of(attr_int(desc.attrs, "axis"), shape.size()).value()).step = 1;
  }
  space.simplify();
  w.loops.extents = space.extents();
  std::vector<Element> in;
  for (size_t i = 0; i < own; ++i) in.push_back(w.read(static_cast<int>(i), space.index(w, i)));
  const int scale = w.real(in[1]), place = space.place(w);
  const DType type = desc.outputs[0].dtype;
  const int zero = own > 2 ? w.real(in[2]) : w.number(0);
  if (desc.op == Op::DequantizeLinear) {
    const int value = w.multiply(w.subtract(w.real(in[0]), zero), scale);
    finish(w, desc, w.rounded(value, type), place);
    return std::move(w.loops);
  }
  const bool is_signed = type == DType::i8 || type == DType::i16 || type == DType::i32 || type == DType::i64;
  double span = 1;
  for (int64_t bit = 0; bit < 8 * size_of(type); ++bit) span *= 2;
  const double low = is_signed ? -span / 2 : 0, high = low + span - 1;
  if (in[0].dtype == DType::f32 && in[1].dtype == DType::f32 && size_of(type) <= 2) {
    finish(w, desc, quantized_in_f32(w, in, type, low, high), place);
    return std::move(w.loops);
  }
  // The quotient is of the operand's precision, so that ties are the same ones.
  const DType precision = is_real(in[0].dtype) ? in[0].dtype : in[1].dtype;
  const Element quotient = w.rounded(w.divide(w.real(in[0]), scale), precision);
  const int near = w.unary(LoopCode::nearest, w.real(quotient));
  const int value = bounded(w, w.add(near, zero), low, high);
  finish(w, desc, w.rounded(value, type), place);
  return std::move(w.loops);
}

}  // namespace nlsplit::inline kernels
