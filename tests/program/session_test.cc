#include "program/session.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "program/complaint.h"
#include "program/verify_parts.h"
#include "testing/counter_session.h"

namespace nlsplit::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// The message of parsing or verifying; empty: accepted.
std::string session_complaint(const std::string& text) {
  const auto session = parse_session(text, "test.session");
  if (!session.ok()) return session.error().to_string();
  const Status status = verify_session(*session);
  return status.ok() ? "" : status.error().to_string();
}

TEST(Session, PrintsAndReadsBack) {
  const Session session = counter_session();
  ASSERT_THAT(session.programs, SizeIs(3));
  const std::string text = to_string(session);
  const Session again = value_of(parse_session(text, "again"));
  EXPECT_EQ(again, session);
  EXPECT_EQ(to_string(again), text);
  EXPECT_EQ(session_complaint(text), "");
}

TEST(Session, TextRefusals) {
  const std::string text = counter_text();
  const auto refusal = [&](const std::string& from, const std::string& to) {
    return session_complaint(replaced(text, from, to));
  };
  EXPECT_THAT(session_complaint("nlsplit program 1\n"), HasSubstr("first line must be `nlsplit session 1`"));
  EXPECT_THAT(refusal("nlsplit session 1", "nlsplit session 2"), HasSubstr("format version 2; this build reads"));
  EXPECT_THAT(refusal("session counter\n", ""), HasSubstr("the line `session …` is missing"));
  EXPECT_THAT(refusal("session counter\n", "session counter\nbuffer\n"), HasSubstr("a program begins with"));
  EXPECT_THAT(session_complaint("nlsplit session 1\nsession s\n"), HasSubstr("a session without programs"));
  EXPECT_THAT(refusal("nlsplit session 1", "nlsplit session 1 fingerprint 17"), HasSubstr("fingerprint does not fit"));
  // The place is that in the whole text.
  const std::string wrong = "gone = Mul(ring, plaice)";
  const std::string broken = replaced(text, "gone = Mul(ring, place)", wrong);
  const auto line = 1 + std::count(broken.begin(), broken.begin() + static_cast<long>(broken.find(wrong)), '\n');
  EXPECT_THAT(session_complaint(broken), AllOf(HasSubstr("test.session:" + std::to_string(line) + ":"),
                                               HasSubstr("unknown buffer plaice; did you mean place?")));
}

TEST(Session, RefusesProgramsThatDoNotFitTogether) {
  const std::string text = counter_text();
  const auto refusal = [&](const std::string& from, const std::string& to) {
    return session_complaint(replaced(text, from, to));
  };
  EXPECT_THAT(refusal("program read batch", "program push batch"),
              HasSubstr("two programs of session counter are called push"));
  EXPECT_THAT(refusal("program read batch 1 micro_batches 1", "program read batch 1 micro_batches 1 nic_window 2"),
              HasSubstr("programs init and read of a session have another eager_limit or nic_window"));
  const size_t last = text.rfind("\ndevice C");
  EXPECT_THAT(session_complaint(text.substr(0, last) + replaced(text.substr(last), "host c", "host d")),
              HasSubstr("programs init and read of a session describe device C differently"));
  EXPECT_THAT(session_complaint(text + "\ndevice D cpu host d isa v2 memory 1024\n  order\n"),
              HasSubstr("programs init and read of a session have other devices"));
  // The same state elsewhere.
  EXPECT_THAT(
      refusal("buffer ring f32[8] state at 128\n  buffer value", "buffer ring f32[8] state at 512\n  buffer value"),
      HasSubstr("device B: state ring of program read is not as in program push"));
  // What lasts is overwritten by another Program: B's `place` by a scratch buffer of init.
  EXPECT_THAT(refusal("buffer one f32[1] scratch at 256", "buffer one f32[1] scratch at 128"),
              AllOf(HasSubstr("device B: buffer"), HasSubstr("overlaps buffer"), HasSubstr("is needed all the time")));
  EXPECT_THAT(
      refusal(
          "buffer zero f32[1] state at 0\n  buffer one f32[1] state at 64",
          "buffer zero f32[1] state at 0\n  buffer push/told f32[1] state at 4096\n  buffer one f32[1] state at 64"),
      HasSubstr("device A: two buffers are called push/told"));
  EXPECT_THAT(refusal("send value to B tag 0", "send value to B tag 9"), HasSubstr("program push: "));
  EXPECT_THAT(session_complaint("nlsplit session 1\nsession s\n" + text.substr(text.find("\nnlsplit program")) +
                                "\nnlsplit program 1\nprogram big batch 1 micro_batches 1\n"
                                "device A cpu host a isa v2 memory 1048576\n  buffer x f32[300000] scratch\n  order\n"
                                "device B cpu host b isa v2 memory 1048576\n  order\n"
                                "device C cpu host c isa v2 memory 1048576\n  order\n"),
              HasSubstr("device A has"));
}

