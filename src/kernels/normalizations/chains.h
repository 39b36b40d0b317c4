// Sums over rows in four chains of additions, which hide their latency. A row's length alone says which element is in
// which.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/module/packets.h"
#include "kernels/module/run.h"

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

// The first `count` lanes of a packet; the others are zeros.
inline Packet first_lanes(const Packet& x, int64_t count) {
  using namespace Eigen::internal;
  return pand(pcmp_lt(plset<Packet>(0.0f), broadcast(static_cast<float>(count))), x);
}

// Of planes [outer][kept][n] a sum for each of kept: term(k) is f(elements…, total), as above. Vectors of a plane go to
// four chains in turn, which go on from plane to plane; chains are added in the end. So short planes cost no sums of
// lanes, and neighbours are read one behind another.
template <class Term, class... From>
inline void sum_planes(const KernelCall& call, int64_t outer, int64_t kept, int64_t n, const Term& term, float* sums,
                       const From*... from) {
  constexpr int chains = 4;
  constexpr int64_t together = 8;  // of kept: their chains stay in a first-level cache
  parallel_for(call, (kept + together - 1) / together, [&](int64_t some) {
    const int64_t first = some * together, count = std::min(together, kept - first);
    alignas(64) float totals[together][chains * width] = {};
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t k = 0; k < count; ++k) {
        const auto f = term(first + k);
        const int64_t at = (o * kept + first + k) * n;
        float* total = totals[k];
        Packet lanes[chains];
#pragma GCC unroll 4
        for (int c = 0; c < chains; ++c) lanes[c] = load(total + c * width);
        int64_t i = 0;
        for (; i + chains * width <= n; i += chains * width) {
#pragma GCC unroll 4
          for (int c = 0; c < chains; ++c) lanes[c] = f(load(from + at + i + c * width)..., lanes[c]);
        }
#pragma GCC unroll 3
        for (int c = 0; c < chains - 1; ++c) {
          if (i + width > n) break;
          lanes[c] = f(load(from + at + i)..., lanes[c]);
          i += width;
        }
        if (i < n) {
          const Packet rest = f(load_part(from + at + i, n - i)..., zeros());
          lanes[chains - 1] = add(lanes[chains - 1], first_lanes(rest, n - i));
        }
#pragma GCC unroll 4
        for (int c = 0; c < chains; ++c) store(total + c * width, lanes[c]);
      }
    }
    for (int64_t k = 0; k < count; ++k) {
      const float* t = totals[k];
      sums[first + k] = sum_of_lanes(add(add(load(t), load(t + width)), add(load(t + 2 * width), load(t + 3 * width))));
    }
  });
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
