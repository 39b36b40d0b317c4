// The small JSON files beside a tokenizer.json.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/json_place.h"
#include "base/result.h"

namespace nlsplit::inline text {

// "folder/config.json" of "folder/tokenizer.json".
std::string beside(const std::string& tokenizer_json, std::string_view name);

// null: there is no such file. Errors: parse_json's; it holds no object.
Result<nlohmann::json> read_config(const std::string& path);

// The text of a token in tokenizer_config.json: "</s>" or {"content": "</s>", …}; empty: none is given.
Result<std::string> token_text(const JsonPlace& place);

}  // namespace nlsplit::inline text
