// The bodies of POST /v1/completions and /v1/chat/completions, as OpenAI's programming interface names their keys.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/sample.h"

namespace nlsplit::inline server {

enum class Route : uint8_t { completions, chat };

struct CompletionRequest {
  Route route = Route::completions;
  std::string model;                    // empty: not said
  std::string prompt;                   // of completions
  std::vector<TokenId> prompt_tokens;   // instead of it, if there are any
  std::vector<ChatMessage> messages;    // of chat
  int64_t tokens = 0;                   // at most; 0: not said
  Sampling sampling{.temperature = 0};  // not said: the likeliest token
  bool has_seed = false;                // else each request draws by one of its own
  std::vector<std::string> stops;       // at most four
  bool streams = false, reports_usage = false;
  bool ignores_end = false;     // ignore_eos: go on behind the token that ends a text
  bool returns_tokens = false;  // return_token_ids
};

// Errors name the place: "byte 7: this is not JSON", "/max_tokens: …". What would change the answer and is not
// supported (tools, several choices, penalties, …) is an error, and so is a key that is not known; `user`, `metadata`
// and the like are passed over.
Result<CompletionRequest> parse_request(Route route, std::string_view body);

}  // namespace nlsplit::inline server
