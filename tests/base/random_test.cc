#include "base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace nlsplit {
namespace {

struct Moments {
  double mean = 0;
  double variance = 0;
  double excess_kurtosis = 0;
};

Moments moments(const std::vector<double>& values) {
  const double n = static_cast<double>(values.size());
  Moments m;
  for (const double x : values) m.mean += x / n;
  double fourth = 0;
  for (const double x : values) {
    const double d = x - m.mean;
    m.variance += d * d / n;
    fourth += d * d * d * d / n;
  }
  m.excess_kurtosis = fourth / (m.variance * m.variance) - 3;
  return m;
}

// The published test vector of SplitMix64 for seed 1234567.
TEST(Random, IsSplitMix64) {
  Random random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317u);
  EXPECT_EQ(random.next(), 3203168211198807973u);
  EXPECT_EQ(random.next(), 9817491932198370423u);
}

TEST(Random, BelowIsUniform) {
  Random random(1);
  std::array<int, 6> counts{};
  const int draws = 60000;
  for (int i = 0; i < draws; ++i) ++counts.at(random.below(6));
  // Each count has deviation sqrt(60000 * 1/6 * 5/6) = 91; five of them.
  for (const int count : counts) EXPECT_NEAR(count, draws / 6, 460);
  EXPECT_EQ(random.below(1), 0u);
}

TEST(Random, BelowHoldsForTheLargestBounds) {
  Random random(2);
  const uint64_t bound = (uint64_t{1} << 63) + 1;  // nearly every second draw is rejected
  for (int i = 0; i < 1000; ++i) EXPECT_LT(random.below(bound), bound);
}

TEST(RandomDeathTest, BelowNothing) { EXPECT_DEATH(Random(0).below(0), "no number below 0"); }

TEST(Random, UniformStaysInItsRange) {
  Random random(3);
  std::vector<double> values(100000);
  for (double& x : values) x = random.uniform(-2, 4);
  EXPECT_GE(*std::min_element(values.begin(), values.end()), -2);
  EXPECT_LT(*std::max_element(values.begin(), values.end()), 4);
  const Moments m = moments(values);
  EXPECT_NEAR(m.mean, 1, 5 * std::sqrt(3.0 / 100000));
  EXPECT_NEAR(m.variance, 3, 0.05);  // (4 - -2)^2 / 12
}

TEST(Random, NormalHasTheNormalsMoments) {
  Random random(4);
  std::vector<double> values(1000000);
  for (double& x : values) x = random.normal();
  const Moments m = moments(values);
  EXPECT_NEAR(m.mean, 0, 0.005);             // 5 deviations of 1 / sqrt(n)
  EXPECT_NEAR(m.variance, 1, 0.0071);        // 5 of sqrt(2 / n)
  EXPECT_NEAR(m.excess_kurtosis, 0, 0.025);  // 5 of sqrt(24 / n)
  // P(|x| > 4) = 6.33e-5: 63 expected.
  const auto tail = std::count_if(values.begin(), values.end(), [](double x) { return std::abs(x) > 4; });
  EXPECT_NEAR(static_cast<double>(tail), 63, 40);
}

// Recorded once: the same bits on every machine, compiler and library.
TEST(Random, NormalIsTheSameToTheLastBit) {
  Random random(1);
  EXPECT_EQ(random.normal(), 0x1.b7c251a5470ccp-2);
  EXPECT_EQ(random.normal(), 0x1.95f5305298699p+0);
  EXPECT_EQ(random.normal(), 0x1.d368fe72bb62p-2);
}

// The generator again from its definition: draws 3i+1 to 3i+3 of a stream, 12 lanes of 16 bits.
TEST(FillNormal, IsTheSumOfTwelveLanes) {
  const uint64_t seed = 99;
  std::vector<float> values(1000);
  fill_normal(seed, values.data(), 1000);
  Random stream(Random(seed).next());
  for (const float value : values) {
    int sum = 0;
    for (int draw = 0; draw < 3; ++draw) {
      const uint64_t bits = stream.next();
      for (int lane = 0; lane < 4; ++lane) sum += static_cast<int>(bits >> (16 * lane) & 0xffff);
    }
    ASSERT_EQ(value, static_cast<float>(sum - 393210) / 65536.0f);
  }
}

TEST(FillNormal, AValueDependsOnSeedAndIndexOnly) {
  std::vector<float> all(100);
  std::vector<float> some(37);
  fill_normal(5, all.data(), 100);
  fill_normal(5, some.data(), 37);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
  fill_normal(6, some.data(), 37);
  EXPECT_FALSE(std::equal(some.begin(), some.end(), all.begin()));
  fill_normal(5, nullptr, 0);
}

TEST(FillNormal, HasMeanZeroAndDeviationOne) {
  std::vector<float> values(1000000);
  fill_normal(7, values.data(), 1000000);
  const Moments m = moments(std::vector<double>(values.begin(), values.end()));
  EXPECT_NEAR(m.mean, 0, 0.005);
  EXPECT_NEAR(m.variance, 1, 0.0071);
  EXPECT_NEAR(m.excess_kurtosis, -0.1, 0.025);  // -1.2 / 12 for a sum of 12 uniforms
}

TEST(FillNormal, NeighboursAndSeedsAreUncorrelated) {
  const int n = 1000000;
  std::vector<float> a(n + 1);
  std::vector<float> b(n);
  fill_normal(10, a.data(), n + 1);
  fill_normal(11, b.data(), n);
  double neighbours = 0;
  double seeds = 0;
  for (int i = 0; i < n; ++i) {
    neighbours += double{a[i]} * a[i + 1] / n;
    seeds += double{a[i]} * b[i] / n;
  }
  EXPECT_NEAR(neighbours, 0, 0.005);
  EXPECT_NEAR(seeds, 0, 0.005);
}

}  // namespace
}  // namespace nlsplit
