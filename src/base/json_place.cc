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
  bool too_deep = false;
  const auto look = [&](int depth, json::parse_event_t event, json& value) {
    const bool object = event == json::parse_event_t::object_start;
    if ((object || event == json::parse_event_t::array_start) && depth >= most_json_levels) too_deep = true;
    if (too_deep) return false;  // nothing is kept of what is left
    if (key_twice == KeyTwice::last_counts) return true;
    if (object) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second && twice.empty())
      twice = value.get<std::string>();
    return true;
  };
  json root;
  try {
    root = json::parse(content, look);
  } catch (const json::parse_error& e) {
    const bool cut = e.byte > content.size();
    return in_file(path, invalid_input(!cut           ? fmt::format("byte {}: this is not JSON", e.byte)
                                       : path.empty() ? "the JSON ends in the middle"
                                                      : "the file ends in the middle: it was cut short"));
  } catch (const json::exception& e) {  // a number no double can hold
    return in_file(path, invalid_input(fmt::format("this is not usable JSON: {}", e.what())));
  }
  if (too_deep)
    return in_file(path, invalid_input(fmt::format("more than {} lists and objects in each other", most_json_levels)));
  if (!twice.empty())
    return in_file(path, invalid_input(fmt::format("the key \"{}\" stands twice", twice.substr(0, 80))));
  return root;
}

}  // namespace nlsplit::inline base
