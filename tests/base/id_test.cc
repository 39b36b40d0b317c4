#include "base/id.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <unordered_set>

namespace nlsplit {
namespace {

using NodeId = Id<struct NodeTag>;
using ValueId = Id<struct ValueTag>;

static_assert(!std::is_convertible_v<size_t, NodeId>);
static_assert(!std::is_convertible_v<NodeId, ValueId>);
static_assert(!std::is_constructible_v<NodeId, ValueId>);

TEST(Id, NoneIsNotAnIndex) {
  EXPECT_FALSE(NodeId().valid());
  EXPECT_TRUE(NodeId(0).valid());
  EXPECT_NE(NodeId(), NodeId(0));
}

TEST(Id, OrderAndHashFollowTheIndex) {
  EXPECT_LT(NodeId(2), NodeId(3));
  EXPECT_EQ(NodeId(7).index(), 7u);
  const std::unordered_set<NodeId> ids = {NodeId(1), NodeId(1), NodeId(2)};
  EXPECT_EQ(ids.size(), 2u);
}

}  // namespace
}  // namespace nlsplit
