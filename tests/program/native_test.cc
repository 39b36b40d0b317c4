// Collectives that the transport's own ones run: what they are waited for, and what they must keep to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "program/complaint.h"
#include "program/text.h"
#include "program/verify.h"
#include "testing/native_program.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

const std::string native_text = testing::native_all_reduce;

// The first one, or all.
std::string with_words(std::string text, const std::string& what, const std::string& by, bool all = false) {
  size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  for (; at != std::string::npos; at = all ? text.find(what, at + by.size()) : std::string::npos)
    text.replace(at, what.size(), by);
  return text;
}

void expect_refused(const std::string& text, const std::string& why) {
  EXPECT_THAT(testing::complaint(text), HasSubstr(why));
}

TEST(NativeCollectives, SurviveTheText) {
  const Program program = value_of(parse_program(native_text, "test.nls"));
  ASSERT_TRUE(verify(program).ok()) << verify(program).error().message;
  const std::string text = to_string(program);
  EXPECT_THAT(text, HasSubstr("collective all-reduce tree of A, B elements 12 native y[0:12] {"));
  const Program again = value_of(parse_program(text, "again.nls"));
  EXPECT_TRUE(again == program);
  EXPECT_EQ(to_string(again), text);
  EXPECT_NE(to_string(value_of(parse_program(with_words(native_text, " native y[0:12]", "", true), "test.nls"))), text);
}

// Who runs it waits for the whole of it; who times it, for its instructions.
TEST(NativeCollectives, AreOneStepToWhoRunsThem) {
  const Program program = value_of(parse_program(native_text, "test.nls"));
  EXPECT_TRUE(value_of(dependencies(program)).native.empty());
  const Dependencies run = dependencies_of(program, 0);
  // A's first slot: relu, recv, reduce, send, copy.
  ASSERT_EQ(run.native.size(), 10u);
  EXPECT_EQ(run.native[0], no_instance);
  for (const uint32_t part : {1u, 2u, 3u}) EXPECT_EQ(run.native[part], 1u);
  EXPECT_EQ(run.native[4], no_instance);
  ASSERT_EQ(run.into(1).size(), 1u);
  EXPECT_EQ(run.into(1)[0].from, 0u) << "the collective waits for its value";
  EXPECT_TRUE(run.into(2).empty());
  EXPECT_TRUE(run.into(3).empty());
  bool waits = false;
  for (const Edge& edge : run.into(4)) waits = waits || edge.from == 1;
  EXPECT_TRUE(waits) << "the copy waits for the collective";
  bool in_order = false;
  for (const Edge& edge : run.into(6)) in_order = in_order || (edge.from == 1 && edge.kind == EdgeKind::stream);
  EXPECT_TRUE(in_order) << "the second one of the group begins behind the first one";
}

TEST(NativeCollectives, AreRefusedIfTheirBytesDoNotFit) {
  const std::string text = native_text;
  expect_refused(with_words(text, "native y[0:12]", "native y[0:11]"), "whose value has 11 elements instead of 12");
  expect_refused(with_words(text, "native y[0:12]", "native y[0:12] to r[0:12]"),
                 "a native all-reduce has its result where its value is");
  expect_refused(with_words(text, "all-reduce tree of A, B elements 12 native y[0:12]",
                            "all-to-all direct of A, B elements 6, 6 native y[0:12]", true),
                 "a reduce in all-to-all");
  // B's value is taken when the send could go: what is written behind it would be lost.
  expect_refused(with_words(text, "send y to A tag 1\n    ",
                            "send y to A tag 1\n    }\n    y[0:1] = copy(y[1:2])\n    collective 0 {\n"),
                 "a copy amid a native all-reduce uses its value");
}

TEST(NativeCollectives, AreRefusedIfTheirMembersDiffer) {
  expect_refused(with_words(native_text, " native y[0:12]", ""), "do other collectives of their group");
}

TEST(NativeCollectives, AreRefusedIfTheirBytesAreSharedWithOthers) {
  // What B computes behind it lies where y did: y is no longer needed then, but a transport may still have it.
  std::string text = to_string(value_of(parse_program(native_text, "test.nls")));
  text.erase(text.find(" fingerprint"), std::string(" fingerprint 0123456789abcdef").size());
  const size_t b = text.find("\ndevice B"), y = text.find("buffer y ", b), at = text.find(" at ", y);
  const std::string place = text.substr(at, text.find('\n', at) - at);
  text.insert(text.find("  segment", b), "  buffer t f32[12] scratch" + place + "\n");
  text = with_words(text, "    y_B = copy(y)\n", "    y_B = copy(y)\n    t = copy(x_B)\n");
  EXPECT_EQ(testing::complaint(with_words(text, " native y[0:12]", "", true)), "");
  expect_refused(text, "a native all-reduce of buffer y, whose bytes others use");
}

// B gives its old value away before it takes the new one, and waits for C with that, which waits for A. To A a message
// that is sent costs no wait; a collective is over when B has joined it.
TEST(NativeCollectives, ThatWaitForEachOtherAreADeadlock) {
  const auto device = [](const std::string& name, const std::string& segment) {
    return "device " + name + " cpu host " + name +
           " isa v2 memory 4096\n  buffer a f32[4] state\n  buffer b f32[4] comm\n  buffer r f32[4] comm\n"
           "  segment step stage 0 phase step\n" +
           segment + "  order\n    step.-\n";
  };
  const std::string of_both = "    collective broadcast direct of A, B elements 4 native a[0:4] {\n";
  const std::string text =
      "nlsplit program 1\nprogram circle batch 1 micro_batches 1\n" +
      device("A", of_both + "      send a to B tag 1\n    }\n    send a to C tag 2\n") +
      device("B", "    recv r from C tag 3\n    b = reduce(a, r)\n" + of_both + "      recv a from A tag 1\n    }\n") +
      device("C", "    recv r from A tag 2\n    send r to B tag 3\n");
  expect_refused(text, "deadlock");
  const auto written_out = parse_program(with_words(text, " native a[0:4]", "", true), "test.nls");
  ASSERT_TRUE(written_out.ok()) << written_out.error().to_string();
  EXPECT_TRUE(verify(*written_out).ok()) << verify(*written_out).error().message;
}

TEST(NativeCollectives, AreNotForOnlinePolicies) {
  const Program program = value_of(parse_program(native_text, "test.nls"));
  const auto free = free_dependencies(program);
  ASSERT_FALSE(free.ok());
  EXPECT_THAT(free.error().message, HasSubstr("the transport's own collectives"));
}

}  // namespace
}  // namespace nlsplit
