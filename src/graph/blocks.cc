#include "graph/blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "graph/elements.h"
#include "graph/q8_0.h"

namespace nlsplit::inline graph {
namespace {

using Values = std::span<const double>;

// A number as f16 has it, and its bytes.
struct Half {
  std::string raw;
  double value = 0;
};
Half half(double number) {
  Half made{raw_of(DType::f16, std::array{number})};
  made.value = reals_of(DType::f16, made.raw)[0];
  return made;
}

double largest_of(Values values) {
  return *std::ranges::max_element(values, {}, [](double value) { return std::abs(value); });
}

// Whole steps of a scale from an offset; a scale of 0 has none.
int step_of(double value, double scale, double offset, int lowest, int highest) {
  if (scale == 0) return std::clamp(0, lowest, highest);
  return static_cast<int>(std::clamp<double>(std::round((value - offset) / scale), lowest, highest));
}

// Byte i: elements i and i + 16.
void append_pairs(std::string& raw, const std::array<int, 32>& steps) {
  for (size_t i = 0; i < 16; ++i) raw += static_cast<char>((steps[i] & 15) | (steps[i + 16] & 15) << 4);
}

std::array<int, 32> steps_of(Values block, double scale, double offset, int lowest, int highest, int zero) {
  std::array<int, 32> steps{};
  for (size_t i = 0; i < steps.size(); ++i) steps[i] = step_of(block[i], scale, offset, lowest, highest) + zero;
  return steps;
}

void write_q8_0(Values block, std::string& raw) {
  float largest = 0;
  for (const double value : block) {
    const float size = std::abs(static_cast<float>(value));
    if (!(size <= largest)) largest = size;
    if (std::isnan(largest)) break;
  }
  const uint16_t scale = q8_0_scale(largest);
  raw.append(reinterpret_cast<const char*>(&scale), sizeof scale);
  for (const double value : block) raw += static_cast<char>(q8_0_step(static_cast<float>(value), f16_value(scale)));
}

void write_q4_0(Values block, std::string& raw) {
  const double largest = largest_of(block);
  const Half d = half(largest == 0 ? 0 : largest / -8);
  raw += d.raw;
  append_pairs(raw, steps_of(block, d.value, 0, -8, 7, 8));
}

void write_q4_1(Values block, std::string& raw) {
  const auto [low, high] = std::ranges::minmax(block);
  const Half d = half((high - low) / 15), m = half(low);
  raw += d.raw + m.raw;
  append_pairs(raw, steps_of(block, d.value, m.value, 0, 15, 0));
}

void write_q5_0(Values block, std::string& raw) {
  const double largest = largest_of(block);
  const Half d = half(largest == 0 ? 0 : largest / -16);
  const std::array<int, 32> steps = steps_of(block, d.value, 0, -16, 15, 16);
  uint32_t high = 0;
  for (size_t i = 0; i < steps.size(); ++i) high |= static_cast<uint32_t>(steps[i] >> 4) << i;
  raw += d.raw;
  raw.append(reinterpret_cast<const char*>(&high), sizeof high);
  append_pairs(raw, steps);
}

// Scales and offsets are whole steps of two numbers in f16.
void write_q4_k(Values block, std::string& raw) {
  constexpr size_t groups = 8, group = 32;
  std::array<double, groups> scales{}, below{};
  for (size_t g = 0; g < groups; ++g) {
    const auto [low, high] = std::ranges::minmax(block.subspan(g * group, group));
    below[g] = std::max(0.0, -low);
    scales[g] = (std::max(high, -below[g]) + below[g]) / 15;
  }
  const Half d = half(std::ranges::max(scales) / 63), least = half(std::ranges::max(below) / 63);
  std::array<uint8_t, 12> six{};
  std::array<std::array<int, group>, groups> steps{};
  for (size_t g = 0; g < groups; ++g) {
    const int scale = step_of(scales[g], d.value, 0, 0, 63), offset = step_of(below[g], least.value, 0, 0, 63);
    steps[g] = steps_of(block.subspan(g * group, group), d.value * scale, -least.value * offset, 0, 15, 0);
    if (g < 4) {
      six[g] = static_cast<uint8_t>(six[g] | scale);
      six[g + 4] = static_cast<uint8_t>(six[g + 4] | offset);
    } else {
      six[g + 4] = static_cast<uint8_t>((scale & 15) | (offset & 15) << 4);
      six[g - 4] = static_cast<uint8_t>(six[g - 4] | scale >> 4 << 6);
      six[g] = static_cast<uint8_t>(six[g] | offset >> 4 << 6);
    }
  }
  raw += d.raw + least.raw;
  raw.append(reinterpret_cast<const char*>(six.data()), six.size());
  for (size_t pair = 0; pair < groups; pair += 2) {
    for (size_t i = 0; i < group; ++i) raw += static_cast<char>(steps[pair][i] | steps[pair + 1][i] << 4);
  }
}

// Scales are whole steps of a number in f16.
void write_q6_k(Values block, std::string& raw) {
  constexpr size_t groups = 16, group = 16;
  std::array<double, groups> scales{};
  for (size_t g = 0; g < groups; ++g) scales[g] = largest_of(block.subspan(g * group, group)) / -32;
  const Half d = half(std::abs(largest_of(scales)) / 127);
  std::array<char, groups> eight{};
  std::array<int, groups * group> steps{};
  for (size_t g = 0; g < groups; ++g) {
    const int scale = step_of(scales[g], d.value, 0, -127, 127);
    eight[g] = static_cast<char>(scale);
    for (size_t i = g * group; i < (g + 1) * group; ++i) steps[i] = step_of(block[i], d.value * scale, 0, -32, 31) + 32;
  }
  std::string high;
  for (size_t half_of = 0; half_of < steps.size(); half_of += 128) {
    const int* at = steps.data() + half_of;
    for (size_t i = 0; i < 64; ++i) raw += static_cast<char>((at[i] & 15) | (at[i + 64] & 15) << 4);
    for (size_t i = 0; i < 32; ++i) {
      high += static_cast<char>(at[i] >> 4 | at[i + 32] >> 4 << 2 | at[i + 64] >> 4 << 4 | at[i + 96] >> 4 << 6);
    }
  }
  raw += high;
  raw.append(eight.data(), eight.size());
  raw += d.raw;
}

using WriteBlock = void (*)(Values block, std::string& raw);
WriteBlock writer_of(DType type) {
  switch (type) {
    case DType::q8_0:
      return write_q8_0;
    case DType::q4_0:
      return write_q4_0;
    case DType::q4_1:
      return write_q4_1;
    case DType::q5_0:
      return write_q5_0;
    case DType::q4_k:
      return write_q4_k;
    case DType::q6_k:
      return write_q6_k;
    default:
      CHECK(false, "not a type with scales");
  }
}

}  // namespace

std::string blocks_of(DType type, std::span<const double> values) {
  const WriteBlock write = writer_of(type);
  const auto block = static_cast<size_t>(block_of(type));
  CHECK(values.size() % block == 0, "whole blocks");
  CHECK(type == DType::q8_0 || std::ranges::all_of(values, [](double value) { return std::isfinite(value); }),
        "no scale makes these");
  std::string raw;
  for (size_t at = 0; at < values.size(); at += block) write(values.subspan(at, block), raw);
  return raw;
}

}  // namespace nlsplit::inline graph
