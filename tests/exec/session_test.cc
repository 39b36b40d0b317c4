// Sessions, run by threads. nlbench_test.cc runs one over MPI.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "exec/programs.h"
#include "exec/run_session.h"
#include "testing/counter_session.h"

namespace nlsplit::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::vector<float> values_of(const SessionResult& result, const std::string& name) {
  for (const OutputTensor& output : result.outputs) {
    if (output.tensor.name == name) return output.tensor.values;
  }
  ADD_FAILURE() << "no result " << name;
  return {};
}

void expect_counter(const SessionResult& result, int pushes) {
  const CounterModel model = CounterModel::after(pushes);
  EXPECT_THAT(values_of(result, "count"), ElementsAreArray({model.count}));
  EXPECT_THAT(values_of(result, "ring"), ElementsAreArray(model.ring));
  EXPECT_THAT(values_of(result, "total"), ElementsAreArray(model.total));
  EXPECT_THAT(values_of(result, "seen"), ElementsAreArray(model.total));
  EXPECT_THAT(values_of(result, "read/shown"), ElementsAreArray(model.ring));
  EXPECT_THAT(values_of(result, "read/values"), ElementsAreArray(model.ring));
}

TEST(SessionRun, AThousandTimesAtOnce) {
  const std::vector<Choice> choices = {{counter_init, 1}, {counter_push, 1000}, {counter_read, 1}};
  const SessionResult result =
      value_of(run_session_threads(counter_session(), {}, choose_from(choices), test_options()));
  EXPECT_EQ(result.chosen, choices);
  EXPECT_EQ(result.seconds.size(), choices.size());
  EXPECT_GE(result.elapsed_s, result.seconds[1]);
  expect_counter(result, 1000);
}

// What is chosen depends on what was computed: rank 0 reads its counter.
TEST(SessionRun, AThousandTimesAsTheCounterSays) {
  int reads = 0;
  const ChooseNext choose = [&](const SessionState& at) -> Choice {
    if (at.executions == 0) return {counter_init, 1};
    float told = 0;
    const auto bytes = at.bytes("count", 0);
    if (bytes.size() != sizeof told) return {counter_push, 0};
    std::memcpy(&told, bytes.data(), sizeof told);
    const int count = static_cast<int>(told);
    if (reads < count / 50) {
      ++reads;
      return {counter_read, 1};
    }
    return {counter_push, count < 1000 ? std::min(1 + count % 3, 50 - count % 50) : 0};
  };
  const SessionResult result = value_of(run_session_threads(counter_session(), {}, choose, test_options()));
  EXPECT_EQ(reads, 20);
  EXPECT_GT(result.chosen.size(), 400u);
  expect_counter(result, 1000);
}

TEST(SessionRun, KeepsNoChoicesWhereNobodyWantsThem) {
  const std::vector<Choice> choices = {{counter_init, 1}, {counter_push, 1000}, {counter_read, 1}};
  RunOptions options = test_options();
  options.keep_choices = false;
  const SessionResult result = value_of(run_session_threads(counter_session(), {}, choose_from(choices), options));
  EXPECT_TRUE(result.chosen.empty() && result.seconds.empty());
  expect_counter(result, 1000);
}

// Who chooses waits for a request: no hang, for as long as it says that it is there, and one once it does not.
TEST(SessionRun, MayWaitForSomethingOutside) {
  RunOptions options = test_options();
  options.watchdog_s = 0.2;
  options.deadlines.prepare_s = 0.4;
  std::string stuck;
  options.on_stuck = [&stuck](const Error& why) { stuck = why.message; };
  const auto waiting_for = [&](std::chrono::milliseconds time, bool says_so) {
    return [time, says_so, asked = 0](const SessionState& at) mutable -> Choice {
      if (++asked == 1) return {counter_init, 1};
      if (asked == 3) return {counter_read, 1};
      if (asked == 4) return {counter_push, 0};
      const auto until = std::chrono::steady_clock::now() + time;
      while (std::chrono::steady_clock::now() < until) {
        if (says_so) at.still_here();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      return {counter_push, 3};
    };
  };
  using std::chrono::milliseconds;
  expect_counter(value_of(run_session_threads(counter_session(), {}, waiting_for(milliseconds(1000), true), options)),
                 3);
  const auto hung = run_session_threads(counter_session(), {}, waiting_for(milliseconds(1000), false), options);
  ASSERT_FALSE(hung.ok());
  EXPECT_THAT(hung.error().message, HasSubstr("come to no end"));
}

TEST(SessionRun, EndsAtOnce) {
  const SessionResult result = value_of(run_session_threads(counter_session(), {}, choose_from({}), test_options()));
  EXPECT_TRUE(result.chosen.empty());
}

TEST(SessionRun, Refusals) {
  const auto refusal = [](const Session& session, const Choice& choice) {
    const std::vector<Choice> choices = {choice};
    const auto result = run_session_threads(session, {}, choose_from(choices), test_options());
    return result.ok() ? "" : result.error().to_string();
  };
  EXPECT_THAT(refusal(counter_session(), {7, 1}), HasSubstr("session counter has no program number 7"));
  EXPECT_THAT(refusal({}, {0, 1}), HasSubstr("a session without programs"));
  Session broken = counter_session();
  broken.programs[1].devices[0].segments[0].instrs[2].tag = 5;
  EXPECT_THAT(refusal(broken, {0, 1}), HasSubstr("program push: "));
}

}  // namespace
}  // namespace nlsplit::testing
