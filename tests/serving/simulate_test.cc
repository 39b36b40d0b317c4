// Traces of requests, what is said of them, and a server in simulated time whose figures can be worked out by hand.
#include "serving/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

TEST(Trace, IsAPoissonProcessAndComesBackFromItsText) {
  const RequestTrace trace =
      poisson_trace({.rate = 2, .requests = 5000, .prompt = {10, 20}, .tokens = {3, 3}, .seed = 9});
  ASSERT_EQ(trace.requests.size(), 5000u);
  EXPECT_NEAR(trace.requests.back().at_s, 2500, 120);  // its deviation is 35
  int64_t longer = 0, least = 100, most = 0;
  for (size_t r = 1; r < trace.requests.size(); ++r) {
    longer += trace.requests[r].at_s - trace.requests[r - 1].at_s > 0.5 ? 1 : 0;
    least = std::min(least, trace.requests[r].prompt);
    most = std::max(most, trace.requests[r].prompt);
  }
  EXPECT_NEAR(static_cast<double>(longer) / 5000, 0.3679, 0.03);  // e^-1 of exponential gaps are above their mean
  EXPECT_EQ(least, 10);
  EXPECT_EQ(most, 20);
  EXPECT_EQ(value_of(parse_trace(trace_text(trace), "t.json")), trace);
  EXPECT_EQ(trace, poisson_trace({.rate = 2, .requests = 5000, .prompt = {10, 20}, .tokens = {3, 3}, .seed = 9}));
  EXPECT_NE(prompt_of(trace, 0, 100), prompt_of(trace, 1, 100));
  EXPECT_EQ(std::ssize(prompt_of(trace, 7, 100)), trace.requests[7].prompt);
}

TEST(Trace, KnowsWhatPromptsShare) {
  const RequestTrace trace = poisson_trace(
      {.rate = 2, .requests = 40, .prompt = {3, 9}, .tokens = {1, 2}, .seed = 4, .prefix = 50, .texts = 2});
  EXPECT_EQ(value_of(parse_trace(trace_text(trace), "t.json")), trace);
  int64_t pairs = 0;
  for (size_t a = 0; a < 40; ++a) {
    EXPECT_GE(trace.requests[a].prompt, 53);
    EXPECT_LE(trace.requests[a].prompt, 59);
    for (size_t b = 0; b < a; ++b) {
      const auto one = prompt_of(trace, a, 1 << 20), other = prompt_of(trace, b, 1 << 20);
      EXPECT_EQ(std::ranges::mismatch(one, other).in1 - one.begin(),
                common_prefix(trace.requests[a], trace.requests[b]));
      pairs += trace.requests[a].text == trace.requests[b].text ? 1 : 0;
    }
  }
  EXPECT_GT(pairs, 200);  // of 780
  EXPECT_LT(pairs, 580);
  // A turn that says all that was said before, and more.
  EXPECT_EQ(common_prefix({.prompt = 60, .prefix = 60, .text = 7}, {.prompt = 90, .prefix = 80, .text = 7}), 60);
}

