// A value of a JSON file together with its place, for errors. The exceptions of the library do not pass these
// functions.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nlsplit::inline base {

struct JsonPlace {
  const nlohmann::json* value = nullptr;
  std::string path;  // "/model/vocab", empty: the whole file

  bool is_null() const { return value->is_null(); }

  Error error(ErrorKind kind, const std::string& message) const {
    Error made = kind == ErrorKind::unsupported ? unsupported("") : invalid_input("");
    made.message = fmt::format("{}: {}", path.empty() ? "/" : path, message);
    return made;
  }
  Error wrong(const std::string& message) const { return error(ErrorKind::invalid_input, message); }
  Error not_supported(const std::string& message) const { return error(ErrorKind::unsupported, message); }

  // The beginning of the value as text.
  std::string excerpt() const {
    const std::string all = value->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return all.size() <= 60 ? all : all.substr(0, 60) + "…";
  }

  // Null where the key is missing: files of older versions have fewer keys.
  JsonPlace optional(const char* key) const {
    static const nlohmann::json null;
    const auto found = value->is_object() ? value->find(key) : value->end();
    return {found == value->end() ? &null : &*found, path + "/" + key};
  }
  JsonPlace element(size_t index) const { return {&(*value)[index], fmt::format("{}/{}", path, index)}; }

  Status must_be_object(std::initializer_list<std::string_view> keys) const {
    if (!value->is_object()) return wrong(fmt::format("{} is not an object", excerpt()));
    for (const auto& [key, ignored] : value->items()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end())
        return not_supported(fmt::format("the key \"{}\" is not known", key));
    }
    return ok_status();
  }
  Status must_be_array() const {
    return value->is_array() ? ok_status() : Status(wrong(fmt::format("{} is not a list", excerpt())));
  }
  Result<std::string> text() const {
    if (!value->is_string()) return wrong(fmt::format("{} is not a string", excerpt()));
    return value->get<std::string>();
  }
  Result<bool> flag(bool if_missing) const {
    if (value->is_null()) return if_missing;
    if (!value->is_boolean()) return wrong(fmt::format("{} is neither true nor false", excerpt()));
    return value->get<bool>();
  }
  Result<int64_t> integer() const {
    if (value->is_number_unsigned() ? value->get<uint64_t>() <= INT64_MAX : value->is_number_integer())
      return value->get<int64_t>();
    return wrong(fmt::format("{} is not an integer", excerpt()));
  }
  Result<double> number() const {
    if (!value->is_number()) return wrong(fmt::format("{} is not a number", excerpt()));
    return value->get<double>();
  }
};

Error in_file(const std::string& path, Error error);  // the error, with the file

enum class KeyTwice : uint8_t { last_counts, is_wrong };
// Lists and objects in each other, at most: whoever goes through a value, as its text does, recurses.
inline constexpr int most_json_levels = 64;
// The errors name the file, if there is one: no JSON, cut off, too deep, a number that no double can hold, a key that
// stands twice in an object.
Result<nlohmann::json> parse_json(std::string_view content, const std::string& path,
                                  KeyTwice key_twice = KeyTwice::last_counts);

}  // namespace nlsplit::inline base
