#include "text/read_tokenizer.h"

#include "text/tokenizer_gguf.h"
#include "text/tokenizer_json.h"

namespace nlsplit::inline text {

Result<Tokenizer> read_tokenizer(const std::string& path) {
  return path.ends_with(".gguf") ? read_tokenizer_gguf(path) : read_tokenizer_json(path);
}

}  // namespace nlsplit::inline text
