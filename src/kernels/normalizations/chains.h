// Sums over rows in four chains of additions, which hide their latency. A row's length alone says which element is in
// which.
#pragma once

#include <cmath>

#include "kernels/module/packets.h"

namespace nlsplit::inline kernels {

// f(elements…, total): total with a packet's terms added.
template <class F, class... From>
inline float sum_in_chains(int64_t n, F f, const From*... from) {
  constexpr int chains = 4;
  Packet lanes[chains] = {zeros(), zeros(), zeros(), zeros()};
  int64_t i = 0;
  for (; i + chains * width <= n; i += chains * width) {
#pragma GCC unroll 4
    for (int c = 0; c < chains; ++c) lanes[c] = f(load(from + i + c * width)..., lanes[c]);
  }
  for (; i + width <= n; i += width) lanes[0] = f(load(from + i)..., lanes[0]);
  float rest = 0;
  if (i < n) {  // apart: what fills up the last vector is no element
    alignas(64) float each[width];
    store(each, f(load_part(from + i, n - i)..., zeros()));
    for (int64_t k = 0; k < n - i; ++k) rest += each[k];
  }
  return sum_of_lanes(add(add(lanes[0], lanes[1]), add(lanes[2], lanes[3]))) + rest;
}

struct Moments {
  float mean = 0, inverse = 0;  // 1 / sqrt(variance + epsilon)
};

// Two passes, since the mean of squares less the square of the mean cancels.
inline Moments moments_of(const float* from, int64_t n, double epsilon) {
  const float count = static_cast<float>(n);
  const float mean = sum_in_chains(
                         n, [](const Packet& x, const Packet& total) { return add(total, x); }, from) /
                     count;
  const Packet center = broadcast(mean);
  const float squares = sum_in_chains(
      n,
      [&](const Packet& x, const Packet& total) {
        const Packet off = subtract(x, center);
        return multiply_add(off, off, total);
      },
      from);
  return {mean, static_cast<float>(1 / std::sqrt(static_cast<double>(squares / count) + epsilon))};
}

}  // namespace nlsplit::inline kernels
