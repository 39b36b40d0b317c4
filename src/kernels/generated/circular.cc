// Sines and their kin, circular and hyperbolic, with their inverses.
#include <array>
#include <bit>
#include <limits>
#include <numbers>

#include "kernels/generated/functions.h"
#include "kernels/generated/lower.h"

namespace nlsplit::inline kernels {
namespace {

constexpr double half_pi = std::numbers::pi / 2, unbounded = std::numeric_limits<double>::infinity();

// The first 1,280 binary digits of 2/π behind the point.
constexpr std::array<uint64_t, 20> two_over_pi = {
    0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0,
    0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4,
    0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab, 0xf0cfbc209af4361d};

// `count` of them, the first of weight 2^-first; in front of the point they are zeros.
int64_t digits_of_two_over_pi(int first, int count) {
  uint64_t digits = 0;
  for (int weight = first; weight < first + count; ++weight) {
    const auto at = static_cast<size_t>(weight - 1);
    const uint64_t digit = weight < 1 ? 0 : two_over_pi[at / 64] >> (63 - at % 64) & 1;
    digits = digits << 1 | digit;
  }
  return static_cast<int64_t>(digits);
}

// x = (quadrant + 4 k) π/2 + rest, |rest| <= π/4.
struct Turn {
  int quadrant, rest;  // whole, 0 to 3; f64
};

// x 2/π modulo 4 in fixed point: x is a whole number times a power of two, and the product of that power with 2/π is in
// tables (after Payne and Hanek, "Radian reduction for trigonometric functions", 1983). So any finite x will do. Words
// behind the first have 36 digits, and what they are multiplied with 27: products do not wrap.
class TurnWriter {
 public:
  // wide: x has 53 digits, else 24 and the exponents of f32.
  TurnWriter(LoopWriter& w, bool wide) : w_(w), wide_(wide), words_(wide ? 3 : 1) {
    const int first = wide ? -53 : -27, entries = wide ? 1051 : 129;  // powers of two
    for (int word = 0; word <= words_; ++word) {
      std::vector<int64_t> digits;
      for (int power = first; power < first + entries; ++power)
        digits.push_back(word == 0 ? digits_of_two_over_pi(power - 1, 64)
                                   : digits_of_two_over_pi(power + 63 + bits_of_word * (word - 1), bits_of_word));
      tables_.push_back(w.add_table(std::move(digits)));
      sums_.push_back(w.integer(0));
    }
  }

  Turn of(int size) {
    const int bits = w_.convert(LoopCode::bits_of, size, Scalar::whole);
    constexpr int exponent_of_half = 1022;
    const int exponent = w_.add(shifted(bits, 52), w_.integer(-exponent_of_half));
    const int power = w_.clamped(exponent, 0, wide_ ? 1024 : 128);
    const int fraction = w_.either(low_bits(bits, 52), w_.integer(int64_t{1} << 52));
    add_product(shifted(fraction, 26), wide_ ? w_.add(power, w_.integer(26)) : power);
    if (wide_) add_product(low_bits(fraction, 26), power);
    // The first word: two digits in front of the point, 62 behind.
    const int raised = w_.add(sums_[0], w_.integer(int64_t{1} << 61));
    const int behind = low_bits(raised, 62);
    int turns = w_.subtract(biased(shifted(behind, 31)), w_.number(0x1p52 + 0x1p30));
    turns =
        w_.add(w_.multiply(turns, w_.number(0x1p-31)), w_.multiply(natural(low_bits(behind, 31)), w_.number(0x1p-62)));
    double unit = 0x1p-62;
    for (int word = 1; word <= words_; ++word) {
      unit *= 0x1p-36;
      turns = w_.add(turns, w_.multiply(natural(sums_[static_cast<size_t>(word)]), w_.number(unit)));
    }
    const int is_small = w_.less(size, w_.number(0.5));
    return {w_.choose(is_small, w_.integer(0), shifted(raised, 62)),
            w_.choose(is_small, size, w_.multiply(turns, w_.number(half_pi)))};
  }

 private:
  static constexpr int bits_of_word = 36;

  int shifted(int x, int by) { return w_.binary(LoopCode::shift_right, x, w_.integer(by)); }
  int low_bits(int x, int count) { return w_.both(x, w_.integer((int64_t{1} << count) - 1)); }
  // 2^52 + x, and x, of a whole number below 2^52.
  int biased(int x) {
    return w_.convert(LoopCode::from_bits, w_.either(x, w_.integer(std::bit_cast<int64_t>(0x1p52))), Scalar::f64);
  }
  int natural(int x) { return w_.subtract(biased(x), w_.number(0x1p52)); }

