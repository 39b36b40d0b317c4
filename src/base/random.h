// Seeded random numbers that are the same on every machine and library (the standard's distributions are not).
// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#pragma once

#include <cstdint>

namespace nlsplit::inline base {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();                 // uniform over all 64-bit values
  uint64_t below(uint64_t bound);  // uniform over 0 … bound-1; bound > 0
  double uniform();                // [0, 1)
  double uniform(double low, double high);
  double normal();  // mean 0, deviation 1 (Marsaglia's polar method; both values are used)

 private:
  uint64_t state_;
  double spare_ = 0;
  bool has_spare_ = false;
};

// Fills values[i] with near-normals, mean 0 and deviation 1; the value at i depends on (seed, i) only.
// Fast: weights of whole networks are made so. Each is the sum of 12 uniform 16-bit numbers (Irwin-Hall), so it is a
// multiple of 2^-16, within +-6, with excess kurtosis -0.1; good for weights, not for studying tails: use
// Random::normal().
void fill_normal(uint64_t seed, float* values, int64_t count);

}  // namespace nlsplit::inline base