TEST(Session, ChoicesAreRead) {
  const Session session = counter_session();
  EXPECT_EQ(value_of(parse_choices(session, " init push*1000  read ")),
            (std::vector<Choice>{{counter_init, 1}, {counter_push, 1000}, {counter_read, 1}}));
  const auto refusal = [&](const std::string& text) { return parse_choices(session, text).error().to_string(); };
  EXPECT_THAT(refusal("init pus"), HasSubstr("session counter has no program pus; there are init, push, read"));
  for (const char* number : {"0", "-1", "x", "", "99999999999", "3x"})
    EXPECT_THAT(refusal(std::string("push*") + number), HasSubstr("is not a number of executions")) << number;
  EXPECT_EQ(in_sequence(session, std::vector<Choice>{{3, 1}}, Choosing::known).error().message,
            "session counter has no program number 3");
  EXPECT_THAT(in_sequence(session, std::vector<Choice>{{1, 1 << 30}}, Choosing::known).error().message,
              HasSubstr("too many instructions"));
}

// A ring of three messages and a feedback a push: nothing is overwritten while another execution needs it, whatever
// follows what. Shared buffers keep their places, all others may share bytes.
TEST(Session, ExecutionsOverlapSafelyInAnyOrder) {
  const Session session = counter_session();
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<Choice> choices;
    for (int i = 0; i < 12; ++i)
      choices.push_back({static_cast<int>(random() % 3), 1 + static_cast<int>(random() % 3)});
    for (const Choosing choosing : {Choosing::known, Choosing::messages}) {
      const Sequence sequence = value_of(in_sequence(session, choices, choosing));
      const std::vector<uint32_t> order = value_of(dry_run(sequence.program, sequence.dependencies));
      OverlapChecker overlaps(sequence.program, sequence.dependencies, order);
      for (size_t d = 0; d < sequence.program.devices.size(); ++d) {
        const Status apart = overlaps.check(d);
        EXPECT_TRUE(apart.ok()) << apart.error().to_string();
      }
    }
  }
}

// The dependencies of buffers alone would not do: `sum` of push is overwritten by `shown` of read while it is sent.
TEST(Session, BytesTieExecutionsTogether) {
  const Session session = counter_session();
  const std::vector<Choice> choices = {{counter_push, 1}, {counter_read, 1}};
  const Sequence sequence = value_of(in_sequence(session, choices, Choosing::known));
  const Dependencies loose = value_of(dependencies(sequence.program));
  const std::vector<uint32_t> order = value_of(dry_run(sequence.program, loose));
  OverlapChecker overlaps(sequence.program, loose, order);
  const Status apart = overlaps.check(2);
  ASSERT_FALSE(apart.ok());
  EXPECT_THAT(apart.error().message, AllOf(HasSubstr("read/shown"), HasSubstr("push/sum")));
}

TEST(Session, ExecutionsAreNumbered) {
  const Session session = counter_session();
  const std::vector<Choice> choices = {{counter_init, 1}, {counter_push, 2}};
  const Sequence sequence = value_of(in_sequence(session, choices, Choosing::messages));
  EXPECT_EQ(sequence.execution_of,
            (std::vector<std::vector<int>>{{-1, 0, -1, 1, 2}, {-1, 0, -1, 1, 2}, {-1, -1, 1, 2}}));
  EXPECT_EQ(sequence.program.devices[0].segments[1].name, "push/S");
}

// A micro-batch's next execution begins with new inputs: B's answer to the one before is there, and the other
// micro-batch's need not be.
TEST(Session, InputsAreRefilledBetweenExecutions) {
  const Session session = value_of(parse_session(R"(nlsplit session 1
session echo

nlsplit program 1
program turn batch 2 micro_batches 2

device A cpu host a isa v2 memory 1048576
  buffer x f32[4] input instances 2 at 0
  buffer y f32[4] output instances 2 at 128
  segment F stage 0 phase F
    send x to B tag 0
  segment G stage 1 phase F
    recv y from B tag 1
  order
    F.0 x:0
    F.1 x:1
    G.0 y:0
    G.1 y:1

device B cpu host b isa v2 memory 1048576
  buffer z f32[4] comm instances 2 at 0
  segment F stage 0 phase F
    recv z from A tag 0
    send z to A tag 1
  order
    F.0 z:0
    F.1 z:1
)",
                                                 "echo"));
  for (const Refill refill : {Refill::none, Refill::read, Refill::answered}) {
    const std::vector<Choice> choices = {{0, 3, refill}, {0, 1}};
    const Sequence sequence = value_of(in_sequence(session, choices, Choosing::messages));
    ASSERT_EQ(sequence.refillings.size(), refill == Refill::none ? 0 : 4);
    const std::vector<uint32_t> order = value_of(dry_run(sequence.program, sequence.dependencies));
    std::vector<size_t> place(order.size());
    for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
    for (const Refilling& one : sequence.refillings) {
      EXPECT_GT(one.execution, 0);
      EXPECT_EQ(one.before.size(), 1);
      ASSERT_EQ(one.after.size(), refill == Refill::answered ? 2 : 1);
      for (const uint32_t from : one.after) {
        const Slot& slot =
            sequence.program.devices[0].order[static_cast<size_t>(sequence.dependencies.instances[from].slot)];
        EXPECT_EQ(slot.micro_batch, one.micro_batch);
        for (const uint32_t to : one.before) EXPECT_LT(place[from], place[to]);
      }
    }
  }
}

}  // namespace
}  // namespace nlsplit::testing
