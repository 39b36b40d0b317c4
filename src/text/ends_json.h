// Which tokens end a text, by the files that lie beside a tokenizer.json: generation_config.json (else config.json)
// and tokenizer_config.json.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "text/vocabulary.h"

namespace nlsplit::inline text {

// All that the files name, ascending; files that are missing say nothing. Errors name the file and the key: it is no
// JSON, or no number or list of numbers of tokens.
Result<std::vector<TokenId>> read_ends_beside(const std::string& tokenizer_json, const Vocabulary& vocabulary);

}  // namespace nlsplit::inline text
