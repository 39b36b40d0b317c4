// The tokenizer of a file, whatever its format: *.gguf, else a tokenizer.json.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace nlsplit::inline text {

// Errors: read_tokenizer_gguf's, read_tokenizer_json's.
Result<Tokenizer> read_tokenizer(const std::string& path);

}  // namespace nlsplit::inline text
