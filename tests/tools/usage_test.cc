// What the programs say of a command line that they do not understand: one line, exit code 2.
#include <gtest/gtest.h>

#include "tools/run_program.h"

namespace nlsplit {
namespace {

struct Misuse {
  const char* command;
  const char* expected;
};

TEST(Usage, MistakesAreNamedInOneLine) {
  for (const Misuse& misuse : {
           Misuse{"nlsim rnk x", "error: nlsim has no command 'rnk': did you mean 'rank'? (nlsim --help)\n"},
           Misuse{"nlbench trian x", "error: nlbench has no command 'trian': did you mean 'train'? (nlbench --help)\n"},
           Misuse{"nlsim everything", "error: nlsim has no command 'everything' (nlsim --help)\n"},
           Misuse{"nlsim", "error: nlsim: A subcommand is required (nlsim --help)\n"},
           Misuse{"nlsim --verison",
                  "error: nlsim has no option --verison: did you mean '--version'? (nlsim --help)\n"},
           Misuse{"nlsim rank s.yaml --plan 1", "error: nlsim rank has no option --plan (nlsim rank --help)\n"},
           Misuse{"nlsim rank s.yaml --jsn=x",
                  "error: nlsim rank has no option --jsn: did you mean '--json'? (nlsim rank --help)\n"},
           Misuse{"nlsim rank s.yaml t.yaml", "error: nlsim rank takes no 't.yaml' (nlsim rank --help)\n"},
           Misuse{"nlsim rank", "error: nlsim rank: SCENARIO is required (nlsim rank --help)\n"},
           Misuse{"nlbench serve s.yaml --port 99999",
                  "error: nlbench serve: --port: Value 99999 not in range 0 to 65535 (nlbench serve --help)\n"},
           Misuse{"nlbench run missing.yaml", "error: cannot read 'missing.yaml': No such file or directory\n"},
           Misuse{"nlbench train missing.yaml", "error: cannot read 'missing.yaml': No such file or directory\n"},
           Misuse{"nlsim schedule 1f1b --micro-batches 100000000", "error: --micro-batches 100000000: at most 65536\n"},
           Misuse{"nlsim schedule 1f1b --devices 10000", "error: --devices 10000: at most 8192\n"},
           Misuse{"nlsim schedule 1f1b --devices 8192 --micro-batches 65536",
                  "error: 8192 stages of 65536 micro-batches: a schedule has at most 134217728 slots\n"},
       }) {
    const Outcome outcome = run_command(fmt::format("{}/{}", NLS_BIN_DIR, misuse.command));
    EXPECT_EQ(outcome.code, 2) << misuse.command;
    EXPECT_EQ(outcome.out, "") << misuse.command;
    EXPECT_EQ(outcome.err, misuse.expected);
  }
}

TEST(Usage, ShowingAScenarioSaysWhatToDo) {
  const Scratch scratch;
  scratch.write("s.yaml", small_scenario());
  const Outcome outcome = nlsim("show " + scratch / "s.yaml");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("s.yaml is a scenario, and `nlsim show` prints a network"), std::string::npos);
}

}  // namespace
}  // namespace nlsplit
