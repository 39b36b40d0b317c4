// The routes of a server, as OpenAI's programming interface names them: POST /v1/completions and /v1/chat/completions,
// whole or as a stream of events, and GET /v1/models, /health and /metrics.
//
//   Service service({.model = "SmolLM2"}, tokenizer, chat, form, engine);
//   auto http = HttpServer::open(options, [&](HttpRequest request, HttpReply reply) {
//     service.handle(std::move(request), reply); });
#pragma once

#include <functional>
#include <map>
#include <string>

#include "server/api/answer.h"
#include "server/engine.h"
#include "server/http_server.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace nlsplit::inline server {

struct ServiceOptions {
  std::string model;    // its name
  std::string token;    // what requests must bring ("Authorization: Bearer …"); empty: nothing
  int64_t tokens = 16;  // of a chat's answer, where the request does not say
  int64_t created = 0;  // of the model: seconds since 1970
  std::function<std::map<int, uint64_t>()> answers = nullptr;  // HTTP's, by status: for /metrics
};

class Service {
 public:
  // All is borrowed. `chat`: an error says why there are no conversations.
  Service(ServiceOptions options, const Tokenizer& tokenizer, const Result<ChatTemplate>& chat,
          const GenerationForm& form, Engine& engine);

  // On the thread of HTTP.
  void handle(HttpRequest request, const HttpReply& reply);

 private:
  bool may(const HttpRequest& request) const;
  void complete(Route route, const std::string& body, const HttpReply& reply);
  Result<std::vector<TokenId>> prompt_of(const CompletionRequest& request) const;
  // The prompt's tokens and how many may follow. Error: it does not fit the model, or what is asked for is not there.
  Result<EngineRequest> engine_request(CompletionRequest& request) const;

  ServiceOptions options_;
  const Tokenizer& tokenizer_;
  const Result<ChatTemplate>& chat_;
  const GenerationForm& form_;
  Engine& engine_;
  uint64_t answers_ = 0;
};

}  // namespace nlsplit::inline server
