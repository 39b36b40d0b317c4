#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>

namespace nlsplit::inline base {

namespace {

// A quantity in the unit, times `times` and divided by `over`, is in the base unit. Two integers, not one factor:
// 25us is then 25 / 1e6, which rounds to the double nearest to 25e-6; 25 * 1e-6 need not.
struct Unit {
  std::string_view name;
  double times;
  double over = 1;
};

constexpr double kibi = 1024;
constexpr double mebi = kibi * kibi;
constexpr double gibi = kibi * mebi;
constexpr double tebi = kibi * gibi;

constexpr std::array time_units = {Unit{"s", 1}, Unit{"ms", 1, 1e3}, Unit{"us", 1, 1e6}, Unit{"ns", 1, 1e9}};

constexpr std::array size_units = {Unit{"B", 1},      Unit{"kB", 1e3},   Unit{"MB", 1e6},
                                   Unit{"GB", 1e9},   Unit{"TB", 1e12},  Unit{"KiB", kibi},
                                   Unit{"MiB", mebi}, Unit{"GiB", gibi}, Unit{"TiB", tebi}};

constexpr std::array bandwidth_units = {
    Unit{"bps", 1, 8},   Unit{"kbps", 1e3, 8}, Unit{"Mbps", 1e6, 8}, Unit{"Gbps", 1e9, 8}, Unit{"Tbps", 1e12, 8},
    Unit{"Bps", 1},      Unit{"kBps", 1e3},    Unit{"MBps", 1e6},    Unit{"GBps", 1e9},    Unit{"TBps", 1e12},
    Unit{"KiBps", kibi}, Unit{"MiBps", mebi},  Unit{"GiBps", gibi},  Unit{"TiBps", tebi}};

constexpr std::array compute_units = {Unit{"FLOPS", 1},    Unit{"kFLOPS", 1e3},  Unit{"MFLOPS", 1e6},
                                      Unit{"GFLOPS", 1e9}, Unit{"TFLOPS", 1e12}, Unit{"PFLOPS", 1e15}};

struct Kind {
  std::string_view what;  // for messages: "a time"
  std::span<const Unit> units;
  std::array<std::string_view, 3> examples;  // the units one most likely meant
};

constexpr Kind time_kind = {"a time", time_units, {"us", "ms", "s"}};
constexpr Kind size_kind = {"a size", size_units, {"KiB", "MiB", "GiB"}};
constexpr Kind bandwidth_kind = {"a bandwidth", bandwidth_units, {"Mbps", "Gbps", "GBps"}};
constexpr Kind compute_kind = {"a compute rate", compute_units, {"GFLOPS", "TFLOPS", "PFLOPS"}};

std::string unit_list(const Kind& kind) {
  std::string text;
  for (const Unit& unit : kind.units) {
    if (!text.empty()) text += ", ";
    text += unit.name;
  }
  return text;
}

std::string examples(const Kind& kind, std::string_view number) {
  return fmt::format("write e.g. {0}{1}, {0}{2} or {0}{3}", number, kind.examples[0], kind.examples[1],
                     kind.examples[2]);
}

// All errors have the whole text as their fragment: the caller may know a place for it.
Error bad(std::string_view text, std::string message) {
  Error error = invalid_input(std::move(message));
  error.fragment = std::string(text);
  return error;
}

Error too_large(std::string_view text) { return bad(text, fmt::format("'{}' is too large", text)); }

struct Parsed {
  std::string_view digits;
  double number = 0;
  Unit unit{};
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

Result<Parsed> parse(std::string_view text, const Kind& kind) {
  const auto not_one = [&] {
    return bad(text,
               fmt::format("'{}' is not {}; {} (units: {})", text, kind.what, examples(kind, "12"), unit_list(kind)));
  };
  // from_chars also reads "inf" and "nan", and "-0": so the first characters decide.
  std::string_view number = text;
  const bool negative = number.starts_with('-');
  if (negative) number.remove_prefix(1);
  const bool starts_well =
      !number.empty() && (is_digit(number[0]) || (number[0] == '.' && number.size() > 1 && is_digit(number[1])));
  if (!starts_well) return not_one();
  if (negative) return bad(text, fmt::format("'{}' is negative; {} cannot be", text, kind.what));

  Parsed parsed;
  const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), parsed.number);
  parsed.digits = number.substr(0, static_cast<size_t>(end - number.data()));
  const std::string_view unit = number.substr(parsed.digits.size());
  if (code == std::errc::result_out_of_range) {
    return bad(text, fmt::format("'{}' is too large or too near 0", text));
  }
  if (code != std::errc()) return not_one();

