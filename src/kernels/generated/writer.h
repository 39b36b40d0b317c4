// Writes loops term by term. Equal terms are one; elements of any type are read, computed with and rounded as the
// reference evaluator does it: reals in f64, integers in 64 bits, and the result once to its type.
//
//   LoopWriter w(desc);
//   const Element x = w.read(0, w.axis(0));
//   w.finish(w.rounded(w.magnitude(w.real(x)), DType::f32), w.axis(0));
#pragma once

#include <map>
#include <tuple>

#include "kernels/generated/loops.h"

namespace nlsplit::inline kernels {

// An element as a value of its type: f32, f64, whole, truth; a half as the f32 that it is, and its bits if they are
// known.
struct Element {
  DType dtype{};
  int term = -1, bits = -1;
};

class LoopWriter {
 public:
  Loops loops;

  // ---- terms
  int number(double value, Scalar type = Scalar::f64);
  int integer(int64_t value);
  int truth(bool value);
  int axis(int which);
  int entry(int table, int index);
  int carried(int accumulator, Scalar type);
  int unary(LoopCode code, int x);          // of the type of x
  int binary(LoopCode code, int x, int y);  // of the type of x; less, equal, below: truth
  int choose(int condition, int x, int y);
  int convert(LoopCode code, int x, Scalar to);
  int wrap(int x, DType dtype);
  int invert(int truth) { return binary(LoopCode::differ, truth, this->truth(true)); }
  Scalar type_of(int term) const { return loops.terms[static_cast<size_t>(term)].type; }

  int add(int x, int y);       // whole numbers plus 0 are themselves
  int multiply(int x, int y);  // and times 1
  int subtract(int x, int y) { return binary(LoopCode::subtract, x, y); }
  int divide(int x, int y) { return binary(LoopCode::divide, x, y); }
  int less(int x, int y) { return binary(LoopCode::less, x, y); }
  int equal(int x, int y) { return binary(LoopCode::equal, x, y); }
  int both(int x, int y) { return binary(LoopCode::both, x, y); }
  int either(int x, int y) { return binary(LoopCode::either, x, y); }
  int is_nan(int x) { return invert(equal(x, x)); }
  int clamped(int x, int64_t low, int64_t high);  // whole

  // ---- elements
  int add_input(DType dtype, int64_t count);
  int add_table(std::vector<int64_t> integers);
  int add_table(std::vector<double> numbers);
  Element read(int input, int index);
  Element written(int index);              // of the result, by the same row
  int real(const Element& x);              // as f64, whatever it is (u64 without sign)
  Element rounded(int real, DType dtype);  // f64 to the type, as the reference's Array::set does it
  Element exactly(int f32, DType dtype);   // f32 to f32 or a half
  Element whole(int term, DType dtype);    // low bits; bool: not 0
  Element of(int term, DType dtype);       // a term that is a value of the type already
  Element chosen(int condition, const Element& x, const Element& y);
  int stored(const Element& x);  // as `Loops` stores it

  // The result, and where it goes.
  void finish(const Element& x, int place);

 private:
  int term(Term it);
  Element loaded(LoopCode code, DType dtype, int which, int index);
  int f16_bits(int f32);
  int bf16_bits(int f32);
  int f32_of_f16(int bits);
  int to_odd(int f64);

  using Key = std::tuple<LoopCode, Scalar, int, int, int, int, DType, uint64_t, int64_t>;
  std::map<Key, int> known_;
};

}  // namespace nlsplit::inline kernels
