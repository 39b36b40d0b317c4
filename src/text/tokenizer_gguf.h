// The tokenizer that a GGUF file holds beside its model: byte-level byte-pair encodings (tokenizer.ggml.model: gpt2),
// and SentencePiece's with a score for each token (llama).
#pragma once

#include <string>

#include "base/result.h"
#include "text/tokenizer.h"

namespace nlsplit::inline text {

// For byte-level ones such a file only names how text is cut into words (tokenizer.ggml.pre); text/patterns.h has the
// patterns. Errors name the file and the key: it has no tokenizer, or one of another kind; a name of patterns that is
// not known; a merge of what is no token; a score that is no number; arrays that do not fit each other.
Result<Tokenizer> read_tokenizer_gguf(const std::string& path);

}  // namespace nlsplit::inline text