  if (unit.empty()) {
    return bad(text, fmt::format("'{}' has no unit; {}", text, examples(kind, parsed.digits)));
  }
  for (const Unit& candidate : kind.units) {
    if (candidate.name == unit) {
      parsed.unit = candidate;
      return parsed;
    }
  }
  if (unit[0] == ' ') {
    return bad(text, fmt::format("'{}' has a space before its unit; {}", text, examples(kind, parsed.digits)));
  }
  return bad(text,
             fmt::format("'{}' has the unknown unit '{}'; {} has one of {}", text, unit, kind.what, unit_list(kind)));
}

Result<double> parse_scaled(std::string_view text, const Kind& kind) {
  ASSIGN_OR_RETURN(const Parsed parsed, parse(text, kind));
  const double value = parsed.number * parsed.unit.times / parsed.unit.over;
  if (!std::isfinite(value)) return too_large(text);
  return value;
}

// Three significant digits, never in scientific notation from 1e-4 up.
double round3(double value) {
  const std::string text = fmt::format("{:.2e}", value);
  double rounded = value;
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return rounded;
}

std::string format3(double value) {
  const double rounded = round3(value);
  return std::abs(rounded) < 1000 ? fmt::format("{:.3g}", rounded) : fmt::format("{:.0f}", rounded);
}

struct Scale {
  double factor;
  std::string_view name;
};

// The first unit, smallest first, in which the value has at most three digits before the point: 999.6 ms is "1 s".
std::string scaled(double value, std::span<const Scale> scales, std::string_view unit_of_zero) {
  if (value == 0) return fmt::format("0 {}", unit_of_zero);
  for (const Scale& scale : scales.first(scales.size() - 1)) {
    if (std::abs(round3(value / scale.factor)) < 1000) {
      return fmt::format("{} {}", format3(value / scale.factor), scale.name);
    }
  }
  return fmt::format("{} {}", format3(value / scales.back().factor), scales.back().name);
}

}  // namespace

Result<Seconds> parse_time(std::string_view text) {
  ASSIGN_OR_RETURN(const double value, parse_scaled(text, time_kind));
  return seconds(value);
}

// A whole number is exact to the last byte; a fraction (1.1GB) is rounded to the nearest byte.
Result<Bytes> parse_size(std::string_view text) {
  ASSIGN_OR_RETURN(const Parsed parsed, parse(text, size_kind));
  const auto factor = static_cast<int64_t>(parsed.unit.times);
  int64_t whole = 0;
  const char* const last = parsed.digits.data() + parsed.digits.size();
  const auto [end, code] = std::from_chars(parsed.digits.data(), last, whole);
  if (end == last) {
    int64_t value = 0;
    if (code != std::errc() || __builtin_mul_overflow(whole, factor, &value)) return too_large(text);
    return bytes(value);
  }
  const double value = std::round(parsed.number * parsed.unit.times);
  if (!(value < 0x1p63)) return too_large(text);
  return bytes(static_cast<int64_t>(value));
}

Result<BytesPerSecond> parse_bandwidth(std::string_view text) {
  ASSIGN_OR_RETURN(const double value, parse_scaled(text, bandwidth_kind));
  return bytes_per_second(value);
}

Result<FlopsPerSecond> parse_compute_rate(std::string_view text) {
  ASSIGN_OR_RETURN(const double value, parse_scaled(text, compute_kind));
  return flops_per_second(value);
}

std::string to_string(Seconds t) {
  constexpr std::array scales = {Scale{1e-9, "ns"}, Scale{1e-6, "us"}, Scale{1e-3, "ms"}, Scale{1, "s"}};
  return scaled(t.value(), scales, "s");
}

std::string to_string(Bytes b) {
  constexpr std::array scales = {Scale{kibi, "KiB"}, Scale{mebi, "MiB"}, Scale{gibi, "GiB"}, Scale{tebi, "TiB"}};
  if (b > bytes(-1024) && b < bytes(1024)) return fmt::format("{} B", b.value());  // whole bytes are exact
  return scaled(static_cast<double>(b.value()), scales, "B");
}

std::string to_string(Flops f) {
  constexpr std::array scales = {Scale{1, "FLOP"},    Scale{1e3, "kFLOP"},  Scale{1e6, "MFLOP"},
                                 Scale{1e9, "GFLOP"}, Scale{1e12, "TFLOP"}, Scale{1e15, "PFLOP"}};
  return scaled(f.value(), scales, "FLOP");
}

std::string to_string(BytesPerSecond r) {
  constexpr std::array scales = {Scale{1, "bit/s"}, Scale{1e3, "kbit/s"}, Scale{1e6, "Mbit/s"}, Scale{1e9, "Gbit/s"},
                                 Scale{1e12, "Tbit/s"}};
  return scaled(r.value() * 8, scales, "bit/s");
}

std::string to_string(FlopsPerSecond r) {
  constexpr std::array scales = {Scale{1, "FLOPS"},    Scale{1e3, "kFLOPS"},  Scale{1e6, "MFLOPS"},
                                 Scale{1e9, "GFLOPS"}, Scale{1e12, "TFLOPS"}, Scale{1e15, "PFLOPS"}};
  return scaled(r.value(), scales, "FLOPS");
}

}  // namespace nlsplit::inline base
