#include "base/name_range.h"

#include <gtest/gtest.h>

namespace nlsplit {
namespace {

TEST(NameRange, Parses) {
  const auto range = parse_name_range("node-2..node-10");
  ASSERT_TRUE(range.has_value());
  EXPECT_EQ(range->prefix, "node-");
  EXPECT_EQ(range->first, 2);
  EXPECT_EQ(range->last, 10);
  EXPECT_EQ(range->name(3), "node-3");
  for (const char* bad : {"", "h1", "..", "h1..", "..h1", "h1..k2", "h2..h1", "h..k", "h01..h02", "h1..2",
                          "h1..h99999999999999999999", "h1..h2..h3"})
    EXPECT_FALSE(parse_name_range(bad).has_value()) << bad;
}

TEST(NameRange, JoinsRunsOfThreeAndMore) {
  EXPECT_EQ(join_names({"A", "B", "C"}, "+"), "A+B+C");
  EXPECT_EQ(join_names({"h0", "h1"}, "+"), "h0+h1");
  EXPECT_EQ(join_names({"h0", "h1", "h2", "k3", "h3", "h2", "h1"}, "+"), "h0..h2+k3+h3+h2+h1");
  EXPECT_EQ(join_names({"h8", "h9", "h10", "h11"}, ", "), "h8..h11");
  EXPECT_EQ(join_names({"h00", "h01", "h02"}, "+"), "h00+h01+h02");
  EXPECT_EQ(join_names({}, "+"), "");
}

}  // namespace
}  // namespace nlsplit
