#include "base/units.h"

#include <gtest/gtest.h>

#include <limits>

namespace nlsplit {
namespace {

template <class T>
std::string message(const Result<T>& result) {
  return result.ok() ? "no error: " + to_string(*result) : result.error().message;
}

TEST(Units, Arithmetic) {
  EXPECT_EQ(bytes(1000) / bytes_per_second(1e6), seconds(1e-3));
  EXPECT_EQ(flops(2e9) / flops_per_second(1e9), seconds(2));
  EXPECT_EQ(seconds(3) / seconds(2), 1.5);
  EXPECT_EQ(2 * bytes(3) + bytes(1) - bytes(2), bytes(5));
}

// The double next to the decimal text, as the compiler reads it.
TEST(Units, ParsesTimesExactly) {
  EXPECT_EQ(*parse_time("2s"), seconds(2));
  EXPECT_EQ(*parse_time("200us"), seconds(200e-6));
  EXPECT_EQ(*parse_time("25us"), seconds(25e-6));
  EXPECT_EQ(*parse_time("0.3ms"), seconds(0.3e-3));
  EXPECT_EQ(*parse_time("7ns"), seconds(7e-9));
  EXPECT_EQ(*parse_time(".5s"), seconds(0.5));
  EXPECT_EQ(*parse_time("1e-3s"), seconds(1e-3));
  EXPECT_EQ(*parse_time("0s"), seconds(0));
}

TEST(Units, ParsesSizesToTheByte) {
  EXPECT_EQ(*parse_size("512B"), bytes(512));
  EXPECT_EQ(*parse_size("3kB"), bytes(3000));
  EXPECT_EQ(*parse_size("1.5KiB"), bytes(1536));
  EXPECT_EQ(*parse_size("1.1GB"), bytes(1100000000));
  EXPECT_EQ(*parse_size("8GiB"), bytes(int64_t{8} << 30));
  EXPECT_EQ(*parse_size("2TiB"), bytes(int64_t{2} << 40));
  EXPECT_EQ(*parse_size("9007199254740993B"), bytes(9007199254740993));  // not a double
  EXPECT_EQ(*parse_size("9223372036854775807B"), bytes(std::numeric_limits<int64_t>::max()));
}

TEST(Units, BpsCountsBitsAndBpsWithACapitalBytes) {
  EXPECT_EQ(*parse_bandwidth("1Gbps"), bytes_per_second(125e6));
  EXPECT_EQ(*parse_bandwidth("8bps"), bytes_per_second(1));
  EXPECT_EQ(*parse_bandwidth("12.5GBps"), bytes_per_second(12.5e9));
  EXPECT_EQ(*parse_bandwidth("2GiBps"), bytes_per_second(2147483648.0));
  EXPECT_EQ(*parse_compute_rate("200GFLOPS"), flops_per_second(200e9));
  EXPECT_EQ(*parse_compute_rate("1PFLOPS"), flops_per_second(1e15));
}

TEST(Units, ABareNumberIsAnError) {
  EXPECT_EQ(message(parse_time("12")), "'12' has no unit; write e.g. 12us, 12ms or 12s");
  EXPECT_EQ(message(parse_time("0")), "'0' has no unit; write e.g. 0us, 0ms or 0s");
  EXPECT_EQ(message(parse_size("1.5")), "'1.5' has no unit; write e.g. 1.5KiB, 1.5MiB or 1.5GiB");
  EXPECT_EQ(message(parse_bandwidth("1e9")), "'1e9' has no unit; write e.g. 1e9Mbps, 1e9Gbps or 1e9GBps");
  EXPECT_EQ(message(parse_compute_rate("7")), "'7' has no unit; write e.g. 7GFLOPS, 7TFLOPS or 7PFLOPS");
}

TEST(Units, AnUnknownUnitIsAnErrorThatListsThem) {
  EXPECT_EQ(message(parse_time("12min")), "'12min' has the unknown unit 'min'; a time has one of s, ms, us, ns");
  EXPECT_EQ(message(parse_size("1gb")),
            "'1gb' has the unknown unit 'gb'; a size has one of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB");
  EXPECT_EQ(message(parse_bandwidth("1GB")),
            "'1GB' has the unknown unit 'GB'; a bandwidth has one of bps, kbps, Mbps, Gbps, Tbps, Bps, kBps, MBps, "
            "GBps, TBps, KiBps, MiBps, GiBps, TiBps");
  EXPECT_EQ(message(parse_compute_rate("1GFLOP")),
            "'1GFLOP' has the unknown unit 'GFLOP'; a compute rate has one of FLOPS, kFLOPS, MFLOPS, GFLOPS, TFLOPS, "
            "PFLOPS");
  EXPECT_EQ(message(parse_time("12 us")), "'12 us' has a space before its unit; write e.g. 12us, 12ms or 12s");
  EXPECT_EQ(message(parse_time("12us ")), "'12us ' has the unknown unit 'us '; a time has one of s, ms, us, ns");
}

TEST(Units, WhatIsNotANumberIsAnError) {
  for (const std::string text : {"", "fast", "us", "nans", "infs", "-infs", "-", "+1s", ".s", " 1s"}) {
    EXPECT_EQ(message(parse_time(text)),
              "'" + text + "' is not a time; write e.g. 12us, 12ms or 12s (units: s, ms, us, ns)");
  }
}

TEST(Units, NegativeIsAnError) {
  EXPECT_EQ(message(parse_time("-3us")), "'-3us' is negative; a time cannot be");
  EXPECT_EQ(message(parse_size("-1B")), "'-1B' is negative; a size cannot be");
}

TEST(Units, OverflowIsAnError) {
  EXPECT_EQ(message(parse_time("1e999s")), "'1e999s' is too large or too near 0");
  EXPECT_EQ(message(parse_bandwidth("1e300Tbps")), "'1e300Tbps' is too large");
  EXPECT_EQ(message(parse_size("9223372036854775808B")), "'9223372036854775808B' is too large");
  EXPECT_EQ(message(parse_size("9007199254740992KiB")), "'9007199254740992KiB' is too large");
  EXPECT_EQ(message(parse_size("1e19B")), "'1e19B' is too large");
  EXPECT_EQ(message(parse_size("1e307TB")), "'1e307TB' is too large");
}

TEST(Units, AnErrorShowsTheText) {
  EXPECT_EQ(parse_time("12").error().fragment, "12");
  EXPECT_EQ(parse_time("12").error().kind, ErrorKind::invalid_input);
}

TEST(Units, WritesTimes) {
  EXPECT_EQ(to_string(seconds(0.0832)), "83.2 ms");
  EXPECT_EQ(to_string(seconds(0)), "0 s");
  EXPECT_EQ(to_string(seconds(1)), "1 s");
  EXPECT_EQ(to_string(seconds(0.9994)), "999 ms");
  EXPECT_EQ(to_string(seconds(0.9996)), "1 s");  // not "1e+03 ms"
  EXPECT_EQ(to_string(seconds(200e-6)), "200 us");
  EXPECT_EQ(to_string(seconds(1.2345e-9)), "1.23 ns");
  EXPECT_EQ(to_string(seconds(12345)), "12300 s");
  EXPECT_EQ(to_string(seconds(-0.002)), "-2 ms");
}

TEST(Units, WritesSizes) {
  EXPECT_EQ(to_string(bytes(0)), "0 B");
  EXPECT_EQ(to_string(bytes(1023)), "1023 B");
  EXPECT_EQ(to_string(bytes(1024)), "1 KiB");
  EXPECT_EQ(to_string(bytes(64382566)), "61.4 MiB");
  EXPECT_EQ(to_string(bytes(int64_t{8} << 30)), "8 GiB");
  EXPECT_EQ(to_string(bytes(1020 * 1024)), "0.996 MiB");
  EXPECT_EQ(to_string(bytes(std::numeric_limits<int64_t>::min())), "-8390000 TiB");
}

TEST(Units, WritesRatesAndWork) {
  EXPECT_EQ(to_string(bytes_per_second(125e6)), "1 Gbit/s");
  EXPECT_EQ(to_string(bytes_per_second(0.5)), "4 bit/s");
  EXPECT_EQ(to_string(bytes_per_second(0)), "0 bit/s");
  EXPECT_EQ(to_string(flops(3.86e9)), "3.86 GFLOP");
  EXPECT_EQ(to_string(flops_per_second(200e9)), "200 GFLOPS");
  EXPECT_EQ(to_string(flops_per_second(std::numeric_limits<double>::infinity())), "inf PFLOPS");
}

}  // namespace
}  // namespace nlsplit
