#include "report/failure.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace nlsplit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

std::string record_of(int rank, int ranks, const std::string& rest, const std::string& run = "77") {
  return fmt::format("nlsplit flight 1\nrun {}\nrank {} of {}\ndevice {}\nhost h{}\nwhy lost rank 2\n{}end\n", run,
                     rank, ranks, static_cast<char>('A' + rank), rank, rest);
}

FlightRecord parsed(const std::string& text) {
  const auto record = parse_flight_record(text, "rank.flight");
  EXPECT_TRUE(record.ok()) << record.error().to_string();
  return record.ok() ? *record : FlightRecord();
}

std::string error_of(const std::string& text) {
  const auto record = parse_flight_record(text, "rank.flight");
  if (record.ok()) return "no error";
  EXPECT_EQ(exit_code(record.error()), 2);
  return record.error().to_string();
}

const std::string executing = "phase waits 0 5000000000 the start of repeat 3\nrepeat 3\n";

std::string waiting_for(int peer, int completed) {
  return executing + fmt::format(
                         "state waits 3200000000 slot 1 (F.1) `y = Relu(x)`\n"
                         "fifo recv {} -1 {} open 4000000000 needed slot 1 (F.1) `recv x tag 0`\n"
                         "event 3300000000 ends slot 0 (F.0) `y = Relu(x)`\n"
                         "event 4000000000 posts slot 1 (F.1) `recv x tag 0`\n",
                         peer, completed);
}

