#include "base/csv.h"

#include <gtest/gtest.h>

namespace nlsplit {
namespace {

TEST(Csv, QuotesWhatNeedsIt) {
  const CsvRow row = {"plain", "a,b", "say \"x\"", "", "two\nlines", "\"", ","};
  const std::string line = csv_line(row);
  EXPECT_EQ(line, "plain,\"a,b\",\"say \"\"x\"\"\",,two lines,\"\"\"\",\",\"\n");
  CsvRow back = row;
  back[4] = "two lines";
  EXPECT_EQ(*parse_csv_line(line.substr(0, line.size() - 1)), back);
  EXPECT_EQ(*parse_csv_line(""), CsvRow{""});
  EXPECT_EQ(*parse_csv_line("a,"), (CsvRow{"a", ""}));
}

TEST(Csv, RefusesWhatIsNoRow) {
  EXPECT_EQ(parse_csv_line("\"a").error().message, "a quoted cell without its end");
  EXPECT_EQ(parse_csv_line("a\"b\"").error().message, "a quote in the middle of a cell");
  EXPECT_EQ(parse_csv_line("\"a\"b").error().message, "something after a quoted cell");
}

}  // namespace
}  // namespace nlsplit
