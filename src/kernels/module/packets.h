// The vectors everything here is written in: Eigen's packets of the level this library is compiled for.
//
// An element's bits must not depend on where in a row it stands, so what remains at the end of a row goes through the
// same packet operations: `load_part` fills up with zeros, `store_part` writes only what is there (masked where that is
// fast, which is with AVX-512 only). No scalar twin of any formula.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/layout.h"

namespace nlsplit::inline kernels {

using Packet = Eigen::internal::packet_traits<float>::type;
inline constexpr int width = Eigen::internal::unpacket_traits<Packet>::size;
// Of this library; the build says which.
inline constexpr Isa level = Isa::NLSPLIT_LEVEL;
static_assert(width == vector_width(level), "Eigen's packets are not the level's vectors");

inline Packet load(const float* from) { return Eigen::internal::ploadu<Packet>(from); }
inline void store(float* to, const Packet& packet) { Eigen::internal::pstoreu(to, packet); }
inline Packet broadcast(float value) { return Eigen::internal::pset1<Packet>(value); }
inline Packet zeros() { return broadcast(0.0f); }

inline Packet load_part(const float* from, int64_t count) {
#ifdef EIGEN_VECTORIZE_AVX512
  return Eigen::internal::ploadu<Packet>(from, static_cast<uint16_t>((1u << count) - 1));
#else
  alignas(64) float full[width] = {};
  std::memcpy(full, from, static_cast<size_t>(count) * sizeof(float));
  return Eigen::internal::pload<Packet>(full);
#endif
}

inline void store_part(float* to, const Packet& packet, int64_t count) {
#ifdef EIGEN_VECTORIZE_AVX512
  Eigen::internal::pstoreu(to, packet, static_cast<uint16_t>((1u << count) - 1));
#else
  alignas(64) float full[width];
  Eigen::internal::pstore(full, packet);
  std::memcpy(to, full, static_cast<size_t>(count) * sizeof(float));
#endif
}

// The same for a count known to the compiler, at most width.
template <int count>
inline Packet load_first(const float* from) {
  if constexpr (count == width) return load(from);
  return load_part(from, count);
}

template <int count>
inline void store_first(float* to, const Packet& packet) {
  if constexpr (count == width) return store(to, packet);
  store_part(to, packet, count);
}

// to[i] = f(a[i], …) for n elements. `to` may be one of the others.
template <class F, class... From>
inline void map_row(float* to, int64_t n, F f, const From*... from) {
  int64_t i = 0;
  for (; i + width <= n; i += width) store(to + i, f(load(from + i)...));
  if (i < n) store_part(to + i, f(load_part(from + i, n - i)...), n - i);
}

// Not contracted on purpose where a level has no fused multiply-add: Eigen then multiplies and adds, always in this
// order.
inline Packet multiply_add(const Packet& a, const Packet& b, const Packet& c) {
  return Eigen::internal::pmadd(a, b, c);
}
inline Packet add(const Packet& a, const Packet& b) { return Eigen::internal::padd(a, b); }
inline Packet subtract(const Packet& a, const Packet& b) { return Eigen::internal::psub(a, b); }
inline Packet multiply(const Packet& a, const Packet& b) { return Eigen::internal::pmul(a, b); }
inline Packet divide(const Packet& a, const Packet& b) { return Eigen::internal::pdiv(a, b); }

// Both keep a NaN in their first operand.
inline Packet at_least(const Packet& a, const Packet& lowest) { return Eigen::internal::pmax(a, lowest); }
inline Packet at_most(const Packet& a, const Packet& highest) { return Eigen::internal::pmin(a, highest); }

// Hints; any address will do. Into the first-level cache, and into the second.
inline constexpr int line_floats = 16;  // of a cache line
inline void fetch_near(const float* from) { __builtin_prefetch(from, 0, 3); }
inline void fetch(const float* from) { __builtin_prefetch(from, 0, 2); }

// As IEEE rounds it, which Eigen's may not.
inline Packet square_root(const Packet& a) {
#if defined(EIGEN_VECTORIZE_AVX512)
  return _mm512_sqrt_ps(a);
#elif defined(EIGEN_VECTORIZE_AVX)
  return _mm256_sqrt_ps(a);
#elif defined(EIGEN_VECTORIZE_NEON)
  return vsqrtq_f32(a);
#else
  return _mm_sqrt_ps(a);
#endif
}

// n > 0
inline float largest_of_row(const float* from, int64_t n) {
  if (n < width) return *std::max_element(from, from + n);
  Packet largest = load(from + n - width);  // the last ones may be met twice
  for (int64_t i = 0; i + width < n; i += width) largest = at_least(load(from + i), largest);
  return Eigen::internal::predux_max(largest);
}

// The sum of a row in an order fixed by its length alone: element i belongs to lane i mod width, lanes are then taken
// one after another.
inline float sum_of_lanes(const Packet& lanes) {
  alignas(64) float each[width];
  Eigen::internal::pstore(each, lanes);
  float sum = each[0];
  for (int i = 1; i < width; ++i) sum += each[i];
  return sum;
}

inline float sum_of_row(const float* from, int64_t n) {
  Packet lanes = zeros();
  int64_t i = 0;
  for (; i + width <= n; i += width) lanes = add(lanes, load(from + i));
  if (i < n) lanes = add(lanes, load_part(from + i, n - i));
  return sum_of_lanes(lanes);
}

}  // namespace nlsplit::inline kernels
