// Quantities that options have as values. Errors name the option.
#pragma once

#include <fmt/format.h>

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

}  // namespace nlsplit::inline tools
