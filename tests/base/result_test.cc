#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace nlsplit {
namespace {

Error at(std::string file, int line, int column, std::string fragment) {
  Error error = invalid_input("no device 'x'");
  error.where = {std::move(file), line, column};
  error.fragment = std::move(fragment);
  return error;
}

TEST(Error, SaysWhereAsFarAsItIsKnown) {
  EXPECT_EQ(at("a.nls", 3, 7, "place x").to_string(), "a.nls:3:7: no device 'x'\n  | place x");
  EXPECT_EQ(at("a.nls", 3, 0, "").to_string(), "a.nls:3: no device 'x'");
  EXPECT_EQ(at("a.nls", 0, 0, "").to_string(), "a.nls: no device 'x'");
  EXPECT_EQ(at("", 0, 0, "x").to_string(), "no device 'x'\n  | x");
  EXPECT_EQ(at("", 0, 0, "x\ny").to_string(), "no device 'x'\n  | x\n  | y");
}

TEST(Error, ExitCodeIsOneOnlyForWorkThatFailed) {
  EXPECT_EQ(exit_code(failed("other bits")), 1);
  EXPECT_EQ(exit_code(lost("a rank died")), 3);
  EXPECT_EQ(exit_code(invalid_input("")), 2);
  EXPECT_EQ(exit_code(unsupported("")), 2);
  EXPECT_EQ(exit_code(io_error("")), 2);
}

Result<int> half(int n) {
  if (n % 2 != 0) return invalid_input("odd");
  return n / 2;
}

Result<int> quarter(int n) {
  ASSIGN_OR_RETURN(const int h, half(n));
  ASSIGN_OR_RETURN(const int q, half(h));
  return q;
}

Status divisible_by_four(int n) {
  RETURN_IF_ERROR(quarter(n));
  return ok_status();
}

TEST(Result, MacrosPassTheErrorOn) {
  EXPECT_EQ(*quarter(12), 3);
  ASSERT_FALSE(quarter(6));
  EXPECT_EQ(quarter(6).error().message, "odd");
  EXPECT_TRUE(divisible_by_four(8));
  ASSERT_FALSE(divisible_by_four(7));
  EXPECT_EQ(divisible_by_four(7).error().message, "odd");
}

TEST(Result, HoldsWhatCanOnlyBeMoved) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  const std::unique_ptr<int> five = std::move(result).value();
  EXPECT_EQ(*five, 5);
}

TEST(ResultDeathTest, ValueOfAnErrorStopsTheProgram) {
  EXPECT_DEATH(*half(3), "result.h:[0-9]+: CHECK\\(ok\\(\\)\\) failed: odd");
}

}  // namespace
}  // namespace nlsplit
