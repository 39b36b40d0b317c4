// The CSV: what of a file that broke off counts.
#include "sweep/sweep_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

TEST(SweepFile, DropsALastLineThatBrokeOff) {
  const Scratch scratch;
  const CsvRow columns = {"x", "y"};
  const std::string path = scratch.write("p.csv", "x,y\n1,2\n3,4\n5,");
  const auto read = read_sweep_rows(path, columns);
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  EXPECT_EQ(read->rows, (std::vector<CsvRow>{{"1", "2"}, {"3", "4"}}));
  auto file = SweepFile::open(path, columns, read->bytes);
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  ASSERT_TRUE(file->append({{"5", "6"}}).ok());
  EXPECT_EQ(value_of(read_file(path)), "x,y\n1,2\n3,4\n5,6\n");
}

TEST(SweepFile, AHeaderThatBrokeOffIsWrittenAgain) {
  const Scratch scratch;
  const CsvRow columns = {"x", "y"};
  for (const char* text : {"", "x", "x,"}) {
    const std::string path = scratch.write("p.csv", text);
    const auto read = read_sweep_rows(path, columns);
    ASSERT_TRUE(read.ok()) << text;
    ASSERT_TRUE(SweepFile::open(path, columns, read->bytes).ok());
    EXPECT_EQ(value_of(read_file(path)), "x,y\n");
  }
}

TEST(SweepFile, NamesTheLineThatIsWrong) {
  const Scratch scratch;
  const auto error = [&](const std::string& text) {
    return read_sweep_rows(scratch.write("p.csv", text), {"x", "y"}).error().to_string();
  };
  EXPECT_THAT(error("x,z\n"), HasSubstr("p.csv:1:1: these are not the columns of this experiment"));
  EXPECT_THAT(error("notes of mine"), HasSubstr("p.csv:1:1: these are not the columns of this experiment"));
  EXPECT_THAT(error("x,y\n1,2\n3\n"), HasSubstr("p.csv:3:1: 1 cells, and there are 2 columns"));
  EXPECT_THAT(error("x,y\n\"1,2\n"), HasSubstr("p.csv:2:1: a quoted cell without its end"));
}

}  // namespace
}  // namespace nlsplit
