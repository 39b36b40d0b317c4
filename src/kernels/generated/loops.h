// Loops as plain values: what a generated kernel computes, before there is code of it. An iteration space of constant
// extents; for each of its points terms, which read elements of the operands and compute; and where the result goes.
// Every operation is IEEE 754's or 64-bit integer arithmetic, in an order that is fixed: an interpreter
// (generated/interpret.h) and a compiler (generated/llvm) make the same bits of it, at every instruction level.
//
//   ASSIGN_OR_RETURN(Loops loops, lower(desc));      // generated/lower.h
//   RETURN_IF_ERROR(verify(loops));                  // every index lies within its operand, whatever the values
//   std::string text = to_text(loops);
//
//   out f32[64] at i0
//   for i0 < 64
//     t0 = in0 f32[64] at i0
//     result = magnitude(t0)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace nlsplit::inline kernels {

enum class Scalar : uint8_t { f32, f64, whole, truth };  // whole: an integer of 64 bits
std::string_view name_of(Scalar type);

// Truth values are what `less`, `equal` and `below` answer: of reals false where one is no number.
//   number, integer     a constant (integer: whole, or truth)
//   axis                where the point is along axis `which`
//   entry               tables[which] at x
//   element             operand `which` at x: f32 and f64 as they are, integers as whole, halves as their bits (whole),
//                       bool as truth (not 0)
//   written             element of the result at x, by which the same row has stored it before
//   carried             accumulator `which`
//   choose              x ? y : z
//   nearest             ties to even;  cut: towards zero
//   smaller, larger     signed;  below: x < y of natural numbers (without sign)
//   quotient, rest      towards zero. y is not 0, and of signed ones not -1
//   shift_left, _right  by y below 64; zeros come in
//   wrap                the low bits, as a number of the integer type dtype
//   whole_of            cut, the nearest there is, 0 of what is no number;  natural_of: without sign
//   bits_of, from_bits  of f32 32 bits, the upper ones 0
enum class LoopCode : uint8_t {
#define NLS_LOOP_CODE(name, operands) name,
#include "kernels/generated/loop_codes.def"
};
std::string_view name_of(LoopCode code);
int operands_of(LoopCode code);

struct Term {
  LoopCode code{};
  Scalar type{};
  int x = -1, y = -1, z = -1;  // terms before this one
  int which = 0;               // axis, table, operand or accumulator
  DType dtype{};               // of wrap
  double number = 0;
  int64_t integer = 0;
  friend bool operator==(const Term&, const Term&) = default;
};

struct LoopOperand {
  DType dtype{};
  int64_t count = 0;  // elements
  friend bool operator==(const LoopOperand&, const LoopOperand&) = default;
};

// Constants that are looked up: places, or weights.
struct LoopTable {
  std::vector<int64_t> integers;  // one of the two
  std::vector<double> numbers;
  size_t size() const { return numbers.empty() ? integers.size() : numbers.size(); }
  friend bool operator==(const LoopTable&, const LoopTable&) = default;
};

// A reduction, done once for each point of the first `rows` axes: over its own axes, the last one the fastest, each
// accumulator begins as `first` and becomes `next`, all at once. Accumulators keep their values for what comes after.
struct Accumulator {
  int first = -1, next = -1;  // terms; `first` by the row and accumulators of folds before
  friend bool operator==(const Accumulator&, const Accumulator&) = default;
};
struct Fold {
  int first_axis = 0, end_axis = 0;
  int first_accumulator = 0, end_accumulator = 0;
  // A term that is stored at each step, after the accumulators have changed, at `place`; -1: none. Steps of a row store
  // in their order, so of two in one place the later stays. Rows never share a place.
  int stored = -1, place = -1;
  friend bool operator==(const Fold&, const Fold&) = default;
};

struct Loops {
  std::vector<int64_t> extents;  // of the result's axes, then of the folds'
  int axes = 0;                  // the result's; at least one
  int rows = 0;                  // of those, the ones outside of the folds: at least one where there are any
  std::vector<LoopOperand> inputs;
  LoopOperand output;
  std::vector<LoopTable> tables;
  std::vector<Term> terms;
  std::vector<Accumulator> accumulators;
  std::vector<Fold> folds;
  int result = -1;  // of the output's type, for each point of the result's axes; -1: folds store it
  int place = -1;   // where it goes
  friend bool operator==(const Loops&, const Loops&) = default;
};

// The terms that these need, and these themselves, in their order.
std::vector<int> terms_for(const Loops& loops, std::span<const int> roots);

// What a term of type whole can be.
struct TermRange {
  int64_t low = INT64_MIN, high = INT64_MAX;
};
std::vector<TermRange> ranges_of(const Loops& loops);  // one a term; of other types what means nothing

// Terms follow what they use and have its types; every index and every place lies inside, whatever the operands hold.
Status verify(const Loops& loops);

std::string to_text(const Loops& loops);

}  // namespace nlsplit::inline kernels
