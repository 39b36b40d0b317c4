// The tokenizer of a file, whatever its format: *.gguf, else a tokenizer.json, with the tokens that end texts.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace nlsplit::inline text {

// Errors: read_tokenizer_gguf's; read_tokenizer_json's and read_ends_beside's.
Result<Tokenizer> read_tokenizer(const std::string& path);

}  // namespace nlsplit::inline text
