// Tokens to text.
//
//   TextStream stream(tokenizer);
//   ASSIGN_OR_RETURN(const std::string text, stream.next(token));   // for each token as it comes
//   … stream.finish();
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "text/tokenizer.h"

namespace nlsplit::inline text {

enum class SpecialTokens { shown, skipped };
// Vocabularies in SentencePiece's way put a space in front of each text; decoding drops it, unless the tokens go on
// from a text that was there before.
enum class TextBegin { here, before };

class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer, SpecialTokens special = SpecialTokens::skipped,
                      TextBegin begin = TextBegin::here)
      : tokenizer_(&tokenizer),
        special_(special),
        drops_space_(begin == TextBegin::here && tokenizer.drops_first_space) {}

  // What is complete with this token: a character whose bytes are spread over tokens comes with the last of them.
  Result<std::string> next(TokenId token);

  // What was held back: bytes that never became a character are U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  SpecialTokens special_;
  bool drops_space_;  // if the next character is one
  std::string held_back_;
};

Result<std::string> decode(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                           SpecialTokens special = SpecialTokens::skipped);

}  // namespace nlsplit::inline text
