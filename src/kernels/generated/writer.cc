#include "kernels/generated/writer.h"

#include <bit>

namespace nlsplit::inline kernels {

int LoopWriter::term(Term it) {
  const Key key{it.code, it.type, it.x, it.y, it.z, it.which, it.dtype, std::bit_cast<uint64_t>(it.number), it.integer};
  const auto [found, is_new] = known_.try_emplace(key, static_cast<int>(loops.terms.size()));
  if (is_new) loops.terms.push_back(it);
  return found->second;
}

int LoopWriter::number(double value, Scalar type) {
  return term({.code = LoopCode::number, .type = type, .number = value});
}
int LoopWriter::integer(int64_t value) {
  return term({.code = LoopCode::integer, .type = Scalar::whole, .integer = value});
}
int LoopWriter::truth(bool value) {
  return term({.code = LoopCode::integer, .type = Scalar::truth, .integer = value ? 1 : 0});
}
int LoopWriter::axis(int which) { return term({.code = LoopCode::axis, .type = Scalar::whole, .which = which}); }
int LoopWriter::entry(int table, int index) {
  const LoopTable& of = loops.tables[static_cast<size_t>(table)];
  const Scalar type = of.numbers.empty() ? Scalar::whole : Scalar::f64;
  return term({.code = LoopCode::entry, .type = type, .x = index, .which = table});
}
int LoopWriter::carried(int accumulator, Scalar type) {
  return term({.code = LoopCode::carried, .type = type, .which = accumulator});
}
int LoopWriter::unary(LoopCode code, int x) { return term({.code = code, .type = type_of(x), .x = x}); }
int LoopWriter::binary(LoopCode code, int x, int y) {
  const bool answers = code == LoopCode::less || code == LoopCode::equal || code == LoopCode::below;
  return term({.code = code, .type = answers ? Scalar::truth : type_of(x), .x = x, .y = y});
}
int LoopWriter::choose(int condition, int x, int y) {
  return term({.code = LoopCode::choose, .type = type_of(x), .x = condition, .y = x, .z = y});
}
int LoopWriter::convert(LoopCode code, int x, Scalar to) { return term({.code = code, .type = to, .x = x}); }
int LoopWriter::wrap(int x, DType dtype) {
  if (size_of(dtype) == 8) return x;
  return term({.code = LoopCode::wrap, .type = Scalar::whole, .x = x, .dtype = dtype});
}

int LoopWriter::add(int x, int y) {
  if (type_of(x) == Scalar::whole && x == integer(0)) return y;
  if (type_of(y) == Scalar::whole && y == integer(0)) return x;
  return binary(LoopCode::add, x, y);
}
int LoopWriter::multiply(int x, int y) {
  if (type_of(x) == Scalar::whole) {
    if (x == integer(0) || y == integer(0)) return integer(0);
    if (x == integer(1)) return y;
    if (y == integer(1)) return x;
  }
  return binary(LoopCode::multiply, x, y);
}
int LoopWriter::clamped(int x, int64_t low, int64_t high) {
  return binary(LoopCode::smaller, binary(LoopCode::larger, x, integer(low)), integer(high));
}

int LoopWriter::add_input(DType dtype, int64_t count) {
  loops.inputs.push_back({dtype, count});
  return static_cast<int>(loops.inputs.size()) - 1;
}
int LoopWriter::add_table(std::vector<int64_t> integers) {
  loops.tables.push_back({std::move(integers), {}});
  return static_cast<int>(loops.tables.size()) - 1;
}
int LoopWriter::add_table(std::vector<double> numbers) {
  loops.tables.push_back({{}, std::move(numbers)});
  return static_cast<int>(loops.tables.size()) - 1;
}

Element LoopWriter::read(int input, int index) {
  return loaded(LoopCode::element, loops.inputs[static_cast<size_t>(input)].dtype, input, index);
}
Element LoopWriter::written(int index) { return loaded(LoopCode::written, loops.output.dtype, 0, index); }

Element LoopWriter::loaded(LoopCode code, DType dtype, int which, int index) {
  const Scalar type = dtype == DType::f32       ? Scalar::f32
                      : dtype == DType::f64     ? Scalar::f64
                      : dtype == DType::boolean ? Scalar::truth
                                                : Scalar::whole;
  const int it = term({.code = code, .type = type, .x = index, .which = which});
  if (!is_half(dtype)) return {dtype, it};
  if (dtype == DType::f16) return {dtype, f32_of_f16(it), it};
  return {dtype, convert(LoopCode::from_bits, binary(LoopCode::shift_left, it, integer(16)), Scalar::f32), it};
}

int LoopWriter::real(const Element& x) {
  switch (type_of(x.term)) {
    case Scalar::f32:
      return convert(LoopCode::widen, x.term, Scalar::f64);
    case Scalar::f64:
      return x.term;
    case Scalar::truth:
      return choose(x.term, number(1), number(0));
    case Scalar::whole:
      break;
  }
  return convert(x.dtype == DType::u64 ? LoopCode::real_of_natural : LoopCode::real_of, x.term, Scalar::f64);
}

Element LoopWriter::rounded(int real, DType dtype) {
  if (dtype == DType::f64) return {dtype, real};
  if (dtype == DType::f32) return {dtype, convert(LoopCode::narrow, real, Scalar::f32)};
  if (is_half(dtype)) return exactly(to_odd(real), dtype);
  if (dtype == DType::boolean) return {dtype, invert(equal(real, number(0)))};
  const int whole = convert(LoopCode::whole_of, real, Scalar::whole);
  if (dtype != DType::u64) return {dtype, wrap(whole, dtype)};
  const int natural = convert(LoopCode::natural_of, real, Scalar::whole);
  return {dtype, choose(less(real, number(0x1p63)), whole, natural)};
}

Element LoopWriter::exactly(int f32, DType dtype) {
  if (dtype == DType::f32) return {dtype, f32};
  const int bits = dtype == DType::f16 ? f16_bits(f32) : bf16_bits(f32);
  if (dtype == DType::f16) return {dtype, f32_of_f16(bits), bits};
  return {dtype, convert(LoopCode::from_bits, binary(LoopCode::shift_left, bits, integer(16)), Scalar::f32), bits};
}

Element LoopWriter::whole(int term, DType dtype) {
  if (dtype == DType::boolean) return {dtype, invert(equal(term, integer(0)))};
  return {dtype, wrap(term, dtype)};
}

Element LoopWriter::of(int term, DType dtype) { return {dtype, term}; }

Element LoopWriter::chosen(int condition, const Element& x, const Element& y) {
  Element result{x.dtype, choose(condition, x.term, y.term)};
  if (x.bits >= 0 && y.bits >= 0) result.bits = choose(condition, x.bits, y.bits);
  return result;
}

int LoopWriter::stored(const Element& x) {
  if (!is_half(x.dtype)) return x.term;
  if (x.bits >= 0) return x.bits;
  return x.dtype == DType::f16 ? f16_bits(x.term) : bf16_bits(x.term);
}

void LoopWriter::finish(const Element& x, int place) {
  loops.result = stored(x);
  loops.place = place;
}

// ---- halves: graph/half.h in terms

int LoopWriter::f16_bits(int f32) {
  const int bits = convert(LoopCode::bits_of, f32, Scalar::whole);
  const auto add = [&](int x, int64_t y) { return this->add(x, integer(y)); };
  const int sign = both(binary(LoopCode::shift_right, bits, integer(16)), integer(0x8000));
  const int size = both(bits, integer(0x7fffffff));
  const int large = choose(less(integer(0x7f800000), size), integer(0x7e00), integer(0x7c00));
  const int half = number(0.5, Scalar::f32);
  const int raised = this->add(convert(LoopCode::from_bits, size, Scalar::f32), half);
  const int small = add(convert(LoopCode::bits_of, raised, Scalar::whole), -0x3f000000);
  const int odd = both(binary(LoopCode::shift_right, size, integer(13)), integer(1));
  const int usual = binary(LoopCode::shift_right, this->add(add(size, 0xfff - ((127 - 15) << 23)), odd), integer(13));
  const int is_large = less(integer(0x477fffff), size), is_small = less(size, integer(0x38800000));
  return either(sign, both(choose(is_large, large, choose(is_small, small, usual)), integer(0xffff)));
}

int LoopWriter::f32_of_f16(int bits) {
  const int sign = binary(LoopCode::shift_left, both(bits, integer(0x8000)), integer(16));
  const int size = both(bits, integer(0x7fff));
  const int shifted = convert(LoopCode::from_bits, binary(LoopCode::shift_left, size, integer(13)), Scalar::f32);
  const int finite = multiply(shifted, number(0x1p112, Scalar::f32));
  const int all = choose(less(size, integer(0x7c00)), integer(0), integer(0x7f800000));
  const int value = either(either(sign, convert(LoopCode::bits_of, finite, Scalar::whole)), all);
  return convert(LoopCode::from_bits, value, Scalar::f32);
}

int LoopWriter::bf16_bits(int f32) {
  const int bits = convert(LoopCode::bits_of, f32, Scalar::whole);
  const int upper = binary(LoopCode::shift_right, bits, integer(16));
  const int odd = both(upper, integer(1));
  const int usual = binary(LoopCode::shift_right, add(add(bits, integer(0x7fff)), odd), integer(16));
  const int is_nan = less(integer(0x7f800000), both(bits, integer(0x7fffffff)));
  return choose(is_nan, either(upper, integer(0x40)), usual);
}

// f64 to f32 so that rounding that to fewer digits is as if it had been done at once: cut off, and the last bit set
// where something was (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using
// rounding to odd", 2008).
int LoopWriter::to_odd(int f64) {
  const int near = convert(LoopCode::narrow, f64, Scalar::f32);
  const int back = convert(LoopCode::widen, near, Scalar::f64);
  const int bits = convert(LoopCode::bits_of, near, Scalar::whole);
  const int beyond = less(unary(LoopCode::magnitude, f64), unary(LoopCode::magnitude, back));
  const int cut = choose(beyond, add(bits, integer(-1)), bits);
  const int exact = either(equal(back, f64), is_nan(f64));
  const int odd = choose(exact, bits, either(cut, integer(1)));
  return convert(LoopCode::from_bits, odd, Scalar::f32);
}

}  // namespace nlsplit::inline kernels
