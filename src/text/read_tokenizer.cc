#include "text/read_tokenizer.h"

#include "text/ends_json.h"
#include "text/tokenizer_gguf.h"
#include "text/tokenizer_json.h"

namespace nlsplit::inline text {

Result<Tokenizer> read_tokenizer(const std::string& path) {
  if (path.ends_with(".gguf")) return read_tokenizer_gguf(path);
  ASSIGN_OR_RETURN(Tokenizer tokenizer, read_tokenizer_json(path));
  ASSIGN_OR_RETURN(tokenizer.ends, read_ends_beside(path, tokenizer.vocabulary));
  return tokenizer;
}

}  // namespace nlsplit::inline text