TEST(Trace, SaysWhatIsWrong) {
  const auto wrong = [](const std::string& requests) {
    const auto parsed = parse_trace(
        R"({"format": "nlsplit-requests", "version": 1, "seed": 0, "requests": [)" + requests + "]}", "t.json");
    return parsed.ok() ? "fine" : parsed.error().to_string();
  };
  EXPECT_EQ(wrong(""), "fine");
  EXPECT_THAT(wrong(R"({"at_s": 2, "prompt": 1, "tokens": 1}, {"at_s": 1, "prompt": 1, "tokens": 1})"),
              HasSubstr("t.json: /requests/1/at_s: it comes before the previous request"));
  EXPECT_THAT(wrong(R"({"at_s": 1e300, "prompt": 1, "tokens": 1})"), HasSubstr("/requests/0/at_s: 1e+300 is beyond"));
  EXPECT_THAT(wrong(R"({"at_s": 2, "prompt": 0, "tokens": 1})"), HasSubstr("/requests/0: 0 is not a length"));
  EXPECT_THAT(wrong(R"({"at_s": 2, "prompt": 1})"), HasSubstr("/requests/0/tokens"));
  const auto sharing = [&](const std::string& prefix) {
    return wrong(R"({"at_s": 2, "prompt": 5, "tokens": 1, )" + prefix + "}");
  };
  EXPECT_EQ(sharing(R"("prefix": 5, "text": 9000000000)"), "fine");
  EXPECT_THAT(sharing(R"("prefix": -3)"), HasSubstr("t.json: /requests/0/prefix: -3 is not from 1 to the prompt's 5"));
  EXPECT_THAT(sharing(R"("prefix": 6)"), HasSubstr("/requests/0/prefix: 6 is not from 1"));
  EXPECT_THAT(sharing(R"("prefix": 1e30)"), HasSubstr("/requests/0/prefix"));
  EXPECT_THAT(sharing(R"("prefix": 99999999999999999999)"), HasSubstr("/requests/0/prefix"));
  EXPECT_THAT(sharing(R"("prefix": 5, "text": -1)"), HasSubstr("/requests/0/text: -1 is below 0"));
  EXPECT_THAT(sharing(R"("text": 1)"), HasSubstr("/requests/0/text: a text, and no `prefix`"));
  EXPECT_THAT(parse_trace("{}", "t.json").error().to_string(), HasSubstr("t.json: /format"));
  for (const char* rate : {"2", "2/day", "-1/s", "x/s", "inf/s"}) EXPECT_FALSE(parse_rate(rate).ok()) << rate;
  EXPECT_EQ(value_of(parse_rate("30/min")), 0.5);
  for (const char* length : {"0", "3..2", "a", "1..", "..3", "1...3"})
    EXPECT_FALSE(parse_lengths(length).ok()) << length;
  EXPECT_EQ(value_of(parse_lengths("8..9")).most, 9);
}

TEST(Served, PercentilesAreOfTheNearestRank) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Percentiles of = percentiles(values);
  EXPECT_EQ(of.p50, 50);
  EXPECT_EQ(of.p95, 95);
  EXPECT_EQ(of.p99, 99);
  EXPECT_EQ(of.mean, 50.5);
  EXPECT_EQ(percentiles({3}).p50, 3);
  EXPECT_EQ(percentiles({}).count, 0);
}

// Prefill takes 1 s, decode 0.1 s, at any length; chunks of 4, two slots.
TEST(SimulatedServer, TakesTheTimeOfItsExecutions) {
  const BatchForm form{.slots = 2, .chunk = 4, .context = 32};
  const ServerTimes times{.prefill = {1, 0}, .decode = {0.1, 0}};
  const auto served = [&](std::vector<ArrivingRequest> requests, int64_t waiting) {
    return simulate_serving({0, std::move(requests)}, form, waiting, times, PrefixReuse::on);
  };
  const auto alone = served({{5, 8, 3}}, 0);
  EXPECT_DOUBLE_EQ(alone[0].first_s, 7);
  EXPECT_DOUBLE_EQ(alone[0].last_s, 7.2);
  EXPECT_EQ(alone[0].outcome, Outcome::answered);
  // The second comes while the first one's prompt is taken, and has a prefill of its own; the first one's tokens go on
  // beside it.
  const auto two = served({{0, 4, 3}, {0.5, 4, 1}}, 0);
  EXPECT_DOUBLE_EQ(two[0].first_s, 1);
  EXPECT_DOUBLE_EQ(two[1].first_s, 2);
  EXPECT_DOUBLE_EQ(two[0].last_s, 2.1);
  // A third one waits for a slot; without a place to wait it is turned away.
  EXPECT_EQ(served({{0, 4, 3}, {0, 4, 1}, {0.5, 4, 1}}, 0)[2].outcome, Outcome::turned_away);
  const auto three = served({{0, 4, 3}, {0, 4, 1}, {0.5, 4, 1}}, 1);
  EXPECT_DOUBLE_EQ(three[2].first_s, 2);
  const std::vector<ServedRequest> too_long = served({{0, 30, 4}, {1, 31, 4}}, 1);
  EXPECT_EQ(too_long[0].outcome, Outcome::failed);
  EXPECT_THAT(summary_of(too_long).failures,
              testing::ElementsAre(testing::Pair("prompt and answer do not fit the context of 32 positions", 2)));
}

