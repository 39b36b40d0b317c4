// The sum of squares of n numbers in float64, in one order for everyone who computes it: blocks of 4096, in a block 16
// sums of every 16th number, added in pairs; then the blocks in their order. So the bits depend on neither threads nor
// vector registers.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace nlsplit::inline graph {

inline constexpr int64_t squares_block = 4096, square_lanes = 16;

// Of numbers [begin, end), one block. number(i): the i-th.
template <class Number>
double squares_of_block(int64_t begin, int64_t end, const Number& number) {
  std::array<double, square_lanes> sums{};
  int64_t i = begin;
  for (; i + square_lanes <= end; i += square_lanes) {
    for (int64_t lane = 0; lane < square_lanes; ++lane) {
      const double value = number(i + lane);
      sums[static_cast<size_t>(lane)] += value * value;
    }
  }
  for (int64_t lane = 0; i + lane < end; ++lane) {
    const double value = number(i + lane);
    sums[static_cast<size_t>(lane)] += value * value;
  }
  for (size_t apart = square_lanes / 2; apart > 0; apart /= 2) {
    for (size_t lane = 0; lane < apart; ++lane) sums[lane] += sums[lane + apart];
  }
  return sums[0];
}

inline int64_t square_blocks(int64_t count) { return (count + squares_block - 1) / squares_block; }

template <class Number>
double sum_of_squares_of(int64_t count, const Number& number) {
  double sum = 0;
  for (int64_t begin = 0; begin < count; begin += squares_block)
    sum += squares_of_block(begin, std::min(count, begin + squares_block), number);
  return sum;
}

}  // namespace nlsplit::inline graph
