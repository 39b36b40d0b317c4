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

class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer, SpecialTokens special = SpecialTokens::skipped)
      : tokenizer_(&tokenizer), special_(special) {}

  // What is complete with this token: a character whose bytes are spread over tokens comes with the last of them.
  Result<std::string> next(TokenId token);

  // What was held back: bytes that never became a character are U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  SpecialTokens special_;
  std::string held_back_;
};

Result<std::string> decode(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                           SpecialTokens special = SpecialTokens::skipped);

}  // namespace nlsplit::inline text
