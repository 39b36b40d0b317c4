#include "base/name_range.h"

#include <charconv>

namespace nlsplit::inline base {
namespace {

// "h12": h and 12. None without digits, with leading zeros, or too many digits.
std::optional<NameRange> split(std::string_view name) {
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  NameRange range{std::string(name.substr(0, digits))};
  const char* const last = name.data() + name.size();
  const auto [end, failure] = std::from_chars(name.data() + digits, last, range.first);
  if (failure != std::errc() || end != last || range.name(range.first) != name) return std::nullopt;
  range.last = range.first;
  return range;
}

}  // namespace

std::optional<NameRange> parse_name_range(std::string_view text) {
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos) return std::nullopt;
  auto from = split(text.substr(0, dots));
  const auto to = split(text.substr(dots + 2));
  if (!from || !to || from->prefix != to->prefix || from->first > to->first) return std::nullopt;
  from->last = to->first;
  return from;
}

std::string join_names(const std::vector<std::string>& names, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < names.size();) {
    size_t end = i + 1;
    if (const auto first = split(names[i])) {
      while (end < names.size() && names[end] == first->name(first->first + static_cast<int64_t>(end - i))) ++end;
    }
    if (end - i < 3) end = i + 1;
    if (!text.empty()) text += separator;
    text += names[i];
    if (end - i > 1) text += ".." + names[end - 1];
    i = end;
  }
  return text;
}

}  // namespace nlsplit::inline base
