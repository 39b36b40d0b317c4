// Elements of every type as numbers and back.
#include "graph/elements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/random.h"
#include "graph/half.h"

namespace nlsplit {
namespace {

uint16_t bits_of(DType type, double value) {
  const std::string raw = raw_of(type, std::vector{value});
  uint16_t bits = 0;
  std::memcpy(&bits, raw.data(), sizeof bits);
  return bits;
}

// Every half but those that are no numbers comes back as it was.
TEST(Elements, EveryHalfComesBack) {
  for (const DType type : {DType::f16, DType::bf16}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto stored = static_cast<uint16_t>(bits);
      std::string raw(sizeof stored, '\0');
      std::memcpy(raw.data(), &stored, sizeof stored);
      const double value = reals_of(type, raw)[0];
      if (std::isnan(value)) continue;
      ASSERT_EQ(bits_of(type, value), stored) << name_of(type) << " " << value;
    }
  }
}

// The fast conversions from float are those of doubles, for what a float can be.
TEST(Elements, FloatsBecomeTheSameHalvesEitherWay) {
  Random random(5);
  const auto check = [](float value) {
    ASSERT_EQ(f16_bits(value), bits_of(DType::f16, value)) << value;
    ASSERT_EQ(bf16_bits(value), bits_of(DType::bf16, value)) << value;
  };
  for (int i = 0; i < 200000; ++i) {
    const auto any = std::bit_cast<float>(static_cast<uint32_t>(random.below(uint64_t{1} << 32)));
    if (std::isnan(any)) {
      EXPECT_TRUE(std::isnan(f16_value(f16_bits(any))) && std::isnan(bf16_value(bf16_bits(any))));
      continue;
    }
    check(any);
    check(static_cast<float>(std::ldexp(random.uniform() - 0.5, static_cast<int>(random.below(48)) - 30)));
  }
  for (const float value : {65504.0f, 65519.996f, 65520.0f, 65536.0f, 0x1p-24f, 0x1p-25f, 0x1.000002p-25f, 0x1p-14f,
                            0x1.ffcp-15f, 0x1.ffep-15f, 0.0f, -0.0f, 3.3961775e38f, 0x1.fffffep127f})
    check(value);
}

// IEEE 754's own examples: halves to even, overflow from the middle between the largest and the next.
TEST(Elements, FloatsAreRoundedToEven) {
  EXPECT_EQ(bits_of(DType::f16, 1.0), 0x3c00);
  EXPECT_EQ(bits_of(DType::f16, 1 + std::ldexp(1, -11)), 0x3c00);
  EXPECT_EQ(bits_of(DType::f16, 1 + 3 * std::ldexp(1, -11)), 0x3c02);
  EXPECT_EQ(bits_of(DType::f16, 65504), 0x7bff);
  EXPECT_EQ(bits_of(DType::f16, 65519.9), 0x7bff);
  EXPECT_EQ(bits_of(DType::f16, 65520), 0x7c00);
  EXPECT_EQ(bits_of(DType::f16, std::ldexp(1, -24)), 0x0001);
  EXPECT_EQ(bits_of(DType::f16, std::ldexp(1, -25)), 0x0000);
  EXPECT_EQ(bits_of(DType::f16, -2.0), 0xc000);
  EXPECT_EQ(bits_of(DType::bf16, 1.0), 0x3f80);
  EXPECT_EQ(bits_of(DType::bf16, 1 + std::ldexp(1, -8)), 0x3f80);
  EXPECT_EQ(bits_of(DType::bf16, 1 + 3 * std::ldexp(1, -8)), 0x3f82);
  EXPECT_EQ(rounded(DType::f32, 1e300), std::numeric_limits<double>::infinity());
  EXPECT_EQ(rounded(DType::f32, 0.1), static_cast<double>(0.1f));
  EXPECT_TRUE(std::isnan(reals_of(DType::f16, raw_of(DType::f16, std::vector{std::nan("")}))[0]));
}

TEST(Elements, IntegersKeepTheirLowBits) {
  EXPECT_EQ(wrapped(DType::i8, 200), -56);
  EXPECT_EQ(wrapped(DType::u8, -1), 255);
  EXPECT_EQ(wrapped(DType::i16, 0x18000), -0x8000);
  EXPECT_EQ(wrapped(DType::u32, -1), 0xffffffff);
  EXPECT_EQ(wrapped(DType::boolean, 7), 1);
  for (const DType type : all_dtypes()) {
    if (is_real(type) || is_scaled(type)) continue;
    const std::vector<int64_t> values = {0, 1, wrapped(type, 100)};
    EXPECT_EQ(wholes_of(type, raw_of(type, values)), values) << name_of(type);
    EXPECT_EQ(std::ssize(raw_of(type, values)), 3 * size_of(type));
  }
}

}  // namespace
}  // namespace nlsplit
