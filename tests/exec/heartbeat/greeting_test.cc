#include "exec/heartbeat/greeting.h"

#include <gmock/gmock.h>
#include <math.h>

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

TEST(Greeting, SurvivesItsTextAndTellsVersionsApart) {
  const Greeting a{
      {{"program", "nlbench 1.0"}, {"libm", "libm.so.6 01ab"}}, "alpha", 1234, "0badcafe", {"127.0.0.1", "10.0.0.1"}};
  const auto parsed = parse_greeting(to_string(a), 0);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, a);
  Greeting b = a;
  b.host = "beta";
  EXPECT_TRUE(check_greetings({a, b}).ok());
  b.facts[0].value = "nlbench 1.1";
  const Status status = check_greetings({a, b});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(exit_code(status.error()), 2);
  EXPECT_EQ(status.error().message,
            "ranks differ in their program: rank 1 on host beta has nlbench 1.1, rank 0 on host alpha has nlbench 1.0: "
            "all ranks must agree");
  const auto other = parse_greeting("nlsplit-ranks 0\nwhat came before", 4);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(exit_code(other.error()), 2);
}

TEST(Greeting, BreaksOffAnywhereWithoutHarm) {
  const std::string whole = to_string({facts_of_process(), "h", 1, "t", {"127.0.0.1"}});
  for (size_t size = 0; size < whole.size(); ++size) (void)parse_greeting(whole.substr(0, size), 1).ok();
}

TEST(Greeting, ManyAddressesFindNoRoom) {
  Greeting a{facts_of_process(), "h", 1, "t", {}};
  a.addresses.assign(200, "192.168.100.100");
  EXPECT_LE(to_string(a).size(), greeting_size);
  EXPECT_EQ(parse_greeting(to_string(a), 0)->facts, a.facts) << "the facts are never left out";
}

// Two architectures cannot share a build: each has facts of its own.
TEST(Facts, AreComparedWhereBothStateThem) {
  EXPECT_TRUE(check_facts({{"rank 0", {{"build for x86-64", "1"}}}, {"rank 1", {{"build for aarch64", "2"}}}}).ok());
  const Status differ = check_facts({{"rank 0", {{"build for x86-64", "1"}}},
                                     {"rank 1", {{"build for aarch64", "2"}}},
                                     {"rank 2", {{"build for aarch64", "3"}}}});
  ASSERT_FALSE(differ.ok());
  EXPECT_THAT(differ.error().message, HasSubstr("rank 2 has 3, rank 1 has 2"));
}

TEST(Facts, OfThisProcess) {
  const std::vector<Fact> facts = facts_of_process();
  EXPECT_EQ(facts, facts_from(to_text(facts)));
  EXPECT_EQ(facts, facts_of_process());
  const std::string text = to_text(facts);
  for (const char* what : {"build for ", "C library on ", "libm on ", ": libm.so.6 ", "floating-point mode on "})
    EXPECT_THAT(text, HasSubstr(what));
}

#if defined(__x86_64__)
TEST(Facts, TheFloatingPointModeIsThatOfRoundingNotOfWhatHasHappened) {
  const Fact before = floating_point_mode();
  volatile double one = 1, three = 3;
  volatile double inexact = one / three;
  (void)inexact;
  EXPECT_EQ(floating_point_mode(), before);
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);  // subnormal numbers are zero
  const Fact flushing = floating_point_mode();
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() & ~0x8040u);
  EXPECT_NE(flushing, before);
  EXPECT_EQ(flushing.value, "MXCSR 0x9fc0");
}
#endif

}  // namespace
}  // namespace nlsplit
