#include "text/config_files.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"

namespace nlsplit::inline text {

std::string beside(const std::string& tokenizer_json, std::string_view name) {
  return (std::filesystem::path(tokenizer_json).parent_path() / name).string();
}

Result<nlohmann::json> read_config(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return nlohmann::json();
  ASSIGN_OR_RETURN(const std::string content, read_file(path));
  ASSIGN_OR_RETURN(nlohmann::json root, parse_json(content, path));
  if (!root.is_object()) return in_file(path, JsonPlace{&root, ""}.wrong("it is not an object"));
  return root;
}

Result<std::string> token_text(const JsonPlace& place) {
  if (place.is_null()) return std::string();
  return place.value->is_object() ? place.optional("content").text() : place.text();
}

}  // namespace nlsplit::inline text
