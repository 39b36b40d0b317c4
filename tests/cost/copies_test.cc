#include "cost/copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace nlsplit {
namespace {

std::map<int64_t, double> on_a_line(double latency, double bandwidth) {
  std::map<int64_t, double> seconds_of;
  for (int64_t size = 4096; size <= 64 << 20; size *= 4)
    seconds_of[size] = latency + static_cast<double>(size) / bandwidth;
  return seconds_of;
}

TEST(Copies, OnALineAreThatLine) {
  const CopyLine line = fit_copies(on_a_line(9e-6, 25e9)).value();
  EXPECT_NEAR(line.cost.latency.value(), 9e-6, 1e-12);
  EXPECT_NEAR(line.cost.bandwidth.value(), 25e9, 1);
  EXPECT_LT(line.largest_error, 1e-9);
}

// 4 KiB take twice as long as the others' line says: relative errors count, so the line gives way to it.
TEST(Copies, TheErrorIsThatOfTheWorstSize) {
  std::map<int64_t, double> seconds_of = on_a_line(9e-6, 25e9);
  seconds_of[4096] *= 2;
  const CopyLine line = fit_copies(seconds_of).value();
  double worst = 0;
  for (const auto& [size, time] : seconds_of) {
    const double fitted = line.cost.latency.value() + static_cast<double>(size) / line.cost.bandwidth.value();
    worst = std::max(worst, std::abs(fitted / time - 1));
  }
  EXPECT_DOUBLE_EQ(line.largest_error, worst);
  EXPECT_GT(line.largest_error, 0.1);
  EXPECT_GT(line.cost.latency.value(), 9e-6);
}

TEST(Copies, ThatTakeNoLongerAreAnError) {
  EXPECT_EQ(fit_copies({{4096, 1e-3}, {65536, 1e-3}, {1 << 20, 0.9e-3}}).error().message,
            "longer copies took no longer: the measurement was disturbed");
  // Without latency: never below 0.
  EXPECT_EQ(fit_copies({{1000, 0.9e-6}, {2000, 2e-6}, {4000, 4.1e-6}}).value().cost.latency, seconds(0));
}

TEST(Copies, MakeABus) {
  Copies copies;
  copies.in.cost = {seconds(8e-6), bytes_per_second(30e9)};
  copies.out.cost = {seconds(12e-6), bytes_per_second(20e9)};
  copies.both = bytes_per_second(20e9);
  Bus bus = bus_of(copies);
  EXPECT_DOUBLE_EQ(bus.link.bandwidth.value(), 24e9);  // a byte in and one out: 1/30 + 1/20 = 2/24
  EXPECT_DOUBLE_EQ(bus.link.latency.value(), 10e-6);
  EXPECT_TRUE(bus.link.full_duplex);
  EXPECT_FALSE(bus.shared);
  copies.both = bytes_per_second(13e9);  // nearer to half of 24
  EXPECT_FALSE(bus_of(copies).link.full_duplex);
}

}  // namespace
}  // namespace nlsplit
