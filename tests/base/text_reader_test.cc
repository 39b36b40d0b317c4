#include "base/text_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"

namespace nlsplit {
namespace {

// A reader on its only line.
TextReader on_line(std::string_view line) {
  TextReader in(line, "t");
  EXPECT_TRUE(in.next_line());
  return in;
}

template <class T>
std::string text_of(const Result<T>& result) {
  return result.ok() ? "no error" : result.error().to_string();
}

std::vector<std::string> tokens(std::string_view line) {
  TextReader in = on_line(line);
  std::vector<std::string> all;
  while (!in.at_end_of_line()) {
    all.emplace_back(in.peek());
    EXPECT_TRUE(in.accept(all.back()));
  }
  return all;
}

using Strings = std::vector<std::string>;

TEST(TextReader, SplitsALineIntoTokens) {
  EXPECT_EQ(tokens("conv1 = Conv(x, %3)  pads:[1,-1] a/b@$c"),
            (Strings{"conv1", "=", "Conv", "(", "x", ",", "%3", ")", "pads:", "[", "1", ",", "-1", "]", "a/b@$c"}));
  EXPECT_EQ(tokens("a\"b c\"d"), (Strings{"a", "\"b c\"", "d"}));
  EXPECT_EQ(tokens("\"a\\\"b\" c"), (Strings{"\"a\\\"b\"", "c"}));
  EXPECT_EQ(tokens("1·2"), (Strings{"1", "·", "2"})) << "a UTF-8 character is one token";
}

TEST(TextReader, SkipsBlankLinesAndComments) {
  TextReader in("\n# head\n  one # first\r\n\t\n   #  \ntwo \"a # b\" #second\nthree", "t");
  ASSERT_TRUE(in.next_line());
  EXPECT_TRUE(in.accept("one"));
  EXPECT_TRUE(in.at_end_of_line());
  EXPECT_EQ(in.comment(), "first");
  EXPECT_EQ(in.indent(), 2);
  ASSERT_TRUE(in.next_line());
  EXPECT_TRUE(in.accept("two"));
  EXPECT_EQ(*in.quoted("text"), "a # b");
  EXPECT_TRUE(in.end_of_line());
  EXPECT_EQ(in.comment(), "second");
  EXPECT_EQ(in.indent(), 0);
  ASSERT_TRUE(in.next_line());
  EXPECT_EQ(*in.word("a word"), "three");
  EXPECT_EQ(in.comment(), "");
  EXPECT_FALSE(in.next_line());
  EXPECT_FALSE(in.next_line());
  EXPECT_FALSE(TextReader("", "t").next_line());
}

TEST(TextReader, GivesALineAgain) {
  TextReader in("one 1\ntwo", "t");
  ASSERT_TRUE(in.next_line());
  EXPECT_TRUE(in.accept("one"));
  in.push_back_line();
  ASSERT_TRUE(in.next_line());
  EXPECT_TRUE(in.accept("one")) << "from its beginning";
  ASSERT_TRUE(in.next_line());
  EXPECT_EQ(in.error("here").where.line, 2);
  ASSERT_FALSE(in.next_line());
  in.push_back_line();
  EXPECT_FALSE(in.next_line()) << "there is no line to give again at the end";
}

TEST(TextReader, AnErrorPointsAtTheLastToken) {
  TextReader in("\n\n  place conv1 on Q  # why\n", "mine.nls");
  ASSERT_TRUE(in.next_line());
  EXPECT_TRUE(in.accept("place"));
  EXPECT_TRUE(in.word("a node"));
  EXPECT_TRUE(in.expect("on"));
  EXPECT_TRUE(in.word("a device"));
  EXPECT_EQ(in.error("there is no device 'Q'").to_string(),
            "mine.nls:3:18: there is no device 'Q'\n  |   place conv1 on Q");
  ASSERT_FALSE(in.next_line());
  EXPECT_EQ(in.error("no 'end'").to_string(), "mine.nls:3: no 'end'");
}

TEST(TextReader, SaysWhatItExpectedAndFound) {
  EXPECT_EQ(text_of(on_line("a b").expect("on")), "t:1:1: expected 'on', found 'a'\n  | a b");
  TextReader in = on_line("a  b");
  EXPECT_TRUE(in.expect("a"));
  EXPECT_EQ(text_of(in.end_of_line()), "t:1:4: expected the end of the line, found 'b'\n  | a  b");
  EXPECT_TRUE(in.expect("b"));
  EXPECT_EQ(text_of(in.word("a device")), "t:1:5: expected a device, found the end of the line\n  | a  b");
  EXPECT_EQ(text_of(on_line("(a").word("a device")), "t:1:1: expected a device, found '('\n  | (a");
  EXPECT_EQ(text_of(on_line("a").quoted("a name")), "t:1:1: expected a name in quotes, found 'a'\n  | a");
}

TEST(TextReader, AFailedReadTakesNothing) {
  TextReader in = on_line("abc");
  EXPECT_FALSE(in.integer("a count"));
  EXPECT_FALSE(in.quoted("a name"));
  EXPECT_FALSE(in.accept("ab"));
  EXPECT_FALSE(in.expect("x"));
  EXPECT_FALSE(in.end_of_line());
  EXPECT_EQ(*in.word("a word"), "abc");
}

TEST(TextReader, Integers) {
  EXPECT_EQ(*on_line("-12").integer("n"), -12);
  EXPECT_EQ(*on_line("-9223372036854775808").integer("n"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(text_of(on_line("12x").integer("a count")), "t:1:1: expected a count (an integer), found '12x'\n  | 12x");
  EXPECT_EQ(text_of(on_line("9223372036854775808").integer("a count")),
            "t:1:1: a count '9223372036854775808' does not fit 64 bits\n  | 9223372036854775808");
  for (const char* text : {"1.5", "+1", "-", "x", "\"1\"", "("}) EXPECT_FALSE(on_line(text).integer("n")) << text;
}

TEST(TextReader, Hex) {
  EXPECT_EQ(*on_line("0").hex("a hash"), 0u);
  EXPECT_EQ(*on_line("00fF").hex("a hash"), 255u);
  EXPECT_EQ(*on_line("ffffffffffffffff").hex("a hash"), ~uint64_t{0});
  EXPECT_EQ(text_of(on_line("0x1").hex("a hash")),
            "t:1:1: expected a hash (1 to 16 hexadecimal digits), found '0x1'\n  | 0x1");
  for (const char* text : {"00000000000000000", "-1", "g", "("}) EXPECT_FALSE(on_line(text).hex("a hash")) << text;
}

TEST(TextReader, Numbers) {
  EXPECT_EQ(*on_line("-1.5e3").number("x"), -1500);
  EXPECT_EQ(*on_line(".5").number("x"), 0.5);
  EXPECT_EQ(*on_line("-inf").number("x"), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(text_of(on_line("1e999").number("a rate")), "t:1:1: a rate '1e999' does not fit a double\n  | 1e999");
  EXPECT_EQ(text_of(on_line("nan").number("a rate")), "t:1:1: expected a rate (a number), found 'nan'\n  | nan");
  for (const char* text : {"-nan", "infinity", "INF", "1.5x", "-", "+1", "0x10", "e5"}) {
    EXPECT_FALSE(on_line(text).number("x")) << text;
  }
}

TEST(TextReader, QuotedErrors) {
  EXPECT_EQ(text_of(on_line("\"ab # c").quoted("a name")), "t:1:1: a name has no closing quote\n  | \"ab # c");
  EXPECT_EQ(text_of(on_line("\"ab\\").quoted("a name")), "t:1:1: a name has no closing quote\n  | \"ab\\");
  EXPECT_EQ(text_of(on_line("\"ab\\t\"").quoted("a name")),
            "t:1:4: unknown escape '\\t'; there are \\\" \\\\ and \\n\n  | \"ab\\t\"");
}

TEST(Quote, IsReadBack) {
  EXPECT_EQ(quote("a\"b\\c\nd"), "\"a\\\"b\\\\c\\nd\"");
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (uint64_t size = random.below(12); size > 0; --size) {
      // Often the characters that matter, else any byte.
      text += random.below(2) == 0 ? "\"\\\n\r# "[random.below(6)] : static_cast<char>(random.below(256));
    }
    const std::string line = quote(text) + " end # comment";
    TextReader in = on_line(line);
    const Result<std::string> read = in.quoted("text");
    ASSERT_TRUE(read) << read.error().to_string();
    ASSERT_EQ(*read, text);
    ASSERT_TRUE(in.accept("end"));
  }
}

// Whatever the text, reading ends, and an error can be made anywhere.
TEST(TextReader, AnyBytesAreTokens) {
  Random random(2);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (uint64_t size = random.below(40); size > 0; --size) {
      text += random.below(2) == 0 ? "\"\\\n# a("[random.below(7)] : static_cast<char>(random.below(256));
    }
    TextReader in(text, "t");
    while (in.next_line()) {
      while (!in.at_end_of_line()) {
        const std::string token(in.peek());
        ASSERT_FALSE(in.error("x").fragment.empty());
        ASSERT_TRUE(in.accept(token));
      }
    }
  }
}

TEST(Shortest, IsReadBackToTheSameDouble) {
  EXPECT_EQ(shortest(0.1), "0.1");
  EXPECT_EQ(shortest(1), "1");
  EXPECT_EQ(shortest(1e22), "1e+22");
  Random random(3);
  for (int i = 0; i < 10000; ++i) {
    const uint64_t bits = random.next();
    double value = 0;
    static_assert(sizeof value == sizeof bits);
    std::memcpy(&value, &bits, sizeof value);
    if (std::isnan(value)) continue;
    ASSERT_EQ(*on_line(shortest(value)).number("x"), value);
  }
  for (const double value : {0.0, -0.0, 5e-324, 1.7976931348623157e308, HUGE_VAL}) {
    const double read = *on_line(shortest(value)).number("x");
    EXPECT_EQ(read, value);
    EXPECT_EQ(std::signbit(read), std::signbit(value));
  }
}

TEST(EditDistance, CountsInsertedRemovedAndReplaced) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("layer", "layre"), 2u);
}

TEST(Nearest, OnlyWhatIsNear) {
  const std::vector<std::string> names = {"throughput", "latency", "cost", "b"};
  EXPECT_EQ(nearest("troughput", names), "throughput");
  EXPECT_EQ(nearest("latnecy", names), "latency");
  EXPECT_EQ(nearest("memory", names), "");
  EXPECT_EQ(nearest("a", names), "") << "a word all of which is replaced is no hint";
}

}  // namespace
}  // namespace nlsplit
