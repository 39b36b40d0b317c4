#include "base/percentage.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string>

namespace nlsplit::inline base {

Result<double> parse_percentage(std::string_view text) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  if (code == std::errc() && unit == "%" && std::isfinite(value)) return value / 100;
  Error error = invalid_input(code == std::errc() && unit.empty()
                                  ? fmt::format("'{}' has no unit; a percentage is expected, e.g. 5%", text)
                                  : fmt::format("'{}' is not a percentage; write e.g. 5%", text));
  error.fragment = std::string(text);
  return error;
}

}  // namespace nlsplit::inline base
