// How one rank meets the others, event by event: who is let in, who is not, and what is given up.
#include "exec/heartbeat/start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

Moment start_at(double s) { return Moment() + of_seconds(1000 + s); }

// Three ranks on hosts of their own, with tokens "t0", "t1" and "t2".
Start start_of(int rank, std::vector<std::string> addresses = {"10.0.0.9"}) {
  std::vector<Greeting> greetings;
  for (int r = 0; r < 3; ++r) {
    greetings.push_back(
        {{}, std::string(1, static_cast<char>('a' + r)), static_cast<uint16_t>(7000 + r), "t" + std::to_string(r), {}});
    greetings.back().addresses = addresses;
  }
  return {rank, std::move(greetings), {}, start_at(0)};
}

// "send 0 hello t1", in this order.
std::vector<std::string> actions_of(Start& start) {
  std::vector<std::string> words;
  for (const Action& action : start.take_actions()) {
    const char* const kinds[] = {"connect", "send", "close"};
    words.push_back(std::string(kinds[static_cast<size_t>(action.kind)]) + " " + std::to_string(action.connection) +
                    (action.text.empty() ? "" : " " + action.text));
  }
  return words;
}

TEST(Start, VisitorsSayHelloAndMet) {
  Start start = start_of(0);
  EXPECT_EQ(start.accepted(start_at(1)), 0);
  EXPECT_EQ(start.accepted(start_at(1)), 1);
  start.received(0, "hello t0 2", start_at(1));
  EXPECT_THAT(actions_of(start), ::testing::ElementsAre("send 0 hello t2"));
  EXPECT_THAT(start.take_met(), ::testing::IsEmpty()) << "it has not shown that it is rank 2";
  start.received(0, "met", start_at(1));
  ASSERT_EQ(start.take_met().size(), 1u);
  EXPECT_EQ(start.missing(), "rank 1 on host b");
  start.received(1, "hello t0 1", start_at(1));
  start.received(1, "met", start_at(1));
  EXPECT_TRUE(start.done());
  EXPECT_EQ(start.next(), Moment::max());
  EXPECT_EQ(start.gave_up(start_at(1000)), std::nullopt);
  (void)actions_of(start);
  EXPECT_EQ(start.accepted(start_at(2)), 2);
  EXPECT_THAT(actions_of(start), ::testing::ElementsAre("close 2")) << "all are there";
}

TEST(Start, StrangersAreDismissed) {
  for (const char* line : {"", "hello", "hello t1 2", "hello t0", "hello t0 ", "hello t0 x", "hello t0 2x",
                           "hello t0 0", "hello t0 -1", "hello t0 3", "hello t0 99999999999", "met"}) {
    Start start = start_of(0);
    const int visitor = start.accepted(start_at(1));
    start.received(visitor, line, start_at(1));
    EXPECT_THAT(actions_of(start), ::testing::ElementsAre("close 0")) << line;
    start.received(visitor, "hello t0 2", start_at(1));  // nobody's any more
    EXPECT_THAT(actions_of(start), ::testing::IsEmpty()) << line;
    EXPECT_EQ(start.missing(), "rank 1 on host b, rank 2 on host c");
  }
}

TEST(Start, AHelloIsFollowedByMetAndNothingElse) {
  Start start = start_of(0);
  start.received(start.accepted(start_at(1)), "hello t0 2", start_at(1));
  start.received(0, "hello t0 2", start_at(1));
  EXPECT_THAT(actions_of(start), ::testing::ElementsAre("send 0 hello t2", "close 0"));
  // Two connections of one rank: the first that says met counts.
  for (int connection = 0; connection < 2; ++connection)
    start.received(start.accepted(start_at(2)), "hello t0 2", start_at(2));
  start.received(2, "met", start_at(2));
  start.received(1, "met", start_at(2));
  EXPECT_EQ(start.take_met().size(), 1u);
  EXPECT_THAT(actions_of(start), ::testing::Contains("close 1"));
  start.received(start.accepted(start_at(3)), "hello t0 2", start_at(3));
  EXPECT_THAT(actions_of(start), ::testing::ElementsAre("close 3")) << "it is there already";
}

