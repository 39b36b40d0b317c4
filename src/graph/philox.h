// Philox4x32-10: four random numbers of 32 bits from a counter and a key, alike on every machine and in any order.
// Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 4.3 and table 2.
#pragma once

#include <array>
#include <cstdint>

namespace nlsplit::inline graph {

constexpr std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t first = 0xD2511F53, second = 0xCD9E8D57;
  constexpr uint32_t golden = 0x9E3779B9, root_of_3 = 0xBB67AE85;
  constexpr int rounds = 10;
  for (int round = 0; round < rounds; ++round) {
    const uint64_t a = first * counter[0], b = second * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += golden;
    key[1] += root_of_3;
  }
  return counter;
}

// What DropoutTraining keeps. A sample's elements are numbered within it; four of them share a counter. So the bits
// depend on neither cuts, replicas nor micro-batches.
struct DropoutNumbers {
  uint64_t seed = 0;
  uint32_t stream = 0;  // of the layer
  uint32_t step = 0;
  uint64_t dropped_below = 0;  // of 2^32 numbers as many are dropped

  // Of elements 4 group … 4 group + 3 of a sample.
  constexpr std::array<uint32_t, 4> of(uint32_t sample, uint32_t group) const {
    return philox({group, sample, step, stream}, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  }
  constexpr bool keeps(uint32_t number) const { return number >= dropped_below; }
};
inline constexpr double philox_numbers = 4294967296.0;

}  // namespace nlsplit::inline graph
