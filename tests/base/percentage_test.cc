#include "base/percentage.h"

#include <gtest/gtest.h>

#include <string>

namespace nlsplit {
namespace {

TEST(Percentage, IsAShare) {
  EXPECT_EQ(*parse_percentage("30%"), 0.3);
  EXPECT_EQ(*parse_percentage("0%"), 0);
  EXPECT_EQ(*parse_percentage("2.5e1%"), 0.25);
  EXPECT_EQ(*parse_percentage("-5%"), -0.05);
}

TEST(Percentage, AnythingElseIsAnError) {
  EXPECT_EQ(parse_percentage("5").error().message, "'5' has no unit; a percentage is expected, e.g. 5%");
  for (const std::string text : {"", "%", "5 %", "5%%", "5ms", "nan%", "inf%", "1e999%", "+5%", " 5%"}) {
    ASSERT_FALSE(parse_percentage(text).ok()) << text;
    EXPECT_EQ(parse_percentage(text).error().message, "'" + text + "' is not a percentage; write e.g. 5%");
    EXPECT_EQ(parse_percentage(text).error().fragment, text);
  }
}

}  // namespace
}  // namespace nlsplit
