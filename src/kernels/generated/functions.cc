#include "kernels/generated/functions.h"

#include <bit>
#include <limits>

namespace nlsplit::inline kernels {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
// Added to a number below 2^51 it leaves the nearest integer in the low bits.
constexpr double to_low_bits = 0x1.8p52;

// 2^n of a whole number n from -1022 to 1023.
int two_to(LoopWriter& w, int n) {
  const int low = w.convert(LoopCode::bits_of, w.add(n, w.number(to_low_bits)), Scalar::whole);
  const int exponent = w.add(low, w.integer(1023 - std::bit_cast<int64_t>(to_low_bits)));
  return w.convert(LoopCode::from_bits, w.binary(LoopCode::shift_left, exponent, w.integer(52)), Scalar::f64);
}

// (e^r - 1) / 2 as p / (q - p), |r| <= log(2) / 2.
struct Fraction {
  int above, below;
};
Fraction half_of_exponential_less_one(LoopWriter& w, int r) {
  static constexpr double p[] = {1.26177193074810590878e-4, 3.02994407707441961300e-2, 9.99999999999999999910e-1};
  static constexpr double q[] = {3.00198505138664455042e-6, 2.52448340349684104192e-3, 2.27265548208155028766e-1,
                                 2.00000000000000000005e0};
  const int square = w.multiply(r, r);
  const int above = w.multiply(r, polynomial(w, square, p));
  return {above, w.subtract(polynomial(w, square, q), above)};
}

}  // namespace

int within(LoopWriter& w, int x, double low, double high) {
  const int at_least = w.choose(w.less(x, w.number(low)), w.number(low), x);
  return w.choose(w.less(w.number(high), at_least), w.number(high), at_least);
}

int polynomial(LoopWriter& w, int x, std::span<const double> coefficients) {
  int sum = w.number(coefficients[0]);
  for (const double c : coefficients.subspan(1)) sum = w.add(w.multiply(sum, x), w.number(c));
  return sum;
}

int monic(LoopWriter& w, int x, std::span<const double> coefficients) {
  int sum = w.add(x, w.number(coefficients[0]));
  for (const double c : coefficients.subspan(1)) sum = w.add(w.multiply(sum, x), w.number(c));
  return sum;
}

int with_sign_of(LoopWriter& w, int size, int x) {
  const int sign = w.both(w.convert(LoopCode::bits_of, x, Scalar::whole), w.integer(INT64_MIN));
  return w.convert(LoopCode::from_bits, w.either(w.convert(LoopCode::bits_of, size, Scalar::whole), sign), Scalar::f64);
}

int exponential(LoopWriter& w, int x) {
  const int bounded = within(w, x, -746, 710);
  const int n = w.unary(LoopCode::nearest, w.multiply(bounded, w.number(1.4426950408889634073599)));
  int r = w.subtract(bounded, w.multiply(n, w.number(6.93145751953125e-1)));
  r = w.subtract(r, w.multiply(n, w.number(1.42860682030941723212e-6)));
  const Fraction half = half_of_exponential_less_one(w, r);
  const int e = w.add(w.number(1), w.multiply(w.number(2), w.divide(half.above, half.below)));
  // By two factors, so that what is subnormal or infinite at last is not so before.
  const int first = w.unary(LoopCode::floor, w.multiply(n, w.number(0.5)));
  return w.multiply(w.multiply(e, two_to(w, first)), two_to(w, w.subtract(n, first)));
}

int exponential_less_one(LoopWriter& w, int x) {
  const int size = w.unary(LoopCode::magnitude, x);
  const int is_small = w.less(size, w.number(0.34));
  const Fraction half = half_of_exponential_less_one(w, w.choose(is_small, x, w.number(0)));
  const int small = w.multiply(w.number(2), w.divide(half.above, half.below));
  const int result = w.choose(is_small, small, w.subtract(exponential(w, x), w.number(1)));
  return w.choose(w.equal(x, w.number(0)), x, result);  // -0 too
}

