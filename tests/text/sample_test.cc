#include "text/sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

std::vector<double> shares(const std::vector<float>& logits, Sampling sampling, int draws = 20000) {
  std::vector<double> count(logits.size());
  for (int draw = 0; draw < draws; ++draw)
    count[static_cast<size_t>(value_of(sample(logits, sampling, static_cast<uint64_t>(draw))))] += 1.0 / draws;
  return count;
}

TEST(Sample, GreedyTakesTheLowestOfEqualTokens) {
  const std::vector<float> logits = {1, 3, 2, 3};
  EXPECT_EQ(value_of(sample(logits, {.temperature = 0}, 5)), 1);
}

TEST(Sample, DrawsByProbability) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.2f), std::log(0.7f),
                                     -std::numeric_limits<float>::infinity()};
  const auto share = shares(logits, {});
  EXPECT_NEAR(share[0], 0.1, 0.01);
  EXPECT_NEAR(share[1], 0.2, 0.01);
  EXPECT_NEAR(share[2], 0.7, 0.01);
  EXPECT_EQ(share[3], 0);
  EXPECT_NEAR(shares(logits, {.temperature = 0.5})[2], 0.49 / 0.54, 0.01);
}

TEST(Sample, KeepsWhatIsAskedFor) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.2f), std::log(0.3f), std::log(0.4f)};
  const auto two = shares(logits, {.top_k = 2});
  EXPECT_NEAR(two[2], 3.0 / 7, 0.015);
  EXPECT_EQ(two[0] + two[1], 0);
  EXPECT_NEAR(shares(logits, {.top_p = 0.3})[3], 1, 1e-9) << "one token always stays";
  const auto three = shares(logits, {.top_p = 0.75});
  EXPECT_EQ(three[0], 0);
  EXPECT_NEAR(three[1], 2.0 / 9, 0.015);
  const auto likely = shares(logits, {.min_p = 0.6});
  EXPECT_EQ(likely[0] + likely[1], 0);
  EXPECT_GT(likely[2], 0.3);
  const std::vector<float> equal = {1, 1, 1};
  EXPECT_EQ(shares(equal, {.top_k = 2})[2], 0) << "of equal ones the lower numbers";
}

TEST(Sample, DependsOnSeedAndPositionAlone) {
  std::vector<float> logits;
  for (int at = 0; at < 1000; ++at) logits.push_back(static_cast<float>(at % 37) * 0.1f);
  std::vector<TokenId> drawn, other;
  for (uint64_t position = 0; position < 6; ++position) {
    drawn.push_back(value_of(sample(logits, {.top_p = 0.9, .seed = 7}, position)));
    EXPECT_EQ(value_of(sample(logits, {.top_p = 0.9, .seed = 7}, position)), drawn.back());
    other.push_back(value_of(sample(logits, {.top_p = 0.9, .seed = 8}, position)));
  }
  EXPECT_NE(drawn, other);
  EXPECT_EQ(drawn, (std::vector<TokenId>{63, 516, 614, 388, 998, 356})) << "the same on every machine";
}

TEST(Sample, BadLogitsAndSettings) {
  const std::vector<float> logits = {1, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THAT(sample(logits, {}, 0).error().message, HasSubstr("the logit of token 1 is not a number"));
  const std::vector<float> infinite = {1, std::numeric_limits<float>::infinity()};
  EXPECT_THAT(sample(infinite, {}, 0).error().message, HasSubstr("the largest logit, of token 1, is inf"));
  EXPECT_FALSE(sample({}, {}, 0).ok());
  const std::vector<float> fine = {1, 2};
  EXPECT_FALSE(sample(fine, {.temperature = -1}, 0).ok());
  EXPECT_FALSE(sample(fine, {.top_k = -1}, 0).ok());
  EXPECT_FALSE(sample(fine, {.top_p = 0}, 0).ok());
  EXPECT_FALSE(sample(fine, {.min_p = 2}, 0).ok());
}

}  // namespace
}  // namespace nlsplit