TEST(Start, SilentVisitorsHaveAnEndAndTheOldestMakesRoom) {
  Start start = start_of(0);
  for (size_t v = 0; v <= most_visitors; ++v) EXPECT_EQ(start.accepted(start_at(1)), static_cast<int>(v));
  EXPECT_THAT(actions_of(start), ::testing::ElementsAre("close 0"));
  start.received(1, "hello t0 1", start_at(2));
  start.closed(2, start_at(2));
  start.tick(start_at(100));
  EXPECT_EQ(actions_of(start).size(), 1 + most_visitors - 2) << "all but the one that said hello and the one that went";
}

TEST(Start, CallsGoRoundTheAddresses) {
  Start start = start_of(1, {"127.0.0.1", "10.0.0.1", "10.0.0.2"});
  start.tick(start_at(0));
  EXPECT_THAT(actions_of(start), ::testing::ElementsAre("connect 0 10.0.0.1")) << "loopback is no way to another host";
  start.closed(0, start_at(0.1));  // refused
  start.tick(start_at(0.1));
  EXPECT_THAT(actions_of(start), ::testing::ElementsAre("connect 1 10.0.0.2"));
  start.connected(1, start_at(0.2));
  EXPECT_THAT(actions_of(start), ::testing::ElementsAre("send 1 hello t0 1"));
  start.received(1, "hello t9", start_at(0.3));
  EXPECT_THAT(actions_of(start), ::testing::ElementsAre("close 1")) << "somebody else has that address and port";
  start.received(1, "hello t1", start_at(0.3));
  start.connected(1, start_at(0.3));
  start.closed(1, start_at(0.3));
  EXPECT_THAT(actions_of(start), ::testing::IsEmpty()) << "closed is closed";
  start.tick(start_at(1));
  EXPECT_THAT(actions_of(start), ::testing::ElementsAre("connect 2 10.0.0.1"));
  start.tick(start_at(60));  // it did not answer
  EXPECT_THAT(actions_of(start), ::testing::ElementsAre("close 2", "connect 3 10.0.0.2"));
  start.connected(3, start_at(60));
  start.received(3, "hello t1", start_at(60));
  EXPECT_THAT(actions_of(start), ::testing::ElementsAre("send 3 hello t0 1", "send 3 met"));
  ASSERT_EQ(start.take_met().size(), 1u);
  EXPECT_EQ(start.missing(), "rank 2 on host c");
}

TEST(Start, ARankWithoutAnAddressIsNotCalledAndGivenUp) {
  Start start = start_of(2, {"127.0.0.1"});
  start.tick(start_at(0));
  EXPECT_THAT(actions_of(start), ::testing::IsEmpty());
  EXPECT_EQ(start.next(), start_at(60));
  EXPECT_EQ(start.gave_up(start_at(59)), std::nullopt);
  const auto why = start.gave_up(start_at(60));
  ASSERT_TRUE(why.has_value());
  EXPECT_THAT(*why,
              HasSubstr("rank 2 on host c waited 60 s in the start: it cannot reach rank 0 on host a over TCP at"));
}

TEST(Start, WhoRefusesForLongHasEnded) {
  Start start = start_of(1);
  double now = 0;
  int connection = 0;
  while (now < 4 && !start.gave_up(start_at(now))) {
    start.tick(start_at(now));
    for (const Action& action : start.take_actions()) connection = action.connection;
    start.closed(connection, start_at(now));
    now += 0.5;
  }
  EXPECT_EQ(now, 4);
  const auto why = start.gave_up(start_at(6));
  ASSERT_TRUE(why.has_value());
  EXPECT_THAT(*why, HasSubstr("refused by rank 0 on host a over TCP at 10.0.0.9 port 7000"));
  EXPECT_THAT(*why, HasSubstr("no connection came from rank 2 on host c"));
}

}  // namespace
}  // namespace nlsplit
