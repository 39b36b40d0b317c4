#include "scenario/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/text_reader.h"

namespace nlsplit::inline scenario {

namespace {

constexpr size_t max_name = 64;  // bytes

std::string_view kind_name(Yaml::Kind kind) {
  switch (kind) {
    case Yaml::Kind::null:
      return "nothing";
    case Yaml::Kind::scalar:
      return "a single value";
    case Yaml::Kind::list:
      return "a list";
    case Yaml::Kind::map:
      return "a map";
  }
  CHECK(false, "a kind of YAML node without a name");
}

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

}  // namespace

Result<Fields> Fields::open(const Source& source, const Yaml& map, std::string what,
                            const std::vector<std::string_view>& known) {
  if (!map.is_map()) {
    return source.at(map, fmt::format("{} must be a map with the keys {}; this is {}", what, fmt::join(known, ", "),
                                      kind_name(map.kind)));
  }
  for (size_t i = 0; i < map.keys.size(); ++i) {
    const Yaml& key = map.keys[i];
    if (std::find(known.begin(), known.end(), key.text) == known.end()) {
      const std::string near = nearest(key.text, known);
      return source.at(key, fmt::format("unknown key '{}' in {}{} keys are {}", key.text, what,
                                        near.empty() ? "; its" : fmt::format(": did you mean '{}'? Its", near),
                                        fmt::join(known, ", ")));
    }
    if (map.items[i].kind == Yaml::Kind::null) return source.at(key, fmt::format("'{}' has no value", key.text));
  }
  return Fields(source, map, std::move(what));
}

const Yaml* Fields::find(std::string_view key) const {
  for (size_t i = 0; i < map_->keys.size(); ++i) {
    if (map_->keys[i].text == key) return &map_->items[i];
  }
  return nullptr;
}

Result<const Yaml*> Fields::need(std::string_view key) const {
  if (const Yaml* value = find(key)) return value;
  return source_->at(*map_, fmt::format("{} lacks '{}'", what_, key));
}

Result<std::string> read_text(const Source& source, const Yaml& node, std::string_view what) {
  if (!node.is_scalar()) return source.at(node, fmt::format("{} is expected; this is {}", what, kind_name(node.kind)));
  if (node.text.empty()) return source.at(node, fmt::format("{} is expected; this is empty", what));
  return node.text;
}

Result<std::string> read_name(const Source& source, const Yaml& node, std::string_view what) {
  ASSIGN_OR_RETURN(std::string name, read_text(source, node, what));
  if (!std::all_of(name.begin(), name.end(), is_name_char)) {
    return source.at(node,
                     fmt::format("'{}' cannot be the name of {}: use letters, digits, '_', '-' and '.'", name, what));
  }
  if (name.size() > max_name) return source.at(node, fmt::format("a name has at most {} letters", max_name));
  return name;
}

Result<double> read_number(const Source& source, const Yaml& node, std::string_view what, double least, double most) {
  ASSIGN_OR_RETURN(const std::string text, read_text(source, node, what));
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || !(value >= least && value <= most))
    return source.at(node, fmt::format("{} must be a number from {} to {}, not '{}'", what, least, most, text));
  return value;
}

Result<int64_t> read_integer(const Source& source, const Yaml& node, std::string_view what, int64_t least,
                             int64_t most) {
  ASSIGN_OR_RETURN(const std::string text, read_text(source, node, what));
  int64_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, code] = std::from_chars(text.data(), last, value);
  if (code == std::errc::invalid_argument || end != last) {
    return source.at(node, fmt::format("'{}' is not a whole number; {} is expected", text, what));
  }
  if (code == std::errc::result_out_of_range || value < least || value > most) {
    return source.at(node, fmt::format("{} must be from {} to {}, not {}", what, least, most, text));
  }
  return value;
}

Result<size_t> read_choice(const Source& source, const Yaml& node, std::string_view what,
                           std::span<const std::string_view> words) {
  ASSIGN_OR_RETURN(const std::string text, read_text(source, node, what));
  const auto found = std::find(words.begin(), words.end(), text);
  if (found == words.end()) return source.at(node, fmt::format("unknown {} '{}'; it is {}", what, text, one_of(words)));
  return static_cast<size_t>(found - words.begin());
}

Status expect_list(const Source& source, const Yaml& node, std::string_view what) {
  if (node.is_list()) return ok_status();
  return source.at(node, fmt::format("{} must be a list; this is {}", what, kind_name(node.kind)));
}

Error moved_to(Error error, const Location& where, const std::string& line) {
  if (where.file.empty()) return error;
  // What came first, the place in the model's own file, stays in the sentence.
  if (!error.where.file.empty()) {
    Error inner = error;
    inner.fragment.clear();
    error.message = inner.to_string();
    if (!error.fragment.empty()) error.message += fmt::format(" ({})", error.fragment);
  }
  error.where = where;
  error.fragment = line;
  return error;
}

std::string one_of(std::span<const std::string_view> words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += fmt::format("'{}'", words[i]);
  }
  return text;
}

}  // namespace nlsplit::inline scenario