TEST(Failure, TheChainToAComputationThatGoesOn) {
  const std::string computing =
      executing + "state computes 41000000000 slot 2 (F.2) `z = Conv(x)`\nfifo send 1 -1 4 closed\n";
  const std::string between = waiting_for(2, 4) + "fifo send 0 -1 7 closed\n";
  const Failure failure = explain_failure({parsed(record_of(0, 3, waiting_for(1, 7))), parsed(record_of(1, 3, between)),
                                           parsed(record_of(2, 3, computing))});
  ASSERT_EQ(failure.causes.size(), 1u);
  EXPECT_EQ(failure.causes[0].chain, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(failure.causes[0].waiting, 2);
  const std::string text = failure_text(failure, 1);
  EXPECT_THAT(text,
              AllOf(HasSubstr("ended   lost rank 2\n"),
                    HasSubstr("rank 0 (A on host h0) waits for rank 1 since 3.20 s in slot 1 (F.1) `recv x tag 0`, "
                              "to run slot 1 (F.1) `y = Relu(x)` of repeat 3\n"),
                    HasSubstr("3.30 s ago  ends       slot 0 (F.0)"), Not(HasSubstr("posts")),
                    HasSubstr("cause   rank 2 (C on host h2) computes slot 2 (F.2) `z = Conv(x)` of repeat 3 since "
                              "41 s (rank 0 waits for rank 1 waits for rank 2); 2 ranks wait for it")));
  const auto json = nlohmann::json::parse(failure_json(failure));
  EXPECT_EQ(json["causes"][0]["kind"], "computes");
  EXPECT_EQ(json["causes"][0]["rank"], 2);
  EXPECT_EQ(json["ranks"][0]["waits_for"], 1);
  EXPECT_EQ(json["ranks"][0]["moments"].size(), 2u);
}

TEST(Failure, ARankWithoutARecord) {
  const Failure failure =
      explain_failure({parsed(record_of(0, 3, "phase waits 2 900000000 the planning\nrepeat 0\nstate outside\n")),
                       parsed(record_of(1, 3, "phase works -1 100000000 the preparations\nrepeat 0\n"))});
  EXPECT_EQ(failure.causes[0].kind, Failure::Kind::no_record);
  EXPECT_THAT(failure_text(failure, 5),
              AllOf(HasSubstr("rank 0 (A on host h0) waits for rank 2 since 0.90 s in the planning\n"),
                    HasSubstr("rank 2 left no record\n"), HasSubstr("cause   rank 2 left no record: it was killed"),
                    HasSubstr("also    rank 1 (B on host h1) works on the preparations since 0.10 s")));
}

TEST(Failure, ACircle) {
  const Failure failure =
      explain_failure({parsed(record_of(0, 3, waiting_for(1, 0))), parsed(record_of(1, 3, waiting_for(2, 0))),
                       parsed(record_of(2, 3, waiting_for(1, 0)))});
  ASSERT_EQ(failure.causes.size(), 1u);
  EXPECT_EQ(failure.causes[0].kind, Failure::Kind::circle);
  EXPECT_EQ(failure.causes[0].chain, (std::vector<int>{1, 2}));
  EXPECT_THAT(failure.causes[0].text, HasSubstr("a cycle: rank 1 waits for rank 2 waits for rank 1"));
}

// The sender has sent it, the receiver has not got it: not the sender's fault.
TEST(Failure, AMessageThatDoesNotArrive) {
  for (const auto& [sender, said] :
       {std::pair<std::string, std::string>{"fifo send 0 -1 8 closed\n", "rank 1 has sent it"},
        {"fifo send 0 -1 7 open 3000000000 ahead slot 1 (F.1) `send x`\n", "rank 1 has begun it, too, 3.00 s ago"}}) {
    const std::string waits = executing + "state waits 1 any slot\n" + sender;
    const Failure failure =
        explain_failure({parsed(record_of(0, 2, waiting_for(1, 7))), parsed(record_of(1, 2, waits))});
    EXPECT_EQ(failure.ranks[0].kind, Failure::Kind::message);
    EXPECT_THAT(failure.ranks[0].doing, AllOf(HasSubstr(said), HasSubstr("under way or lost")));
    EXPECT_THAT(failure_text(failure, 0), HasSubstr("a message between rank 0 and rank 1"));
  }
}

TEST(Failure, HostileRecords) {
  EXPECT_THAT(error_of(""), HasSubstr("is empty"));
  EXPECT_THAT(error_of("PK\3\4"), HasSubstr("rank.flight:1: not a flight record"));
  const std::string head = "nlsplit flight 1\n";
  EXPECT_THAT(error_of(head + "rank 5 of 5\n"), HasSubstr("rank.flight:2: expected a number of ranks"));
  EXPECT_THAT(error_of(head + "rank -1 of 5\n"), HasSubstr("expected a rank, from 0 to 4095"));
  EXPECT_THAT(error_of(head + "rank 99999999999999999999 of 5\n"), HasSubstr("expected a rank"));
  EXPECT_THAT(error_of(head + "rank 0 of 2\nfifo recv 2 -1 0 closed\n"), HasSubstr("rank.flight:3: expected a rank"));
  EXPECT_THAT(error_of(head + "fifo both 0 -1 0 closed\n"), HasSubstr("expected send, recv or with"));
  EXPECT_THAT(error_of(head + "state sleeps 1\n"), HasSubstr("a device is outside"));
  EXPECT_THAT(error_of(head + "event now begins\n"), HasSubstr("expected nanoseconds"));
  EXPECT_THAT(error_of(head + "phase waits 7 1 x\n"), HasSubstr("expected a rank"));
  EXPECT_THAT(error_of(head + std::string(100000, 'x') + "\n"), HasSubstr("no line of a flight record"));
}

// Written while the process died: what is there counts, and the text says so.
TEST(Failure, ARecordThatIsCutOff) {
  const std::string whole = record_of(0, 2, waiting_for(1, 0));
  for (size_t size = 17; size < whole.size(); ++size) {
    const auto record = parse_flight_record(whole.substr(0, size), "rank.flight");
    ASSERT_TRUE(record.ok()) << size << ": " << record.error().to_string();
    EXPECT_FALSE(record->whole) << size;
    EXPECT_THAT(failure_text(explain_failure({*record}), 5), HasSubstr("its record is cut off"));
  }
}

class FailureFolder : public ::testing::Test {
 protected:
  FailureFolder() {
    std::string name = "/tmp/nlsplit-failure-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  ~FailureFolder() override { fs::remove_all(dir_); }
  void put(const std::string& name, const std::string& text) const { std::ofstream(dir_ + "/" + name) << text; }
  std::string error() const {
    const auto records = read_flight_records(dir_);
    if (records.ok()) return "no error";
    EXPECT_EQ(exit_code(records.error()), 2);
    return records.error().to_string();
  }
  std::string dir_;
};

TEST_F(FailureFolder, TheLastRunCounts) {
  put("rank-0.flight", record_of(0, 2, ""));
  put("rank-1.flight", record_of(1, 2, ""));
  put("rank-2.flight", record_of(2, 3, "", "76"));
  put("notes.txt", "mine");
  fs::last_write_time(dir_ + "/rank-2.flight", fs::file_time_type::clock::now() - std::chrono::hours(1));
  const auto records = read_flight_records(dir_);
  ASSERT_TRUE(records.ok()) << records.error().to_string();
  ASSERT_EQ(records->size(), 2u);
  EXPECT_EQ((*records)[1].rank, 1);
}

TEST_F(FailureFolder, WhatIsNoFolderOfRecords) {
  EXPECT_THAT(error(), HasSubstr("holds no flight record"));
  put("rank-0.flight", record_of(0, 2, ""));
  put("rank-00.flight", record_of(0, 2, ""));
  EXPECT_THAT(error(), HasSubstr("are both of rank 0"));
  put("rank-00.flight", record_of(1, 3, ""));
  EXPECT_THAT(error(), HasSubstr("says that there are"));
  fs::remove(dir_ + "/rank-00.flight");
  fs::create_directory(dir_ + "/rank-1.flight");
  EXPECT_THAT(error(), HasSubstr("is not a file"));
  fs::remove(dir_ + "/rank-1.flight");
  put("rank-1.flight", "");
  fs::resize_file(dir_ + "/rank-1.flight", uintmax_t{1} << 40);
  EXPECT_THAT(error(), HasSubstr("no flight record"));
  const auto missing = read_flight_records(dir_ + "/missing");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("cannot read "));
}

}  // namespace
}  // namespace nlsplit
