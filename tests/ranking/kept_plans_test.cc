#include "ranking/kept_plans.h"

#include <gtest/gtest.h>

namespace nlsplit {
namespace {

LoweredPlan with_instances(size_t count) {
  LoweredPlan lowered;
  lowered.dependencies.instances.resize(count);
  return lowered;
}

TEST(KeptPlans, AreTheBestOfThoseThatCame) {
  KeptPlans kept(2, 1 << 20);
  const KeptPlan slow = kept.keep(3, with_instances(1)), fast = kept.keep(1, with_instances(2));
  EXPECT_TRUE(slow->has_value());
  const KeptPlan between = kept.keep(2, with_instances(3));
  EXPECT_FALSE(slow->has_value());
  const KeptPlan slowest = kept.keep(4, with_instances(4));
  EXPECT_FALSE(slowest->has_value());
  ASSERT_TRUE(fast->has_value() && between->has_value());
  EXPECT_EQ((*fast)->dependencies.instances.size(), 2U);
  EXPECT_EQ((*between)->dependencies.instances.size(), 3U);
}

TEST(KeptPlans, WantThoseThatWouldBeKept) {
  KeptPlans kept(2, 1 << 20);
  EXPECT_TRUE(kept.wants(9));
  const KeptPlan slow = kept.keep(3, with_instances(1));
  EXPECT_TRUE(kept.wants(9));  // there is room
  const KeptPlan fast = kept.keep(1, with_instances(1));
  EXPECT_TRUE(kept.wants(2));
  EXPECT_FALSE(kept.wants(4));
}

TEST(KeptPlans, TakeNoMoreMemoryThanTheyMay) {
  const size_t bytes = bytes_of(with_instances(100));
  EXPECT_GE(bytes, 100 * sizeof(Instance));
  KeptPlans kept(10, 2 * bytes);
  const KeptPlan first = kept.keep(1, with_instances(100)), third = kept.keep(3, with_instances(100));
  EXPECT_TRUE(third->has_value());
  const KeptPlan second = kept.keep(2, with_instances(100));
  EXPECT_TRUE(first->has_value() && second->has_value());
  EXPECT_FALSE(third->has_value());
  EXPECT_EQ(kept.keep(0, with_instances(1000)), nullptr);  // the best, and alone too much: the others stay
  EXPECT_TRUE(first->has_value() && second->has_value());
}

TEST(KeptPlans, CountTheOtherNetworksOfAPlan) {
  LoweredPlan lowered = with_instances(10);
  lowered.others.push_back(with_instances(30));
  EXPECT_EQ(bytes_of(lowered), bytes_of(with_instances(10)) + bytes_of(with_instances(30)));
}

}  // namespace
}  // namespace nlsplit
