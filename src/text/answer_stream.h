// What a model answers, as it comes: the text of its tokens until one that ends texts, or until a stop string.
//
//   AnswerStream answer(tokenizer, tokenizer.ends, {"\n\n"});
//   ASSIGN_OR_RETURN(std::string text, answer.next(token));   // until answer.ended()
//   text += answer.finish();
#pragma once

#include <string>
#include <vector>

#include "text/decode.h"
#include "text/stop_strings.h"

namespace nlsplit::inline text {

class AnswerStream {
 public:
  // The tokenizer must outlive it. `begin`: the answer is a text of its own, or goes on from the prompt.
  AnswerStream(const Tokenizer& tokenizer, std::vector<TokenId> ends, std::vector<std::string> stops,
               TextBegin begin = TextBegin::here)
      : ends_(std::move(ends)), text_(tokenizer, SpecialTokens::skipped, begin), stop_(std::move(stops)) {}

  // Text that is certain with this token: whole characters, and no beginning of a stop string. Error: TextStream's.
  Result<std::string> next(TokenId token);
  bool ended() const { return ended_; }  // what comes now is no part of the answer
  std::string finish();                  // what was held back

 private:
  std::vector<TokenId> ends_;
  TextStream text_;
  StopStrings stop_;
  bool ended_ = false;
};

}  // namespace nlsplit::inline text
