#include "text/decode.h"

#include <fmt/format.h>

#include <utility>

#include "text/utf8.h"

namespace nlsplit::inline text {

Result<std::string> TextStream::next(TokenId token) {
  const Vocabulary& vocabulary = tokenizer_->vocabulary;
  if (token < 0 || static_cast<size_t>(token) >= vocabulary.size() ||
      vocabulary[static_cast<size_t>(token)].kind == TokenKind::absent)
    return invalid_input(fmt::format("there is no token {}; the vocabulary's last is {}", token,
                                     static_cast<int64_t>(vocabulary.size()) - 1));
  const VocabularyToken& entry = vocabulary[static_cast<size_t>(token)];
  if (entry.kind == TokenKind::special && special_ == SpecialTokens::skipped) return std::string();
  std::string_view bytes = entry.bytes;
  if (drops_space_ && !bytes.empty()) {
    if (bytes.starts_with(' ')) bytes.remove_prefix(1);
    drops_space_ = false;
  }
  held_back_ += bytes;
  std::string text;
  size_t at = 0;
  while (at < held_back_.size()) {
    const Utf8Step step = utf8_step(std::string_view(held_back_).substr(at));
    if (step.incomplete) break;
    append_utf8(text, step.character);
    at += step.size;
  }
  held_back_.erase(0, at);
  return text;
}

std::string TextStream::finish() {
  std::string text;
  if (!std::exchange(held_back_, {}).empty()) append_utf8(text, 0xFFFD);
  return text;
}

Result<std::string> decode(const Tokenizer& tokenizer, std::span<const TokenId> tokens, SpecialTokens special) {
  TextStream stream(tokenizer, special);
  std::string text;
  for (const TokenId token : tokens) {
    ASSIGN_OR_RETURN(const std::string more, stream.next(token));
    text += more;
  }
  return text + stream.finish();
}

}  // namespace nlsplit::inline text