// The second turn computes what is new, in the slot of the first one; a third of another text takes the other slot.
TEST(SimulatedServer, ReusesWhatTheTraceSaysIsShared) {
  const BatchForm form{.slots = 2, .chunk = 4, .context = 64};
  const ServerTimes times{.prefill = {1, 0}, .decode = {0.1, 0}};
  const RequestTrace trace{0,
                           {{.at_s = 0, .prompt = 16, .tokens = 1, .prefix = 16, .text = 3},
                            {.at_s = 10, .prompt = 16, .tokens = 1, .prefix = 16, .text = 4},
                            {.at_s = 20, .prompt = 24, .tokens = 1, .prefix = 24, .text = 3},
                            {.at_s = 30, .prompt = 16, .tokens = 2, .prefix = 16, .text = 4}}};
  const auto served = simulate_serving(trace, form, 0, times, PrefixReuse::on);
  const std::vector<int64_t> cached = {0, 0, 16, 15};
  const std::vector<double> took = {4, 4, 2, 0.1};  // the last one: its last token alone, which is a decode
  for (size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(served[r].cached, cached[r]) << r;
    EXPECT_NEAR(served[r].first_s - served[r].at_s, took[r], 1e-9) << r;
  }
  const ServingSummary summary = summary_of(served);
  EXPECT_EQ(summary.cached_tokens, 31);
  EXPECT_EQ(summary.prompt_tokens, 72);
  const auto anew = simulate_serving(trace, form, 0, times, PrefixReuse::off);
  EXPECT_DOUBLE_EQ(anew[2].first_s, 26);
  EXPECT_EQ(summary_of(anew).cached_tokens, 0);
}

// The second comes beside the first one, takes over what that has seen by then, and ends with it.
TEST(SimulatedServer, CopiesWhatABusySlotKeeps) {
  const BatchForm form{.slots = 2, .chunk = 4, .context = 64};
  const ServerTimes times{.prefill = {1, 0}, .decode = {0.1, 0}, .copied_position_s = 0.01};
  const RequestTrace trace{0,
                           {{.at_s = 0, .prompt = 16, .tokens = 1, .prefix = 16, .text = 3},
                            {.at_s = 2.5, .prompt = 16, .tokens = 1, .prefix = 14, .text = 3}}};
  const auto served = simulate_serving(trace, form, 0, times, PrefixReuse::on);
  EXPECT_EQ(served[1].cached, 12);
  EXPECT_DOUBLE_EQ(served[0].first_s, 4.12);
  EXPECT_DOUBLE_EQ(served[1].first_s, 4.12);
  EXPECT_DOUBLE_EQ(simulate_serving(trace, form, 0, times, PrefixReuse::off)[1].first_s, 7);
}

// Positions that are seen cost their time: of all slots, in the mean.
TEST(SimulatedServer, IsSlowerWithLongerTexts) {
  const ServerTimes times{.prefill = {0, 0}, .decode = {0, 0.5}};
  const auto served =
      simulate_serving({0, {{0, 1, 3}}}, {.slots = 2, .chunk = 1, .context = 8}, 0, times, PrefixReuse::on);
  EXPECT_DOUBLE_EQ(served[0].first_s, 0.25);
  EXPECT_DOUBLE_EQ(served[0].last_s, 0.25 + 0.5 + 0.75);
}

TEST(SimulatedServer, AnHourTakesSeconds) {
  const RequestTrace trace =
      poisson_trace({.rate = 2, .requests = 7200, .prompt = {32, 128}, .tokens = {64, 64}, .seed = 1});
  const auto begin = std::chrono::steady_clock::now();
  const auto summary =
      summary_of(simulate_serving(trace, {.slots = 4, .chunk = 16, .context = 512}, 8,
                                  {.prefill = {0.02, 1e-6}, .decode = {0.004, 1e-6}}, PrefixReuse::on));
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 10);
  EXPECT_EQ(summary.answered + summary.turned_away, 7200);
  EXPECT_GT(summary.answered, 5000);
  EXPECT_GT(summary.first_token.p95, summary.first_token.p50);
}

}  // namespace
}  // namespace nlsplit
