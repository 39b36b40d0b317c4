#include "partition/rename_alike.h"

#include <gtest/gtest.h>

namespace nlsplit {
namespace {

// Device 0 is alone, 1, 2 and 4 are alike, 3 and 5 are.
const std::vector<size_t> class_of = {0, 1, 1, 3, 1, 3};

std::vector<Stage> renamed(std::vector<Stage> stages) {
  rename_alike(stages, class_of);
  return stages;
}

Stage stage(size_t begin, size_t end, std::vector<size_t> devices) {
  Stage made{begin, end, {}};
  for (const size_t device : devices) made.devices.push_back(DeviceId(device));
  return made;
}

TEST(RenameAlike, TakesTheFirstOfEachClass) {
  EXPECT_EQ(renamed({stage(0, 5, {4}), stage(5, 9, {5}), stage(9, 10, {2})}),
            (std::vector<Stage>{stage(0, 5, {1}), stage(5, 9, {3}), stage(9, 10, {2})}));
}

TEST(RenameAlike, ADeviceOfTwoStagesKeepsOneName) {
  EXPECT_EQ(renamed({stage(0, 5, {4, 5}), stage(5, 9, {4})}),
            (std::vector<Stage>{stage(0, 5, {1, 3}), stage(5, 9, {1})}));
}

TEST(RenameAlike, ReplicasAreInOrderAndShardsInTheirPlaces) {
  EXPECT_EQ(renamed({stage(0, 5, {3, 4}), stage(5, 9, {0, 1})})[1], stage(5, 9, {0, 2}));
  Stage split = stage(0, 9, {5, 0, 4});
  split.split = Split{SplitAxis::channels, false, {3, 2, 1}};
  Stage expected = stage(0, 9, {3, 0, 1});
  expected.split = split.split;
  EXPECT_EQ(renamed({split}), (std::vector<Stage>{expected}));
}

TEST(RenameAlike, WhatHasTheFirstNamesStays) {
  const std::vector<Stage> stages = {stage(0, 5, {0, 1, 3}), stage(5, 9, {2, 4, 5})};
  EXPECT_EQ(renamed(stages), stages);
}

}  // namespace
}  // namespace nlsplit
