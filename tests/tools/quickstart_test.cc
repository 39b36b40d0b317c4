// README's first screen is what scripts/quickstart prints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

// What quickstart prints, of the first twenty plans eight.
std::string first_screen(const std::string& printed) {
  const std::regex left_out("( 9|1[0-9]|20)  .*");
  std::string shown;
  std::istringstream lines(printed);
  for (std::string line; std::getline(lines, line);)
    if (!std::regex_match(line, left_out)) shown += line + "\n";
  return shown;
}

std::string without_accidents(const std::string& text) {
  const std::string untimed = std::regex_replace(text, std::regex("timed in [0-9.]+ s"), "timed");
  return std::regex_replace(untimed, std::regex("next     [^ ]*nlbench "), "next     nlbench ");  // where it was built
}

// `NLSPLIT_UPDATE_GOLDEN=1` writes it anew.
TEST(Quickstart, IsWhatTheReadmeShows) {
  const std::string path = NLS_SOURCE_DIR "/README.md", readme = value_of(read_file(path));
  const size_t mark = readme.find("<!-- quickstart output");
  ASSERT_NE(mark, std::string::npos);
  const size_t begin = readme.find("\n```\n", mark) + 5, end = readme.find("\n```\n", begin) + 1;

  const Outcome outcome =
      run_command(fmt::format("cd {} && {}/nlsim rank scenarios/quickstart.yaml", NLS_SOURCE_DIR, NLS_BIN_DIR));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string expected = first_screen(outcome.out);
  EXPECT_THAT(expected, ::testing::HasSubstr("\nverdict  Splitting is worth it for throughput ("));
  if (std::getenv("NLSPLIT_UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(write_file(path, readme.substr(0, begin) + expected + readme.substr(end)).ok());
  } else {
    EXPECT_EQ(without_accidents(readme.substr(begin, end - begin)), without_accidents(expected));
  }
}

// scripts/figures over a page of its own and its results.
class Figures : public ::testing::Test {
 protected:
  Figures() {
    std::filesystem::create_directories(scratch_ / "docs");
    results("4.2 s", R"(["network", "time"], ["resnet50", "31 ms"])");
    page("4.2 s", "31 ms", "60 s");
  }
  void results(const std::string& time, const std::string& rows) {
    scratch_.write("docs/results.json", fmt::format(R"({{"machines": {{"desk": "a desk"}}, "results": {{
"search.time": {{"machine": "desk", "date": "2026-11-25", "command": "nlsim rank", "values": ["{}"]}},
"networks": {{"machine": "desk", "date": "2026-11-25", "command": "nlbench run", "rows": [{}]}}}}}})",
                                                    time, rows));
  }
  void page(const std::string& time, const std::string& cell, const std::string& limit) {
    scratch_.write("README.md",
                   fmt::format("# Page\n<!-- not measured: 60 s -->\n\nA start may take {}; `7 s` is code.\n\n"
                               "<!-- figures: search.time -->\nThe search takes {}.\n\n"
                               "<!-- figures: networks -->\n| network | time |\n|---|---|\n| resnet50 | {} |\n",
                               limit, time, cell));
  }
  Outcome figures(const std::string& arguments) {
    return run_command(fmt::format("{}/scripts/figures --root {} {}", NLS_SOURCE_DIR, scratch_ / "", arguments));
  }
  void expect_refused(const std::string& why) {
    const Outcome outcome = figures("--check");
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.err, ::testing::HasSubstr(why));
  }
  Scratch scratch_;
};

TEST_F(Figures, OfTheResultsAreFine) {
  const Outcome outcome = figures("--check");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(Figures, ThatDifferAreRefusedWithTheirPlace) {
  page("4.3 s", "31 ms", "60 s");
  expect_refused("README.md:7: '4.3 s' stands here, in search.time '4.2 s'");
  page("4.2 s", "30 ms", "60 s");
  expect_refused("README.md:12: '30 ms' stands here, in networks '31 ms'");
}

TEST_F(Figures, ThatAreInNoResultAreRefused) {
  page("4.2 s", "31 ms", "60 s, and took 9 ms");
  expect_refused("README.md:4: '9 ms' is in no result");
  page("4.2 s, at 99 %", "31 ms", "60 s");
  expect_refused("README.md:7: '99 %' stands here, in search.time 'no more'");
}

TEST_F(Figures, AreWrittenIntoThePages) {
  results("3.9 s", R"(["network", "time"], ["resnet50", "29 ms"], ["vgg16", "68 ms"])");
  EXPECT_EQ(figures("").code, 0);
  const std::string page = value_of(read_file(scratch_ / "README.md"));
  EXPECT_THAT(page, ::testing::HasSubstr("The search takes 3.9 s."));
  EXPECT_THAT(page, ::testing::HasSubstr("| resnet50 | 29 ms |\n| vgg16 | 68 ms |\n"));
}

// A column more than the page had.
TEST_F(Figures, HaveAsManyColumnsAsTheirHead) {
  const std::string rows = R"(["network", "time", "again"], ["resnet50", "31 ms", "30 ms"])";
  results("4.2 s", rows);
  EXPECT_EQ(figures("").code, 0);
  EXPECT_THAT(value_of(read_file(scratch_ / "README.md")),
              ::testing::HasSubstr("| network | time | again |\n|---|---|---|\n| resnet50 | 31 ms | 30 ms |\n"));
  scratch_.write("docs/more.md", "# More\n\n| a | b | c |\n|---|---|\n| d | e | f |\n");
  expect_refused("docs/more.md:4: 2 columns under a head of 3");
}

TEST_F(Figures, AreAddedFromAPage) {
  page("4.2 s", "31 ms", "60 s");
  scratch_.write("docs/more.md", "# More\n\nIt took 8 ms.\n");
  expect_refused("docs/more.md:3: '8 ms' is in no result");
  const Outcome outcome = figures("--add more.time docs/more.md:3 machine=desk date=2026-11-25 command=nlbench");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(figures("--check").code, 0);
  scratch_.write("docs/more.md", "# More\n\n<!-- figures: more.time -->\nIt took 7 ms.\n");
  expect_refused("docs/more.md:4: '7 ms' stands here, in more.time '8 ms'");
  EXPECT_EQ(figures("--add more.time").code, 0);
  EXPECT_EQ(figures("--check").code, 0);
}

// What a script printed goes into the results, and from there into the pages.
TEST_F(Figures, AreSetFromWhatAScriptPrinted) {
  const std::string output =
      scratch_.write("output", "measured:\n\n| network | time |\n|---|---|\n| resnet50 | 28 ms |\n\nno failure\n");
  EXPECT_EQ(figures("--set networks,search.time < " + output).code, 1);
  EXPECT_EQ(figures("--set networks < " + output).code, 0);
  EXPECT_THAT(value_of(read_file(scratch_ / "README.md")), ::testing::HasSubstr("| resnet50 | 28 ms |\n"));
  EXPECT_EQ(figures("--check").code, 0);
}

TEST_F(Figures, OfASummaryStandInWhatItSumsUp) {
  scratch_.write("docs/more.md", "# More\n\nAbout 30 ms.\n");
  EXPECT_EQ(figures("--add more.sum docs/more.md:3 machine=desk date=2026-11-25 command=nlbench of=networks").code, 0);
  expect_refused("results.json: more.sum: has numbers that stand in none of networks: 30");
}

TEST(FiguresOfTheseDocs, AreThoseOfTheResults) {
  const Outcome outcome = run_command(NLS_SOURCE_DIR "/scripts/figures --check");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

}  // namespace
}  // namespace nlsplit
