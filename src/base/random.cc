#include "base/random.h"

#include <cmath>
#include <numbers>

#include "base/check.h"

// Every floating-point step here is exactly rounded (+ - * / sqrt fma) and nothing is left for a compiler to contract
// into an fma by its own choice: a product that meets a sum is written as std::fma. So results match bit for bit.

namespace nlsplit::inline base {

namespace {

constexpr uint64_t golden = 0x9e3779b97f4a7c15;

constexpr uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// ln(x) for normal x > 0, to a few units in the last place. libm's log differs between libraries.
// x = m 2^e with m near 1; ln(m) = 2 atanh(z), z = (m-1)/(m+1), |z| < 0.172: 11 terms of the series reach 2^-53.
double portable_log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // in [0.5, 1)
  if (m < std::numbers::sqrt2 / 2) {
    m *= 2;
    --exponent;
  }
  const double z = (m - 1) / (m + 1);
  const double z2 = z * z;
  double series = 0;
  for (int k = 21; k >= 1; k -= 2) series = std::fma(series, z2, 1.0 / k);
  return std::fma(static_cast<double>(exponent), std::numbers::ln2, 2 * (z * series));
}

// The four 16-bit lanes of x as two sums in 32-bit lanes; three such add up without reaching the next lane.
constexpr uint64_t lane_sums(uint64_t x) {
  constexpr uint64_t even = 0x0000ffff0000ffff;
  return (x & even) + ((x >> 16) & even);
}

}  // namespace

uint64_t Random::next() {
  state_ += golden;
  return mix(state_);
}

// Lemire, "Fast random integer generation in an interval", ACM TOMACS 2019: unbiased, and almost never divides.
uint64_t Random::below(uint64_t bound) {
  CHECK(bound > 0, "there is no number below 0");
  auto product = static_cast<unsigned __int128>(next()) * bound;
  if (static_cast<uint64_t>(product) < bound) {
    const uint64_t threshold = (0 - bound) % bound;
    while (static_cast<uint64_t>(product) < threshold) product = static_cast<unsigned __int128>(next()) * bound;
  }
  return static_cast<uint64_t>(product >> 64);
}

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

double Random::uniform(double low, double high) { return std::fma(high - low, uniform(), low); }

// Polar, not Box-Muller: of libm it needs a logarithm only, which we have; no sine and cosine.
double Random::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  double u = 0;
  double v = 0;
  double s = 0;
  do {
    u = uniform(-1, 1);
    v = uniform(-1, 1);
    s = std::fma(u, u, v * v);
  } while (s >= 1 || s == 0);
  const double factor = std::sqrt(-2 * portable_log(s) / s);
  spare_ = v * factor;
  has_spare_ = true;
  return u * factor;
}

// Element i takes draws 3i+1 … 3i+3 of the SplitMix64 stream that starts at mix(seed), 12 lanes of 16 bits in all.
// A lane is uniform over 0 … 65535 with variance (2^32 - 1) / 12, so the sum of 12 has mean 12 * 65535 / 2 and
// variance 2^32 - 1: times 2^-16 its deviation is 1 (to 2^-33). |sum - mean| < 2^19, so both steps are exact.
void fill_normal(uint64_t seed, float* values, int64_t count) {
  CHECK(count >= 0, "a count is not negative");
  constexpr int32_t mean = 12 * 65535 / 2;
  uint64_t state = mix(seed + golden);  // mixed, or seeds a multiple of `golden` apart would share a stream
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t lanes =
        lane_sums(mix(state + golden)) + lane_sums(mix(state + 2 * golden)) + lane_sums(mix(state + 3 * golden));
    state += 3 * golden;
    const auto sum = static_cast<int32_t>((lanes & 0xffffffff) + (lanes >> 32));
    values[i] = static_cast<float>(sum - mean) * 0x1p-16f;
  }
}

}  // namespace nlsplit::inline base