int logarithm(LoopWriter& w, int x) {
  static constexpr double p[] = {1.01875663804580931796e-4, 4.97494994976747001425e-1, 4.70579119878881725854e0,
                                 1.44989225341610930846e1,  1.79368678507819816313e1,  7.70838733755885391666e0};
  static constexpr double q[] = {1.12873587189167450590e1, 4.52279145837532221105e1, 8.29875266912776603211e1,
                                 7.11544750618563894466e1, 2.31251620126765340583e1};
  const int is_subnormal = w.less(x, w.number(0x1p-1022));
  const int scaled = w.choose(is_subnormal, w.multiply(x, w.number(0x1p54)), x);
  const int bits = w.convert(LoopCode::bits_of, scaled, Scalar::whole);
  // The exponent as a number, so that the fraction is in [0.5, 1).
  const int field = w.both(w.binary(LoopCode::shift_right, bits, w.integer(52)), w.integer(0x7ff));
  const int biased =
      w.convert(LoopCode::from_bits, w.either(field, w.integer(std::bit_cast<int64_t>(0x1p52))), Scalar::f64);
  const int bias = w.choose(is_subnormal, w.number(0x1p52 + 1022 + 54), w.number(0x1p52 + 1022));
  int e = w.subtract(biased, bias);
  const int fraction_bits = w.either(w.both(bits, w.integer((int64_t{1} << 52) - 1)), w.integer(int64_t{1022} << 52));
  const int fraction = w.convert(LoopCode::from_bits, fraction_bits, Scalar::f64);
  const int is_low = w.less(fraction, w.number(0.70710678118654752440));
  e = w.choose(is_low, w.subtract(e, w.number(1)), e);
  const int f = w.subtract(w.choose(is_low, w.add(fraction, fraction), fraction), w.number(1));
  const int square = w.multiply(f, f);
  int y = w.multiply(f, w.divide(w.multiply(square, polynomial(w, f, p)), monic(w, f, q)));
  y = w.subtract(y, w.multiply(e, w.number(2.121944400546905827679e-4)));
  y = w.subtract(y, w.multiply(square, w.number(0.5)));
  int result = w.add(w.add(f, y), w.multiply(e, w.number(0.693359375)));
  result = w.choose(w.equal(x, w.number(infinity)), x, result);
  result = w.choose(w.equal(x, w.number(0)), w.number(-infinity), result);
  return w.choose(w.either(w.less(x, w.number(0)), w.is_nan(x)), w.number(nan), result);
}

int hyperbolic_tangent(LoopWriter& w, int x) {
  static constexpr double p[] = {-9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3};
  static constexpr double q[] = {1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3};
  const int size = w.unary(LoopCode::magnitude, x), square = w.multiply(x, x);
  const int rest = w.divide(polynomial(w, square, p), monic(w, square, q));
  const int small = w.add(x, w.multiply(w.multiply(x, square), rest));
  const int e = exponential(w, w.add(size, size));
  const int large = w.subtract(w.number(1), w.divide(w.number(2), w.add(e, w.number(1))));
  const int result = w.choose(w.less(size, w.number(0.625)), small, with_sign_of(w, large, x));
  return w.choose(w.equal(x, w.number(0)), x, result);
}

int error_function(LoopWriter& w, int x) {
  static constexpr double t[] = {9.60497373987051638749e0, 9.00260197203842689217e1, 2.23200534594684319226e3,
                                 7.00332514112805075473e3, 5.55923013010394962768e4};
  static constexpr double u[] = {3.35617141647503099647e1, 5.21357949780152679795e2, 4.59432382970980127987e3,
                                 2.26290000613890934246e4, 4.92673942608635921086e4};
  static constexpr double p[] = {2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687e0,
                                 4.86371970985681366614e1,   1.96520832956077098242e2,  5.26445194995477358631e2,
                                 9.34528527171957607540e2,   1.02755188689515710272e3,  5.57535335369399327526e2};
  static constexpr double q[] = {1.32281951154744992508e1, 8.67072140885989742329e1, 3.54937778887819891062e2,
                                 9.75708501743205489753e2, 1.82390916687909736289e3, 2.24633760818710981792e3,
                                 1.65666309194161350182e3, 5.57535340817727675546e2};
  const int size = w.unary(LoopCode::magnitude, x), square = w.multiply(x, x);
  const int small = w.multiply(x, w.divide(polynomial(w, square, t), monic(w, square, u)));
  const int bounded = within(w, size, 0, 7);  // from 6 on erf is 1
  const int below = w.multiply(exponential(w, w.unary(LoopCode::negate, w.multiply(bounded, bounded))),
                               w.divide(polynomial(w, bounded, p), monic(w, bounded, q)));
  const int large = with_sign_of(w, w.subtract(w.number(1), below), x);
  return w.choose(w.less(size, w.number(1)), small, large);
}

int power(LoopWriter& w, int x, int y) {
  const int size = w.unary(LoopCode::magnitude, x), exponent_size = w.unary(LoopCode::magnitude, y);
  const int half = w.multiply(y, w.number(0.5));
  const int is_whole = w.equal(w.unary(LoopCode::cut, y), y);
  const int is_odd = w.both(is_whole, w.invert(w.equal(w.unary(LoopCode::cut, half), half)));
  const int zero = w.number(0), one = w.number(1);
  // 0 times an infinite logarithm is no number: bases 0 and infinity are told apart by the exponent's sign below.
  const int e = exponential(w, w.multiply(y, logarithm(w, size)));
  int result = w.choose(w.both(w.less(x, zero), is_odd), w.unary(LoopCode::negate, e), e);
  result = w.choose(w.both(w.less(x, zero), w.both(w.invert(is_whole), w.less(size, w.number(infinity)))),
                    w.number(nan), result);
  const int minus_zero = w.both(w.equal(x, zero), is_odd);
  result = w.choose(minus_zero, with_sign_of(w, e, x), result);
  result = w.choose(w.both(w.equal(size, one), w.equal(exponent_size, w.number(infinity))), one, result);
  return w.choose(w.either(w.equal(y, zero), w.equal(x, one)), one, result);
}

}  // namespace nlsplit::inline kernels
