// Arithmetic on sizes that files name. What leaves the range stays at its upper end, so that whoever compares the
// result with a limit (base/limits.h) refuses it; nothing overflows on the way there.
//
//   const int64_t floats = saturating_product(channels, height, width);
//   if (floats > most_bytes / 4) return unsupported("too large");
#pragma once

#include <cstdint>
#include <limits>

namespace nlsplit::inline base {

inline constexpr int64_t largest_size = std::numeric_limits<int64_t>::max();

// Of sizes, which are not negative.
constexpr int64_t saturating_product(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? largest_size : product;
}
template <class... More>
constexpr int64_t saturating_product(int64_t a, int64_t b, More... more) {
  return saturating_product(saturating_product(a, b), more...);
}

constexpr int64_t saturating_sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? largest_size : sum;
}
template <class... More>
constexpr int64_t saturating_sum(int64_t a, int64_t b, More... more) {
  return saturating_sum(saturating_sum(a, b), more...);
}

// The smallest multiple of `to` that is at least `value`.
constexpr int64_t saturating_round_up(int64_t value, int64_t to) {
  return value > largest_size - to ? largest_size : (value + to - 1) / to * to;
}

}  // namespace nlsplit::inline base
