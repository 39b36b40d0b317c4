// tokenizer.json, the format of the package `tokenizers`: byte-level byte-pair encodings (GPT-2, Llama 3, Qwen,
// SmolLM2, DeepSeek and others).
#pragma once

#include <string>

#include "base/result.h"
#include "text/tokenizer.h"

namespace nlsplit::inline text {

// Errors name the place in the file: "tokenizer.json: /model/type: …". What is not known is an error, never left out.
Result<Tokenizer> read_tokenizer_json(const std::string& path);
Result<Tokenizer> parse_tokenizer_json(const std::string& content, const std::string& path);

}  // namespace nlsplit::inline text
