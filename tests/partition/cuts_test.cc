#include "partition/cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nlsplit {
namespace {

using ::testing::ElementsAre;

TEST(Cuts, OfThoseNextToEachOtherTheOneWithTheFewestBytesRemains) {
  // Six nodes; the second and third take next to nothing, so cuts 1, 2 and 3 are one place.
  const std::vector<std::vector<double>> seconds = {{1, 1e-4, 1e-4, 1, 1, 1}};
  EXPECT_THAT(distinct_cuts({1, 2, 3, 4, 5, 6}, seconds, {0, 8, 4, 6, 8, 8, 0}), ElementsAre(2, 4, 5, 6));
  EXPECT_THAT(distinct_cuts({1, 2, 3, 4, 5, 6}, seconds, {0, 4, 4, 4, 8, 8, 0}), ElementsAre(1, 4, 5, 6));
}

TEST(Cuts, WorkThatMattersOnOneDeviceKeepsThemApart) {
  const std::vector<std::vector<double>> seconds = {{1, 1e-4, 1, 1}, {1, 0.1, 1, 1}};
  EXPECT_THAT(distinct_cuts({1, 2, 3, 4}, seconds, {0, 8, 4, 8, 0}), ElementsAre(1, 2, 3, 4));
}

TEST(Cuts, ManySmallNodesAddUp) {
  // Each takes 0.04 % of the whole: two together are still one place, three are not.
  const std::vector<std::vector<double>> seconds = {{0.5, 4e-4, 4e-4, 4e-4, 0.4988}};
  EXPECT_THAT(distinct_cuts({1, 2, 3, 4, 5}, seconds, {0, 8, 8, 8, 8, 0}), ElementsAre(1, 4, 5));
}

TEST(Cuts, TheEndStays) {
  const std::vector<std::vector<double>> seconds = {{1, 1e-9}};
  EXPECT_THAT(distinct_cuts({1, 2}, seconds, {0, 4, 8}), ElementsAre(1, 2));
}

}  // namespace
}  // namespace nlsplit