  void add_product(int x, int entry) {
    sums_[0] = w_.add(sums_[0], w_.multiply(x, w_.entry(tables_[0], entry)));
    for (size_t word = 1; word < sums_.size(); ++word) {
      const int product = w_.multiply(x, w_.entry(tables_[word], entry));
      sums_[word - 1] = w_.add(sums_[word - 1], shifted(product, bits_of_word));
      sums_[word] = w_.add(sums_[word], low_bits(product, bits_of_word));
    }
  }

  LoopWriter& w_;
  const bool wide_;
  const int words_;  // behind the first
  std::vector<int> tables_, sums_;
};

// Both of |rest| <= π/4.
int small_sine(LoopWriter& w, int rest) {
  static constexpr double p[] = {1.58962301576546568060e-10, -2.50507477628578072866e-8, 2.75573136213857245213e-6,
                                 -1.98412698295895385996e-4, 8.33333333332211858878e-3,  -1.66666666666666307295e-1};
  const int square = w.multiply(rest, rest);
  return w.add(rest, w.multiply(rest, w.multiply(square, polynomial(w, square, p))));
}
int small_cosine(LoopWriter& w, int rest) {
  static constexpr double p[] = {-1.13585365213876817300e-11, 2.08757008419747316778e-9,  -2.75573141792967388112e-7,
                                 2.48015872888517045348e-5,   -1.38888888888730564116e-3, 4.16666666666665929218e-2};
  const int square = w.multiply(rest, rest);
  const int first = w.subtract(w.number(1), w.multiply(square, w.number(0.5)));
  return w.add(first, w.multiply(w.multiply(square, square), polynomial(w, square, p)));
}

int has_bit(LoopWriter& w, int x, int64_t bit) { return w.equal(w.both(x, w.integer(bit)), w.integer(bit)); }
// Infinities have no place on the circle.
int of_finite(LoopWriter& w, int size, int y) {
  return w.choose(w.less(size, w.number(unbounded)), y, w.number(std::numeric_limits<double>::quiet_NaN()));
}

int sine(LoopWriter& w, int x, bool wide, bool is_cosine) {
  const int size = w.unary(LoopCode::magnitude, x);
  Turn turn = TurnWriter(w, wide).of(size);
  if (is_cosine) turn.quadrant = w.add(turn.quadrant, w.integer(1));
  const int y = w.choose(has_bit(w, turn.quadrant, 1), small_cosine(w, turn.rest), small_sine(w, turn.rest));
  int sign = w.binary(LoopCode::shift_left, w.both(turn.quadrant, w.integer(2)), w.integer(62));
  if (!is_cosine) {
    const int of_x = w.both(w.convert(LoopCode::bits_of, x, Scalar::whole), w.integer(INT64_MIN));
    sign = w.binary(LoopCode::differ, sign, of_x);
  }
  const int bits = w.binary(LoopCode::differ, w.convert(LoopCode::bits_of, y, Scalar::whole), sign);
  return of_finite(w, size, w.convert(LoopCode::from_bits, bits, Scalar::f64));
}

int tangent(LoopWriter& w, int x, bool wide) {
  const int size = w.unary(LoopCode::magnitude, x);
  const Turn turn = TurnWriter(w, wide).of(size);
  const int s = small_sine(w, turn.rest), c = small_cosine(w, turn.rest);
  const int odd = has_bit(w, turn.quadrant, 1);
  const int y = w.divide(w.choose(odd, w.unary(LoopCode::negate, c), s), w.choose(odd, s, c));
  const int of_x = w.both(w.convert(LoopCode::bits_of, x, Scalar::whole), w.integer(INT64_MIN));
  const int bits = w.binary(LoopCode::differ, w.convert(LoopCode::bits_of, y, Scalar::whole), of_x);
  return of_finite(w, size, w.convert(LoopCode::from_bits, bits, Scalar::f64));
}

// asin of 0 to 0.5.
int small_arc_sine(LoopWriter& w, int x) {
  static constexpr double p[] = {4.253011369004428248960e-3, -6.019598008014123785661e-1, 5.444622390564711410273e0,
                                 -1.626247967210700244449e1, 1.956261983317594739197e1,   -8.198089802484824371615e0};
  static constexpr double q[] = {-1.474091372988853791896e1, 7.049610280856842141659e1, -1.471791292232726029859e2,
                                 1.395105614657485689735e2, -4.918853881490881290097e1};
  const int square = w.multiply(x, x);
  const int part = w.divide(w.multiply(square, polynomial(w, square, p)), monic(w, square, q));
  return w.add(x, w.multiply(x, part));
}

// asin(x) = π/2 - 2 asin(√((1 - x) / 2)).
int arc_sine(LoopWriter& w, int x, bool is_cosine) {
  const int size = w.unary(LoopCode::magnitude, x);
  const int is_large = w.less(w.number(0.5), size);
  const int other = w.unary(LoopCode::root, w.multiply(w.subtract(w.number(1), size), w.number(0.5)));
  const int arc = small_arc_sine(w, w.choose(is_large, other, size));
  const int twice = w.add(arc, arc), quarter = w.number(half_pi);
  if (!is_cosine) return with_sign_of(w, w.choose(is_large, w.subtract(quarter, twice), arc), x);
  const int is_negative = w.less(x, w.number(0));
  const int far = w.choose(is_negative, w.subtract(w.number(std::numbers::pi), twice), twice);
  return w.choose(is_large, far, w.subtract(quarter, with_sign_of(w, arc, x)));
}

// Beyond tan(3π/8) of -1/x, beyond 0.66 of (x - 1) / (x + 1).
int arc_tangent(LoopWriter& w, int x) {
  static constexpr double p[] = {-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
                                 -1.228866684490136173410e2, -6.485021904942025371773e1};
  static constexpr double q[] = {2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
                                 4.853903996359136964868e2, 1.945506571482613964425e2};
  constexpr double beyond_half_pi = 6.123233995736765886130e-17;  // what the number half_pi is short of
  const int size = w.unary(LoopCode::magnitude, x), one = w.number(1), zero = w.number(0);
  const int is_large = w.less(w.number(2.41421356237309504880), size);
  const int is_middle = w.less(w.number(0.66), size);
  const auto by_range = [&](int large, int middle, int small) {
    return w.choose(is_large, large, w.choose(is_middle, middle, small));
  };
  const int r = by_range(w.divide(w.number(-1), size), w.divide(w.subtract(size, one), w.add(size, one)), size);
  const int turned = by_range(w.number(half_pi), w.number(half_pi / 2), zero);
  const int more = by_range(w.number(beyond_half_pi), w.number(beyond_half_pi / 2), zero);
  const int square = w.multiply(r, r);
  const int part = w.divide(w.multiply(square, polynomial(w, square, p)), monic(w, square, q));
  const int arc = w.add(w.add(w.multiply(r, part), r), more);
  return with_sign_of(w, w.add(turned, arc), x);
}

// e^|x| / 2 in two factors, so that it is infinite no sooner than the result.
int half_exponential(LoopWriter& w, int size) {
  const int root = exponential(w, w.multiply(size, w.number(0.5)));
  return w.multiply(w.multiply(root, w.number(0.5)), root);
}

int hyperbolic_sine(LoopWriter& w, int x) {
  static constexpr double p[] = {-7.89474443963537015605e-1, -1.63725857525983828727e2, -1.15614435765005216044e4,
                                 -3.51754964808151394800e5};
  static constexpr double q[] = {-2.77711081420602794433e2, 3.61578279834431989373e4, -2.11052978884890840399e6};
  const int size = w.unary(LoopCode::magnitude, x), square = w.multiply(size, size);
  const int part = w.divide(w.multiply(square, polynomial(w, square, p)), monic(w, square, q));
  const int small = w.add(size, w.multiply(size, part));
  const int half = half_exponential(w, size);
  const int large = w.subtract(half, w.divide(w.number(0.25), half));
  return with_sign_of(w, w.choose(w.less(size, w.number(1)), small, large), x);
}

int hyperbolic_cosine(LoopWriter& w, int x) {
  const int half = half_exponential(w, w.unary(LoopCode::magnitude, x));
  return w.add(half, w.divide(w.number(0.25), half));
}

// log(x + √(x² + 1)); of large x log(2 x).
int area_hyperbolic_sine(LoopWriter& w, int x) {
  static constexpr double p[] = {-4.33231683752342103572e-3, -5.91750212056387121207e-1, -4.37390226194356683570e0,
                                 -9.09030533308377316566e0, -5.56682227230859640450e0};
  static constexpr double q[] = {1.28757002067426453537e1, 4.86042483805291788324e1, 6.95722521337257608734e1,
                                 3.34009336338516356383e1};
  const int size = w.unary(LoopCode::magnitude, x), square = w.multiply(size, size);
  const int part = w.divide(w.multiply(square, polynomial(w, square, p)), monic(w, square, q));
  const int small = w.add(size, w.multiply(size, part));
  const int is_huge = w.less(w.number(1e8), size);
  const int sum = w.add(size, w.unary(LoopCode::root, w.add(square, w.number(1))));
  const int log = logarithm(w, w.choose(is_huge, size, sum));
  const int large = w.add(log, w.choose(is_huge, w.number(std::numbers::ln2), w.number(0)));
  return with_sign_of(w, w.choose(w.less(size, w.number(0.5)), small, large), x);
}

// log(x + √((x - 1) (x + 1))); near 1 √(x - 1) by a fraction, no number below.
int area_hyperbolic_cosine(LoopWriter& w, int x) {
  static constexpr double p[] = {1.18801130533544501356e2, 3.94726656571334401102e3, 3.43989375926195455866e4,
                                 1.08102874834699867335e5, 1.10855947270161294369e5};
  static constexpr double q[] = {1.86145380837903397292e2, 4.15352677227719831579e3, 2.97683430363289370382e4,
                                 8.29725251988426222434e4, 7.83869920495893927727e4};
  const int above = w.subtract(x, w.number(1));
  const int part = w.divide(polynomial(w, above, p), monic(w, above, q));
  const int small = w.multiply(w.unary(LoopCode::root, above), part);
  const int is_huge = w.less(w.number(1e8), x);
  const int sum = w.add(x, w.unary(LoopCode::root, w.multiply(above, w.add(x, w.number(1)))));
  const int log = logarithm(w, w.choose(is_huge, x, sum));
  const int large = w.add(log, w.choose(is_huge, w.number(std::numbers::ln2), w.number(0)));
  return w.choose(w.less(above, w.number(0.5)), small, large);
}

// log((1 + x) / (1 - x)) / 2
int area_hyperbolic_tangent(LoopWriter& w, int x) {
  static constexpr double p[] = {-8.54074331929669305196e-1, 1.20426861384072379242e1, -4.61252884198732692637e1,
                                 6.54566728676544377376e1, -3.09092539379866942570e1};
  static constexpr double q[] = {-1.95638849376911654834e1, 1.08938092147140262656e2, -2.49839401325893582852e2,
                                 2.52006675691344555838e2, -9.27277618139601130017e1};
  const int size = w.unary(LoopCode::magnitude, x), square = w.multiply(size, size), one = w.number(1);
  const int part = w.divide(w.multiply(square, polynomial(w, square, p)), monic(w, square, q));
  const int small = w.add(size, w.multiply(size, part));
  const int log = logarithm(w, w.divide(w.add(one, size), w.subtract(one, size)));
  const int large = w.multiply(log, w.number(0.5));
  return with_sign_of(w, w.choose(w.less(size, w.number(0.5)), small, large), x);
}

}  // namespace

bool is_circular(Op op) {
  switch (op) {
    case Op::Acos:
    case Op::Acosh:
    case Op::Asin:
    case Op::Asinh:
    case Op::Atan:
    case Op::Atanh:
    case Op::Cos:
    case Op::Cosh:
    case Op::Sin:
    case Op::Sinh:
    case Op::Tan:
      return true;
    default:
      return false;
  }
}

int circular_function(LoopWriter& w, Op op, int x, bool wide) {
  switch (op) {
    case Op::Sin:
    case Op::Cos:
      return sine(w, x, wide, op == Op::Cos);
    case Op::Tan:
      return tangent(w, x, wide);
    case Op::Asin:
    case Op::Acos:
      return arc_sine(w, x, op == Op::Acos);
    case Op::Atan:
      return arc_tangent(w, x);
    case Op::Sinh:
      return hyperbolic_sine(w, x);
    case Op::Cosh:
      return hyperbolic_cosine(w, x);
    case Op::Asinh:
      return area_hyperbolic_sine(w, x);
    case Op::Acosh:
      return area_hyperbolic_cosine(w, x);
    default:
      return area_hyperbolic_tangent(w, x);
  }
}

}  // namespace nlsplit::inline kernels
