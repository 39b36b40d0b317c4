#include "base/json_place.h"

#include <set>

namespace nlsplit::inline base {

using nlohmann::json;

Error in_file(const std::string& path, Error error) {
  error.where.file = path;
  return error;
}

Result<json> parse_json(std::string_view content, const std::string& path, KeyTwice key_twice) {
  std::vector<std::set<std::string>> open;  // keys of the objects around
  std::string twice;
  const auto look = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second && twice.empty())
      twice = value.get<std::string>();
    return true;
  };
  json root;
  try {
    root = key_twice == KeyTwice::is_wrong ? json::parse(content, look) : json::parse(content);
  } catch (const json::parse_error& e) {
    return in_file(path, invalid_input(e.byte > content.size() ? "the file ends in the middle: it was cut short"
                                                               : fmt::format("byte {}: this is not JSON", e.byte)));
  } catch (const json::exception& e) {  // a number no double can hold
    return in_file(path, invalid_input(fmt::format("this is not usable JSON: {}", e.what())));
  }
  if (!twice.empty())
    return in_file(path, invalid_input(fmt::format("the key \"{}\" stands twice", twice.substr(0, 80))));
  return root;
}

}  // namespace nlsplit::inline base
