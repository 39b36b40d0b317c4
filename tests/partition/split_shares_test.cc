// Shares of a stage by speed and by memory.
#include "partition/split_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "partition/score.h"

namespace nlsplit {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SmallShares, AreInProportionToSpeed) {
  EXPECT_EQ(small_shares({1, 1, 1}), (std::vector<int64_t>{1, 1, 1}));
  EXPECT_EQ(small_shares({1, 2}), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(small_shares({6, 3, 2}), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(small_shares({0, 0}), (std::vector<int64_t>{1, 1}));
}

TEST(SmallShares, NobodyIsLeftOutAndNobodyIsMuchLater) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    std::vector<double> seconds(2 + random.below(5));
    for (double& s : seconds) s = random.uniform(1, 3);
    const std::vector<int64_t> shares = small_shares(seconds);
    ASSERT_EQ(shares.size(), seconds.size());
    double all = 0, slowest = 0;
    for (const int64_t share : shares) all += static_cast<double>(share);
    for (size_t i = 0; i < shares.size(); ++i) {
      EXPECT_GE(shares[i], 1);
      slowest = std::max(slowest, static_cast<double>(shares[i]) / all * seconds[i]);
    }
    EXPECT_LE(slowest, shared_seconds(seconds) * 1.15) << "seed " << seed;
  }
}

// 100 bytes to share; the first device is four times as fast as the second.
TEST(SharesByMemory, NoneWhereSharesBySpeedSurelyFit) {
  EXPECT_THAT(shares_by_memory({4, 1}, {0, 100, {160, 40}}), IsEmpty());
}

TEST(SharesByMemory, AreCutToWhatFits) {
  // The first may have 60 of 100, the second 60: the closest to 80 : 20 that fits is 60 : 40, and equal parts leave
  // as much of both free.
  EXPECT_THAT(shares_by_memory({4, 1}, {0, 100, {60, 60}}),
              ElementsAre(std::vector<int64_t>{3, 2}, std::vector<int64_t>{1, 1}));
  // Bytes that each has leave as much less for shares.
  EXPECT_THAT(shares_by_memory({4, 1}, {20, 100, {80, 80}}),
              ElementsAre(std::vector<int64_t>{3, 2}, std::vector<int64_t>{1, 1}));
}

TEST(SharesByMemory, WhatOneCannotHoldGoesToTheOthersInProportion) {
  // 6 : 2 : 1 becomes 3 : 4 : 2: the last two get the rest as 2 : 1.
  EXPECT_THAT(shares_by_memory({6, 2, 1}, {0, 90, {30, 900, 900}}),
              ElementsAre(std::vector<int64_t>{3, 4, 2}, ::testing::_));
}

TEST(SharesByMemory, NoneWhereADeviceHasNoRoomAtAll) {
  EXPECT_THAT(shares_by_memory({1, 1}, {50, 100, {200, 40}}), IsEmpty());
}

TEST(SharesByMemory, WhereTheSumIsTooMuchTheFullestIsAsFullAsTheOthers) {
  EXPECT_THAT(shares_by_memory({1, 1}, {0, 100, {60, 20}}), ElementsAre(std::vector<int64_t>{3, 1}));
}

}  // namespace
}  // namespace nlsplit
