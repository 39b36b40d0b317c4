#include "validate/routes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace nlsplit {
namespace {

TEST(Ways, SendTimesAreOfTheFirstDevice) {
  const std::string trace =
      R"({"traceEvents": [{"ph": "M"}, {"ph": "X", "pid": 0, "cat": "send", "ts": 5, "dur": 2000},)"
      R"({"ph": "X", "pid": 1, "cat": "send", "ts": 5, "dur": 9}, {"ph": "X", "pid": 0, "cat": "recv", "ts": 5, "dur": 8}]})";
  const auto times = send_times(trace, "t.json");
  ASSERT_TRUE(times.ok()) << times.error().to_string();
  ASSERT_EQ(times->size(), 1u);
  EXPECT_DOUBLE_EQ(times->front(), 0.002);
  EXPECT_FALSE(send_times(R"({"traceEvents": []})", "t.json").ok());
  EXPECT_FALSE(send_times("[", "t.json").ok());
}

TEST(LateReceiver, MessagesLeaveInTheFirstHalfOrNot) {
  const auto trace = [](int sent) {
    return fmt::format(
        R"({{"traceEvents": [{{"ph": "M"}}, {{"ph": "X", "pid": 0, "cat": "compute", "ts": 100, "dur": 5}},)"
        R"({{"ph": "X", "pid": 0, "cat": "send", "ts": 105, "dur": {}}},)"
        R"({{"ph": "X", "pid": 0, "cat": "send", "ts": 100, "dur": 1}},)"
        R"({{"ph": "X", "pid": 1, "cat": "compute", "ts": 150, "dur": 950}}]}})",
        sent);
  };
  EXPECT_TRUE(left_early(trace(490), "t.json").value());
  EXPECT_FALSE(left_early(trace(500), "t.json").value());
  EXPECT_FALSE(left_early(R"({"traceEvents": []})", "t.json").ok());
  EXPECT_FALSE(left_early("[", "t.json").ok());
}

// What ping waits without what pong computes, half of it a message; pong's clock may be any.
TEST(Ways, SamplesGoFromComputationToComputation) {
  const auto event = [](int device, int slot, const char* what, int at, int lasts) {
    return fmt::format(R"({{"ph": "X", "pid": {}, "cat": "{}", "ts": {}, "dur": {}, "args": {{"micro_batch": {}}}}})",
                       device, what, at, lasts, slot);
  };
  const std::string trace =
      fmt::format(R"({{"traceEvents": [{{"ph": "M"}}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}]}})",
                  event(0, 0, "send", 100, 50), event(1, 0, "copy", 9160, 5), event(1, 0, "compute", 9165, 35),
                  event(0, 0, "recv", 130, 70), event(0, 0, "copy", 340, 20), event(0, 0, "compute", 360, 40),
                  event(0, 1, "send", 405, 10), event(1, 1, "compute", 9400, 10), event(0, 1, "recv", 410, 80),
                  event(0, 1, "compute", 510, 7), event(0, 1, "copy", 520, 5));
  const PingPongTest test{"g1", "a", "b", {256, 1024}};
  const auto samples = nlsplit::samples_of(test, trace, "t.json");
  ASSERT_TRUE(samples.ok()) << samples.error().to_string();
  ASSERT_EQ(samples->size(), 2u);
  EXPECT_EQ(samples->at(0).bytes, 256);
  EXPECT_DOUBLE_EQ(samples->at(0).seconds, 100e-6) << "(340 - 100 - 40) / 2";
  EXPECT_DOUBLE_EQ(samples->at(1).seconds, 50e-6) << "(510 - 400 - 10) / 2";
  EXPECT_FALSE(nlsplit::samples_of({"g1", "a", "b", {256, 1024, 4096}}, trace, "t.json").ok());
  EXPECT_FALSE(nlsplit::samples_of({"g1", "a", "b", {256}}, trace, "t.json").ok()) << "a slot too many";
  EXPECT_FALSE(nlsplit::samples_of(test, "[", "t.json").ok());
}

TEST(Ways, WhenASenderIsDone) {
  const auto send = [](int device, int64_t size, int lasts) {
    return fmt::format(R"({{"ph": "X", "pid": {}, "cat": "send", "dur": {}, "args": {{"bytes": {}}}}})", device, lasts,
                       size);
  };
  const std::string trace = fmt::format(
      R"({{"traceEvents": [{{"ph": "M"}}, {{"ph": "X", "pid": 0, "cat": "recv", "dur": 9}}, {}, {}, {}, {}, {}]}})",
      send(0, 1000, 5), send(0, 1004, 100), send(0, 5000, 280), send(1, 5000, 282), send(1, 9000, 900));
  const auto sends = sends_of(trace, "t.json");
  ASSERT_TRUE(sends.ok()) << sends.error().to_string();
  EXPECT_EQ(sends->size(), 5u);
  RouteFit fit;
  fit.eager.latency = seconds(20e-6);
  fit.rendezvous = {seconds(121e-6), bytes_per_second(1e7)};
  const std::vector<RouteSample> samples = {{1000, 3e-5}, {1004, 3e-4}, {5000, 7e-4}, {9000, 1020e-6}, {9000, 1022e-6}};
  const SenderFit sender = fit_sender(samples, *sends, fit, bytes(1000));
  EXPECT_NEAR(sender.handover, 20e-9, 1e-15)
      << "1000 of 5000 bytes take 100 us, the others 281 - 101 - 100; 9000 wait for the link";
  EXPECT_NEAR(sender.held, 101e-6, 1e-12) << "9000 bytes move for 1021 - 121 us, and their sender waits for 900 - 101";
  const SenderFit none = fit_sender(samples, {{1000, 5e-6}, {1004, 1e-4}}, fit, bytes(1000));
  EXPECT_EQ(none.held, 0);
  EXPECT_EQ(none.handover, 0);
  EXPECT_FALSE(sends_of("[", "t.json").ok());
}

std::vector<RouteSample> samples_of(const std::vector<int64_t>& sizes, double (*time)(int64_t)) {
  std::vector<RouteSample> samples;
  for (const int64_t size : sizes) {
    for (const double disturbed : {1.0, 0.9, 1.1}) samples.push_back({size, time(size) * disturbed});
  }
  return samples;
}

TEST(Ways, ALineOnEachSide) {
  const auto time = [](int64_t s) {
    return s <= 1000 ? 1e-4 + static_cast<double>(s) / 1e8 : 3e-4 + static_cast<double>(s) / 2e8;
  };
  const auto fit = fit_route(samples_of({100, 500, 1000, 2000, 50000, 1000000}, time), bytes(1000));
  ASSERT_TRUE(fit.ok()) << fit.error().to_string();
  EXPECT_NEAR(fit->eager.latency.value(), 1e-4, 1e-12);
  EXPECT_NEAR(fit->eager.bandwidth.value(), 1e8, 1);
  EXPECT_NEAR(fit->rendezvous.latency.value(), 3e-4, 1e-12);
  EXPECT_NEAR(fit->rendezvous.bandwidth.value(), 2e8, 1);
  EXPECT_NEAR(fit->largest_error, 0, 1e-9);
}

// One of ten messages takes 50 us longer: five more a message. A hiccup at one size does not count.
TEST(Ways, LatenciesAreMeansOfManyMessages) {
  for (const double hiccup : {50e-6, 1.0}) {
    std::vector<RouteSample> samples;
    for (const int64_t size : {1000, 2000, 5000, 10000}) {
      const double time = 1e-4 + static_cast<double>(size) * 1e-8;
      for (int i = 0; i < 9; ++i) samples.push_back({size, time});
      samples.push_back({size, time + (size == 1000 ? hiccup : 50e-6)});
    }
    const auto fit = fit_route(samples, bytes(1 << 20));
    ASSERT_TRUE(fit.ok()) << fit.error().to_string();
    EXPECT_NEAR(fit->eager.latency.value(), 1e-4 + 5e-6, 1e-12);
    EXPECT_NEAR(fit->eager.bandwidth.value(), 1e8, 1);
  }
}

TEST(Ways, OneLineIfAllMessagesStartAtOnce) {
  const auto time = [](int64_t s) { return 1e-4 + static_cast<double>(s) / 1e8; };
  const auto fit = fit_route(samples_of({100, 500, 1000, 2000}, time), bytes(1 << 20));
  ASSERT_TRUE(fit.ok()) << fit.error().to_string();
  EXPECT_EQ(fit->eager, fit->rendezvous);
  EXPECT_NEAR(fit->rendezvous.latency.value(), 1e-4, 1e-12);
}

TEST(Ways, TheErrorOfALineIsSaid) {
  const auto time = [](int64_t s) { return (s == 4000 ? 2 : 1) * static_cast<double>(s) * 1e-6; };
  const auto fit = fit_route(samples_of({2000, 4000, 8000, 16000}, time), bytes(0));
  ASSERT_TRUE(fit.ok());
  EXPECT_GT(fit->largest_error, 0.2);
}

TEST(Ways, SmallMessagesThatDifferByNoiseAreCheap) {
  const auto time = [](int64_t s) {
    return s <= 1000 ? 2e-4 - static_cast<double>(s) * 1e-9 : 3e-4 + static_cast<double>(s) * 1e-8;
  };
  const auto fit = fit_route(samples_of({256, 512, 1000, 2000, 8000}, time), bytes(1000));
  ASSERT_TRUE(fit.ok()) << fit.error().to_string();
  EXPECT_EQ(fit->eager.bandwidth, fit->rendezvous.bandwidth);
  EXPECT_NEAR(fit->eager.latency.value(), 2e-4, 2e-5);
}

TEST(Ways, NonsenseIsRefused) {
  const auto falls = [](int64_t s) { return 1 / static_cast<double>(s); };
  EXPECT_FALSE(fit_route(samples_of({2000, 4000, 8000}, falls), bytes(0)).ok());
  EXPECT_FALSE(fit_route(samples_of({2000}, falls), bytes(0)).ok());
  EXPECT_FALSE(fit_route({}, bytes(0)).ok());
}

// Two slots of two halves each; the sender's first half and the receiver's second one have the message.
TEST(Ways, WhatMessagesTakeIsTheDifferenceOfTheHalves) {
  std::string events;
  const auto add = [&](int device, int slot, double ts, double dur, const char* op) {
    events += fmt::format(R"({}{{"ph": "X", "pid": {}, "cat": "compute", "ts": {}, "dur": {}, )"
                          R"("args": {{"instruction": "y = {}(x) kernel unary_v3", "micro_batch": {}}}}})",
                          events.empty() ? "" : ", ", device, ts, dur, op, slot);
  };
  for (const int slot : {0, 1}) {
    const double begin = slot * 1000;
    add(0, slot, begin + 100, 10, "Erf");
    add(0, slot, begin, 14, "Erf");  // in no order
    add(0, slot, begin + 200, 500, "Neg");
    add(1, slot, begin, 20, "Erf");
    add(1, slot, begin + 100, 23, "Erf");
  }
  const auto times = busy_times("{\"traceEvents\": [" + events + "]}", "t.json");
  ASSERT_TRUE(times.ok()) << times.error().to_string();
  ASSERT_EQ(times->taken[0].size(), 1u) << "not the first slot";
  ASSERT_EQ(times->taken[1].size(), 1u) << "not the last slot";
  EXPECT_NEAR(times->taken[0][0], 4e-6, 1e-15);
  EXPECT_NEAR(times->taken[1][0], 3e-6, 1e-15);
  EXPECT_NEAR(times->computation_s, 12e-6, 1e-15) << "of the faster one";
  EXPECT_FALSE(busy_times(R"({"traceEvents": []})", "t.json").ok());
  EXPECT_FALSE(busy_times("[", "t.json").ok());
}

}  // namespace
}  // namespace nlsplit
