#include "report/table.h"

#include <gtest/gtest.h>

namespace nlsplit {
namespace {

TEST(Table, NumbersToTheRightWordsToTheLeft) {
  Table table({{"#", Align::right}, {"plan"}, {"micro-\nbatches", Align::right}, {"memory"}});
  table.add({"1", "A+B all", "4", "46.1 MiB"});
  table.add({"12", "A ..conv1 | B rest", "16", ""});
  EXPECT_EQ(table.to_string(),
            " #  plan                 micro-  memory\n"
            "                        batches\n"
            " 1  A+B all                   4  46.1 MiB\n"
            "12  A ..conv1 | B rest       16\n");
}

TEST(Table, ManyBytesMayBeOneColumn) {
  EXPECT_EQ(display_width("±4 µs"), 5u);
  Table table({{"a"}, {"b"}});
  table.add({"±", "x"});
  table.add({"12", "y"});
  EXPECT_EQ(table.to_string(), "a   b\n±   x\n12  y\n");
}

TEST(Table, WithoutRowsIsItsHead) { EXPECT_EQ(Table({{"a"}, {"b"}}).to_string(), "a  b\n"); }

TEST(Words, RatesAndCounts) {
  EXPECT_EQ(rate_text(53618.4), "53618");
  EXPECT_EQ(rate_text(99.94), "99.9");
  EXPECT_EQ(rate_text(7.3), "7.30");
  EXPECT_EQ(rate_text(0.0312), "0.031");
  EXPECT_EQ(counted(1, "device"), "1 device");
  EXPECT_EQ(counted(0, "device"), "0 devices");
  EXPECT_EQ(counted(8, "micro-batch"), "8 micro-batches");
  EXPECT_EQ(counted(1, "micro-batch"), "1 micro-batch");
}

}  // namespace
}  // namespace nlsplit
