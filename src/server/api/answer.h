// What the server answers: JSON, and events of a stream (server-sent events: "data: …\n\n").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/request.h"

namespace nlsplit::inline server {

struct AnswerHead {
  Route route = Route::completions;
  std::string id, model;
  int64_t created = 0;  // seconds since 1970
};

struct Usage {
  int64_t prompt = 0, answer = 0;  // tokens
  int64_t cached = 0;              // of the prompt: not computed anew
};

struct WholeAnswer {
  std::string text;
  std::string finish;  // "stop" or "length"
  Usage usage;
  std::vector<TokenId> tokens;  // of the answer; said where `with_tokens`
  bool with_tokens = false;
};
std::string whole_answer(const AnswerHead& head, const WholeAnswer& answer);

// A stream: first_event (nothing for completions), text_event for each piece, last_event, usage_event if that was
// asked for, done_event.
std::string first_event(const AnswerHead& head);
std::string text_event(const AnswerHead& head, std::string_view text, const std::vector<TokenId>* tokens);
std::string last_event(const AnswerHead& head, std::string_view finish);
std::string usage_event(const AnswerHead& head, Usage usage);
std::string done_event();
std::string error_event(std::string_view type, std::string_view message);

// {"error": {"message": …, "type": …}}
std::string error_answer(std::string_view type, std::string_view message);

// Of GET /v1/models: the one there is.
std::string models_answer(std::string_view model, int64_t created);

}  // namespace nlsplit::inline server
