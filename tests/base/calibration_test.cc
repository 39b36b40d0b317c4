#include "base/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace nlsplit {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Calibration, TakesSomeTime) {
  const double once = time_calibration_loop();
  EXPECT_GT(once, 1e-6);
  EXPECT_LT(once, 0.1);
}

TEST(Calibration, ItsBestIsWhatOneInTenStaysBelow) {
  EXPECT_EQ(best_calibration({7}), 7);
  EXPECT_EQ(best_calibration({9, 8, 3, 2, 4, 5, 6, 7, 1, 10}), 2);
  EXPECT_THAT(best_calibrations({{1, 5}, {2, 4}}), ElementsAre(1, 4));
}

TEST(Calibration, WhatIsSlowAllTheTimeIsSlowBesideWhatWasKnown) {
  BestCalibration fresh, before(1);
  EXPECT_FALSE(fresh.slow(5)) << "nothing seen yet";
  EXPECT_TRUE(before.slow(1.1));
  for (const double calibration : {1.5, 1.52, 1.49, std::numeric_limits<double>::infinity()})
    fresh.add(calibration), before.add(calibration);
  EXPECT_FALSE(fresh.slow(1.5));
  EXPECT_TRUE(before.slow(1.5));
  EXPECT_EQ(fresh.best_s(), 1.49);
  EXPECT_EQ(before.best_s(), 1);
  before.add(0.9);
  EXPECT_EQ(before.best_s(), 0.9);
}

TEST(Calibration, ARepeatCountsIfAllDevicesWereFastBeforeAndAfterIt) {
  const std::vector<double> best = {1, 2};
  EXPECT_THAT(undisturbed({{1, 2}, {1.04, 2.1}, {1.3, 2}, {1, 2}, {1, 2.9}, {1, 2}}, best), ElementsAre(0, 5));
  EXPECT_THAT(undisturbed({{1.3, 2}, {1, 2.9}}, best), IsEmpty());
  EXPECT_THAT(undisturbed({}, best), IsEmpty());
}

}  // namespace
}  // namespace nlsplit
