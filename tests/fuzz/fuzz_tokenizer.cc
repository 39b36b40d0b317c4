// tokenizer.json: what is read encodes any text or says why not, and its tokens are decoded. And with a byte-level
// vocabulary that has all bytes, any text comes back from its tokens, whole and token by token.
#include <cstdint>
#include <string>

#include "fuzz/files.h"
#include "text/byte_alphabet.h"
#include "text/decode.h"
#include "text/patterns.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace {

using namespace nlsplit;

Tokenizer all_bytes() {
  TokenizerParts parts;
  for (int byte = 0; byte < 256; ++byte)
    parts.vocabulary.push_back({std::string(1, static_cast<char>(byte)), TokenKind::ordinary, true});
  const auto add = [&](TokenId left, TokenId right) {
    const std::string whole =
        parts.vocabulary[static_cast<size_t>(left)].bytes + parts.vocabulary[static_cast<size_t>(right)].bytes;
    const auto id = static_cast<TokenId>(parts.vocabulary.size());
    parts.vocabulary.push_back({whole, TokenKind::ordinary, true});
    parts.merges.push_back({left, right, id, static_cast<int32_t>(parts.merges.size())});
    return id;
  };
  const TokenId spaces = add(' ', ' ');
  add(spaces, spaces);
  add(add('"', ':'), ' ');
  add(0xE4, 0xB8);
  add(add('a', 'b'), 'c');
  parts.cuts.push_back({.space_in_front = false, .pattern = std::string(gpt2_pattern)});
  const auto special = static_cast<TokenId>(parts.vocabulary.size());
  parts.vocabulary.push_back({"<e>", TokenKind::special, false});
  parts.added.push_back({.content = "<e>", .id = special, .special = true});
  Result<Tokenizer> made = make_tokenizer(std::move(parts));
  fuzz::expect(made.ok(), "the fixed tokenizer is made");
  return std::move(made).value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit::fuzz;
  static const Tokenizer fixed = all_bytes();
  const std::string text(text_of(data, size));
  const auto tokens = encode(fixed, text);
  expect(accepted(tokens) == (first_invalid_utf8(text) == text.size()), "all UTF-8 is encoded, and nothing else");
  if (tokens.ok()) {
    const auto decoded = decode(fixed, *tokens, SpecialTokens::shown);
    expect(accepted(decoded) && *decoded == text, "what is encoded is decoded");
  }
  const auto read = parse_tokenizer_json(text, "tokenizer.json");
  if (!accepted(read)) return 0;
  const auto own = encode(*read, text.substr(0, 300));
  if (accepted(own)) expect(accepted(decode(*read, *own)), "its own tokens are known");
  return 0;
}
