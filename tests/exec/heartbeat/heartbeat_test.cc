// One rank's state machine, event by event: the corners that simulated runs of many ranks hardly meet.
#include "exec/heartbeat/heartbeat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "exec/heartbeat/neighbours.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

Moment moment(double s) { return Moment() + of_seconds(100 + s); }

Heartbeat one_of(int rank, int ranks, std::string doing = "computes") {
  std::vector<std::string> names;
  for (int r = 0; r < ranks; ++r) names.push_back("rank " + std::to_string(r));
  return {rank, std::move(names), 10, {[] { return 0.0; }, [doing](int) { return doing; }}};
}

// A rank of three that has met the other two.
Heartbeat met(int rank) {
  Heartbeat heartbeat = one_of(rank, 3);
  heartbeat.tick(moment(0));
  for (int r = 0; r < 3; ++r) {
    if (r != rank) heartbeat.joined(r, moment(0));
  }
  heartbeat.started(moment(0));
  (void)heartbeat.take_lines();
  return heartbeat;
}

std::vector<std::string> lines_of(Heartbeat& heartbeat) {
  std::vector<std::string> lines;
  for (const PeerLine& line : heartbeat.take_lines()) lines.push_back(std::to_string(line.peer) + ": " + line.line);
  return lines;
}

TEST(Heartbeat, AnEndIsHeardOnceAndPassedOn) {
  Heartbeat heartbeat = met(1);
  heartbeat.received(0, "end 4 rank 2 is gone", moment(1));
  ASSERT_TRUE(heartbeat.ending().has_value());
  EXPECT_EQ(heartbeat.ending()->error.kind, ErrorKind::lost);
  EXPECT_EQ(heartbeat.ending()->error.message, "rank 2 is gone");
  EXPECT_FALSE(heartbeat.ending()->speaks);
  EXPECT_THAT(lines_of(heartbeat), ::testing::ElementsAre("0: end 4 rank 2 is gone", "2: end 4 rank 2 is gone"));
  heartbeat.received(2, "end 3 another reason", moment(1));
  EXPECT_EQ(heartbeat.ending()->error.message, "rank 2 is gone") << "the first reason counts";
  EXPECT_FALSE(heartbeat.end(failed("too late")));
  heartbeat.leave();
  heartbeat.started(moment(2));
  heartbeat.give_up("too late", moment(2));
  heartbeat.received(2, "lost 0 too late", moment(2));
  heartbeat.joined(2, moment(2));
  EXPECT_THAT(lines_of(heartbeat), ::testing::IsEmpty()) << "who has ended says nothing more";
  EXPECT_EQ(heartbeat.next(), Moment::max());
}

TEST(Heartbeat, OddLinesAreHarmless) {
  for (const char* line : {"", "nonsense", "end", "end 99 ", "end -1 ", "end x "}) {
    Heartbeat heartbeat = met(1);
    heartbeat.received(0, line, moment(1));
    EXPECT_EQ(heartbeat.ending().has_value(), std::string_view(line).starts_with("end")) << line;
    if (!heartbeat.ending()) continue;
    EXPECT_EQ(heartbeat.ending()->error.kind, ErrorKind::failed) << line;
    EXPECT_EQ(heartbeat.ending()->error.message, "ended by another rank") << line;
  }
  Heartbeat heartbeat = met(1);
  for (const char* line : {"beat", "beat -5 ", "beat 1x idle", "beat 1e999 idle"})
    heartbeat.received(0, line, moment(1));
  EXPECT_EQ(heartbeat.idle_s(), 0);
  heartbeat.received(0, "lost -3 nobody", moment(1));
  heartbeat.tick(moment(9));
  EXPECT_FALSE(heartbeat.ending().has_value()) << "no rank has that number";
}

TEST(Heartbeat, ALossWithoutAReasonHasOne) {
  Heartbeat heartbeat = met(0);
  heartbeat.received(1, "lost 1 ", moment(1));
  heartbeat.tick(moment(1));
  ASSERT_TRUE(heartbeat.ending().has_value());
  EXPECT_EQ(heartbeat.ending()->error.message, "lost a rank");
  EXPECT_TRUE(heartbeat.ending()->speaks) << "rank 0 says it";
}

TEST(Heartbeat, WhoJoinsLateIsToldWhatHasHappened) {
  Heartbeat heartbeat = one_of(1, 3);
  heartbeat.tick(moment(0));
  heartbeat.joined(0, moment(0));
  heartbeat.started(moment(0));
  heartbeat.give_up("lost rank 2\n  it never came", moment(0));
  heartbeat.give_up("something else", moment(0));
  (void)heartbeat.take_lines();
  heartbeat.joined(2, moment(0.1));
  EXPECT_THAT(lines_of(heartbeat), ::testing::ElementsAre("2: started", "2: lost 0 lost rank 2\x1f  it never came"));
}

