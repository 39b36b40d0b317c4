#include "text/answer_stream.h"

#include <algorithm>

namespace nlsplit::inline text {

Result<std::string> AnswerStream::next(TokenId token) {
  if (ended_) return std::string();
  if (std::ranges::find(ends_, token) != ends_.end()) {
    ended_ = true;
    return std::string();
  }
  ASSIGN_OR_RETURN(const std::string text, text_.next(token));
  std::string certain = stop_.next(text);
  ended_ = stop_.found();
  return certain;
}

std::string AnswerStream::finish() {
  std::string text = stop_.next(text_.finish());
  text += stop_.finish();
  ended_ = ended_ || stop_.found();
  return text;
}

}  // namespace nlsplit::inline text
