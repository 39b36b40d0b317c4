// Bodies of requests to the server, conversations in their templates, and traces of requests: what is read is within
// its bounds, becomes text or a complaint, and a trace comes back from its text.
#include <cmath>
#include <cstdint>
#include <string>

#include "fuzz/files.h"
#include "server/api/answer.h"
#include "server/api/request.h"
#include "serving/arrivals.h"
#include "text/chat_template.h"
#include "text/stop_strings.h"

namespace {

using namespace nlsplit;

// The template is what stands before the body, if anything does.
void converse(const std::string& source, const CompletionRequest& request) {
  const auto chat = recognise_chat_template(source, "<s>", "</s>", "template");
  if (!fuzz::accepted(chat)) return;
  const auto text = chat_text(*chat, request.messages, "01 Jan 2030");
  if (!fuzz::accepted(text)) return;
  fuzz::expect(!request.messages.empty() && request.messages.back().role == "user", "the user speaks last");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit::fuzz;
  const std::string all(text_of(data, size));
  const size_t cut = all.find("\n==\n");
  const std::string body = cut == std::string::npos ? all : all.substr(cut + 4);
  for (const auto route : {server::Route::completions, server::Route::chat}) {
    const auto request = parse_request(route, body);
    if (!accepted(request)) {
      expect(!error_answer("invalid_request_error", request.error().message).empty(), "a complaint can be said");
      continue;
    }
    expect(request->tokens >= 0, "a number of tokens is none below 0");
    expect(check(request->sampling).ok(), "what is read can be drawn by");
    for (const TokenId token : request->prompt_tokens)
      expect(token >= 0 && token < most_tokens, "tokens are numbers of tokens");
    StopStrings stop(request->stops);
    std::string shown = stop.next(request->prompt);
    shown += stop.finish();
    expect(request->prompt.starts_with(shown), "what is shown is what came");
    for (const std::string& one : request->stops)
      expect(shown.find(one) == std::string::npos, "no stop string is shown");
    if (route == server::Route::chat)
      converse(cut == std::string::npos ? "<|im_start|><|im_end|>assistant" : all.substr(0, cut), *request);
    whole_answer({route, "id", request->model, 0}, {request->prompt, "stop", {}, request->prompt_tokens, true});
  }
  const auto trace = parse_trace(body, "trace.json");
  if (accepted(trace)) {
    const auto again = parse_trace(trace_text(*trace), "again.json");
    expect(accepted(again) && *again == *trace, "a trace comes back from its text");
  }
  return 0;
}