TEST(Heartbeat, TextsOfOthersHaveAnEnd) {
  Heartbeat heartbeat = met(0);
  EXPECT_TRUE(heartbeat.end(failed(std::string(100'000, 'x'))));
  for (const PeerLine& line : heartbeat.take_lines()) EXPECT_LT(line.line.size(), 5000u);
  EXPECT_FALSE(heartbeat.end(failed("again")));
}

TEST(Heartbeat, ABrokenConnectionCountsOnceAndFromItsFirstBreak) {
  Heartbeat heartbeat = met(0);
  heartbeat.broke(2, moment(1));
  heartbeat.broke(2, moment(1.09));  // seen from both directions
  heartbeat.tick(moment(1.05));
  EXPECT_FALSE(heartbeat.ending().has_value()) << "it may have told somebody why";
  heartbeat.tick(moment(1.1));
  ASSERT_TRUE(heartbeat.ending().has_value());
  EXPECT_THAT(heartbeat.ending()->error.message, HasSubstr("lost rank 2 (its connection broke"));
  EXPECT_THAT(heartbeat.ending()->error.message, HasSubstr("rank 0 computed"));
}

TEST(Heartbeat, WhatOthersDo) {
  Heartbeat heartbeat = met(1);
  EXPECT_EQ(heartbeat.others(), "\n  rank 0 has not been heard of\n  rank 2 has not been heard of");
  EXPECT_TRUE(heartbeat.lower_rank_starts());
  heartbeat.received(0, "started", moment(0.1));
  heartbeat.received(0, "beat 0.5 waits in slot 3", moment(0.1));
  heartbeat.received(2, "bye", moment(0.1));
  EXPECT_FALSE(heartbeat.lower_rank_starts());
  EXPECT_EQ(heartbeat.others(), "\n  rank 0 waits in slot 3\n  rank 2 has ended its run");
  EXPECT_FALSE(heartbeat.all_left());
  heartbeat.broke(0, moment(0.2));
  EXPECT_TRUE(heartbeat.all_left()) << "one has said so, the other is gone";
  heartbeat.leave();
  EXPECT_THAT(lines_of(heartbeat), ::testing::ElementsAre("0: bye"));
  heartbeat.leave();
  EXPECT_THAT(lines_of(heartbeat), ::testing::IsEmpty());
  EXPECT_FALSE(heartbeat.end(failed("too late")));
}

// The lower ones have left, broken off, or are silent: only a silent one may still speak first.
TEST(Heartbeat, TheLowestThatIsHeardSpeaks) {
  Heartbeat alone = met(2);
  alone.received(0, "bye", moment(0.1));
  alone.broke(1, moment(1));
  alone.tick(moment(1.1));
  EXPECT_FALSE(alone.ending().has_value());
  alone.tick(moment(1.3));
  ASSERT_TRUE(alone.ending().has_value());
  EXPECT_TRUE(alone.ending()->speaks);
  Heartbeat with_lower = met(2);
  with_lower.broke(1, moment(1));
  with_lower.tick(moment(1.1));
  with_lower.tick(moment(1.3));
  EXPECT_FALSE(with_lower.ending().has_value()) << "rank 0 is heard, and says it";
  with_lower.tick(moment(2.5));
  ASSERT_TRUE(with_lower.ending().has_value()) << "it did not";
}

// ---- many ranks

// So many that have met their neighbours, each idle for so long.
class BeatingRanks {
 public:
  explicit BeatingRanks(std::vector<double> idle_s) : idle_s_(std::move(idle_s)) {
    const auto ranks = static_cast<int>(idle_s_.size());
    const std::vector<std::string> names(idle_s_.size());
    for (int r = 0; r < ranks; ++r)
      ranks_.emplace_back(
          r, names, 10,
          OwnActivity{[this, r] { return idle_s_[static_cast<size_t>(r)]; }, [](int) { return std::string("waits"); }});
    for (int r = 0; r < ranks; ++r) {
      for (const int other : neighbours(r, ranks)) at(r).joined(other, moment(0));
      at(r).started(moment(0));
    }
  }
  // Every rank beats once, and hears what the others say then.
  void beat(int second) {
    for (Heartbeat& rank : ranks_) rank.tick(moment(second));
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (const PeerLine& line : ranks_[r].take_lines())
        at(line.peer).received(static_cast<int>(r), line.line, moment(second));
    }
  }
  Heartbeat& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  double& idle_s(int rank) { return idle_s_[static_cast<size_t>(rank)]; }
  double longest_idle_s() const {
    double longest = 0;
    for (const Heartbeat& rank : ranks_) longest = std::max(longest, rank.idle_s());
    return longest;
  }
  double shortest_idle_s() const {
    double shortest = ranks_[0].idle_s();
    for (const Heartbeat& rank : ranks_) shortest = std::min(shortest, rank.idle_s());
    return shortest;
  }

 private:
  std::vector<double> idle_s_;
  std::deque<Heartbeat> ranks_;
};

TEST(ManyHeartbeats, HowLongAllHaveBeenIdleIsKnownEverywhereAfterAFewBeats) {
  for (const int ranks : {3, 18, 64, 100}) {
    SCOPED_TRACE(ranks);
    BeatingRanks all(std::vector<double>(static_cast<size_t>(ranks), 20.0));
    EXPECT_EQ(all.longest_idle_s(), 0) << "nobody knows yet";
    int second = 1;
    for (int hop = 0; hop < hops_between(ranks); ++hop) all.beat(second++);
    EXPECT_EQ(all.shortest_idle_s(), 20);
    const int busy = ranks / 2;
    all.idle_s(busy) = 0.5;
    for (int hop = 0; hop < hops_between(ranks); ++hop) all.beat(second++);
    EXPECT_EQ(all.longest_idle_s(), 0.5);
    all.idle_s(busy) = 30;
    for (int hop = 0; hop < hops_between(ranks); ++hop) all.beat(second++);
    EXPECT_EQ(all.shortest_idle_s(), 20) << "what was heard once is no more true";
  }
}

TEST(ManyHeartbeats, OfOthersTheNeighboursAreListed) {
  BeatingRanks all(std::vector<double>(64, 0.0));
  const std::string text = all.at(0).others();
  EXPECT_EQ(std::ranges::count(text, '\n'), std::ssize(neighbours(0, 64)));
}

}  // namespace
}  // namespace nlsplit
