// Which file holds an address, and which build of it.
#include "base/build_of.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nlsplit::testing {
namespace {

using ::testing::MatchesRegex;

TEST(BuildOf, NamesTheFileAndItsBuild) {
  EXPECT_THAT(build_of(reinterpret_cast<const void*>(&build_of)), MatchesRegex("test_base [0-9a-f]+"));
}

TEST(BuildOf, IsEmptyWhereNoFileIs) { EXPECT_EQ(build_of(nullptr), ""); }

}  // namespace
}  // namespace nlsplit::testing
