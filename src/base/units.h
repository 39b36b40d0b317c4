// Quantities with units. They are made by named factories only, and never mix by accident:
//
//   Seconds t = bytes(1000) / bytes_per_second(1e6);     // 1 ms
//   ASSIGN_OR_RETURN(BytesPerSecond b, parse_bandwidth("12.5GBps"));
//
// Factors: k M G T are powers of 1000, Ki Mi Gi Ti powers of 1024. "bps" counts bits, "Bps" bytes.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nlsplit::inline base {

template <class Tag, class Rep>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr Rep value() const { return value_; }
  static constexpr Quantity of(Rep value) { return Quantity(value); }

  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.value_ + b.value_); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.value_ - b.value_); }
  friend constexpr Quantity operator*(Quantity a, Rep k) { return Quantity(a.value_ * k); }
  friend constexpr Quantity operator*(Rep k, Quantity a) { return Quantity(a.value_ * k); }
  friend constexpr Quantity operator/(Quantity a, Rep k) { return Quantity(a.value_ / k); }
  friend constexpr double operator/(Quantity a, Quantity b) {
    return static_cast<double>(a.value_) / static_cast<double>(b.value_);
  }
  constexpr Quantity& operator+=(Quantity other) {
    value_ += other.value_;
    return *this;
  }

 private:
  constexpr explicit Quantity(Rep value) : value_(value) {}
  Rep value_{};
};

using Seconds = Quantity<struct SecondsTag, double>;
using Bytes = Quantity<struct BytesTag, int64_t>;
using Flops = Quantity<struct FlopsTag, double>;
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondTag, double>;

constexpr Seconds seconds(double s) { return Seconds::of(s); }
constexpr Bytes bytes(int64_t b) { return Bytes::of(b); }
constexpr Flops flops(double f) { return Flops::of(f); }
constexpr BytesPerSecond bytes_per_second(double b) { return BytesPerSecond::of(b); }
constexpr FlopsPerSecond flops_per_second(double f) { return FlopsPerSecond::of(f); }

constexpr Seconds operator/(Bytes b, BytesPerSecond r) { return seconds(static_cast<double>(b.value()) / r.value()); }
constexpr Seconds operator/(Flops f, FlopsPerSecond r) { return seconds(f.value() / r.value()); }

// Each accepts a non-negative, finite number directly followed by its unit; a bare number is an error.
Result<Seconds> parse_time(std::string_view text);  // s ms us ns
Result<Bytes> parse_size(std::string_view text);    // B kB MB GB TB KiB MiB GiB TiB
Result<BytesPerSecond> parse_bandwidth(
    std::string_view text);  // bps kbps Mbps Gbps Tbps (bits), Bps kBps … GiBps (bytes)
Result<FlopsPerSecond> parse_compute_rate(std::string_view text);  // FLOPS kFLOPS MFLOPS GFLOPS TFLOPS PFLOPS

// For people: three significant digits and the unit that reads best ("83.2 ms", "61.4 MiB", "1 Gbit/s", "3.86 GFLOP").
std::string to_string(Seconds);
std::string to_string(Bytes);
std::string to_string(Flops);
std::string to_string(BytesPerSecond);
std::string to_string(FlopsPerSecond);

}  // namespace nlsplit::inline base
