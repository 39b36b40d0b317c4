// Quantities and counts that options have as values. Errors name the option.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "base/units.h"

namespace nlsplit::inline tools {

template <class Value>
Result<Value> in_option(std::string_view option, Result<Value> value) {
  if (value) return value;
  Error error = value.error();
  error.message = fmt::format("{}: {}", option, error.message);
  error.fragment.clear();
  return error;
}

// "--size", "100MiB"
inline Result<Bytes> size_option(std::string_view option, std::string_view text) {
  return in_option(option, parse_size(text));
}
// "--duration", "500ms"
inline Result<Seconds> time_option(std::string_view option, std::string_view text) {
  return in_option(option, parse_time(text));
}

// "--pairs", "2" or "all": the largest number there is.
inline Result<size_t> pairs_option(std::string_view option, std::string_view text) {
  if (text == "all") return std::numeric_limits<size_t>::max();
  size_t count = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (failure == std::errc() && end == text.data() + text.size() && count > 0) return count;
  return invalid_input(fmt::format("{}: '{}' is neither a number of pairs, from 1 on, nor all", option, text));
}

}  // namespace nlsplit::inline tools
