#include "text/normalize.h"

#include <algorithm>

namespace nlsplit::inline text {
namespace {

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string made;
  made.reserve(text.size());
  for (size_t at = 0;;) {
    const size_t found = text.find(from, at);
    made += text.substr(at, found - at);
    if (found == std::string_view::npos) return made;
    made += to;
    at = found + from.size();
  }
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

std::string normalized_by(std::string_view text, const std::vector<NormalStep>& steps) {
  std::string made(text);
  for (const NormalStep& step : steps) {
    if (step.form) {
      if (!is_ascii(made)) made = normalized(made, *step.form);  // ASCII is all forms of itself
    } else if (step.from.empty()) {
      if (!made.empty()) made.insert(0, step.to);
    } else {
      made = replaced(made, step.from, step.to);
    }
  }
  return made;
}

std::string with_spaces_for_marks(std::string_view text) { return replaced(text, space_mark, " "); }

}  // namespace nlsplit::inline text
