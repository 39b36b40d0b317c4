#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <random>
#include <utility>

#include "text/answer_stream.h"

namespace nlsplit::inline server {
namespace {

constexpr int64_t tokens_of_completions = 16;  // as OpenAI's, where the request does not say

HttpAnswer refused(int status, std::string_view type, std::string_view message) {
  return {status, "application/json", error_answer(type, message)};
}

// Takes as long whatever is wrong.
bool same_secret(std::string_view given, std::string_view wanted) {
  unsigned char differs = given.size() == wanted.size() ? 0 : 1;
  for (size_t at = 0; at < wanted.size(); ++at)
    differs |= static_cast<unsigned char>(wanted[at] ^ (at < given.size() ? given[at] : '\0'));
  return differs == 0;
}

// One request from the first token to its end. Its functions run on the session's thread.
class Answering {
 public:
  Answering(AnswerHead head, const CompletionRequest& request, const Tokenizer& tokenizer, int64_t prompt,
            HttpReply reply)
      : head_(std::move(head)),
        streams_(request.streams),
        reports_usage_(request.reports_usage),
        with_tokens_(request.returns_tokens),
        prompt_(prompt),
        reply_(std::move(reply)),
        stream_(tokenizer, request.ignores_end ? std::vector<TokenId>() : tokenizer.ends, request.stops,
                head_.route == Route::chat ? TextBegin::here : TextBegin::before) {}

  bool on_token(TokenId token) {
    tokens_.push_back(token);
    const Result<std::string> text = stream_.next(token);
    if (!text.ok()) {
      wrong_ = text.error().message;
      return true;
    }
    if (!streams_) {
      text_ += *text;
    } else if (!text->empty() || with_tokens_) {
      const std::vector<TokenId> one = {token};
      reply_.piece(text_event(head_, *text, with_tokens_ ? &one : nullptr));
    }
    return stream_.ended();
  }

  void on_finish(Finish how, int64_t cached) {
    if (how == Finish::shutdown) return break_off(503, "server_error", "the server ends");
    if (how == Finish::failed || !wrong_.empty())
      return break_off(500, "server_error", wrong_.empty() ? "the run of the model broke off" : wrong_);
    const std::string rest = stream_.finish();
    const std::string finish = stream_.ended() ? "stop" : "length";
    const Usage usage{prompt_, std::ssize(tokens_), cached};
    if (!streams_) {
      reply_.whole(
          {200, "application/json", whole_answer(head_, {text_ + rest, finish, usage, tokens_, with_tokens_})});
      return;
    }
    std::string last = rest.empty() ? "" : text_event(head_, rest, nullptr);
    last += last_event(head_, finish);
    if (reports_usage_) last += usage_event(head_, usage);
    reply_.end(last + done_event());
  }

 private:
  void break_off(int status, std::string_view type, std::string_view why) {
    if (streams_)
      reply_.end(error_event(type, why));
    else
      reply_.whole(refused(status, type, why));
  }

  const AnswerHead head_;
  const bool streams_, reports_usage_, with_tokens_;
  const int64_t prompt_;
  const HttpReply reply_;
  AnswerStream stream_;
  std::vector<TokenId> tokens_;
  std::string text_, wrong_;
};

}  // namespace

Service::Service(ServiceOptions options, const Tokenizer& tokenizer, const Result<ChatTemplate>& chat,
                 const GenerationForm& form, Engine& engine)
    : options_(std::move(options)), tokenizer_(tokenizer), chat_(chat), form_(form), engine_(engine) {}

bool Service::may(const HttpRequest& request) const {
  constexpr std::string_view scheme = "Bearer ";
  if (options_.token.empty()) return true;
  const std::string_view given = request.authorization;
  return given.starts_with(scheme) && same_secret(given.substr(scheme.size()), options_.token);
}

void Service::handle(HttpRequest request, const HttpReply& reply) {
  const std::string path = request.target.substr(0, request.target.find('?'));
  const bool get = request.method == "GET" || request.method == "HEAD", post = request.method == "POST";
  if (path == "/health" && get) return reply.whole({200, "application/json", R"({"status":"ok"})"});
  if (!may(request)) {
    HttpAnswer answer = refused(401, "authentication_error", "\"Authorization: Bearer TOKEN\" is missing or wrong");
    answer.headers = {{"WWW-Authenticate", "Bearer"}};
    return reply.whole(std::move(answer));
  }
  const bool completions = path == "/v1/completions", chat = path == "/v1/chat/completions";
  if (post && (completions || chat)) return complete(chat ? Route::chat : Route::completions, request.body, reply);
  if (get && path == "/v1/models")
    return reply.whole({200, "application/json", models_answer(options_.model, options_.created)});
  if (get && path == "/metrics") {
    const auto answers = options_.answers ? options_.answers() : std::map<int, uint64_t>();
    return reply.whole({200, "text/plain; version=0.0.4", prometheus_text(engine_.counts(), answers)});
  }
  const bool known = completions || chat || path == "/v1/models" || path == "/metrics" || path == "/health";
  HttpAnswer answer = known ? refused(405, "invalid_request_error",
                                      fmt::format("{} takes {}", path, completions || chat ? "POST" : "GET"))
                            : refused(404, "not_found_error",
                                      "the routes are POST /v1/completions, /v1/chat/completions; GET /v1/models, "
                                      "/health, /metrics");
  if (known) answer.headers = {{"Allow", completions || chat ? "POST" : "GET"}};
  reply.whole(std::move(answer));
}

Result<std::vector<TokenId>> Service::prompt_of(const CompletionRequest& request) const {
  if (request.route == Route::chat) {
    if (!chat_.ok()) return chat_.error();
    ASSIGN_OR_RETURN(const std::string text, chat_text(*chat_, request.messages, today()));
    return encode(tokenizer_, text, Around::without);
  }
  if (!request.prompt_tokens.empty()) return request.prompt_tokens;
  return encode_beginning(tokenizer_, request.prompt);
}

Result<EngineRequest> Service::engine_request(CompletionRequest& request) const {
  EngineRequest made;
  ASSIGN_OR_RETURN(made.prompt, prompt_of(request));
  made.tokens = request.tokens;
  if (made.tokens == 0) {
    const int64_t room = form_.context - std::ssize(made.prompt) + 1;
    made.tokens = std::clamp<int64_t>(room, 1, request.route == Route::chat ? options_.tokens : tokens_of_completions);
  }
  RETURN_IF_ERROR(check_prompt(form_, made.prompt, made.tokens));
  made.sampling = request.sampling;
  if (!request.has_seed) made.sampling.seed = std::random_device()();
  if (made.sampling.temperature > 0 && std::max<int64_t>(made.sampling.top_k, 2) > form_.candidates)
    return invalid_input(fmt::format("one of {} would be drawn, and the plan gives {}: `candidates` of the workload",
                                     std::max(made.sampling.top_k, 2), form_.candidates));
  return made;
}

void Service::complete(Route route, const std::string& body, const HttpReply& reply) {
  constexpr std::string_view wrong = "invalid_request_error";
  Result<CompletionRequest> request = parse_request(route, body);
  if (!request.ok()) return reply.whole(refused(400, wrong, request.error().message));
  if (!request->model.empty() && request->model != options_.model)
    return reply.whole(refused(404, "not_found_error", fmt::format("the model here is called {}", options_.model)));
  Result<EngineRequest> engine_request = this->engine_request(*request);
  if (!engine_request.ok()) return reply.whole(refused(400, wrong, engine_request.error().message));
  const int64_t now = std::time(nullptr);
  AnswerHead head{route, fmt::format("{}-{:x}-{}", route == Route::chat ? "chatcmpl" : "cmpl", now, ++answers_),
                  options_.model, now};
  const auto answering =
      std::make_shared<Answering>(head, *request, tokenizer_, std::ssize(engine_request->prompt), reply);
  engine_request->on_token = [answering](TokenId token) { return answering->on_token(token); };
  engine_request->on_finish = [answering](Finish how, int64_t cached) { answering->on_finish(how, cached); };
  // Before it may make its first token: what is told on the session's thread comes behind.
  const auto id = engine_.submit(std::move(*engine_request));
  if (!id && engine_.ended()) return reply.whole(refused(503, "server_error", "the server ends"));
  if (!id) {
    HttpAnswer answer =
        refused(429, "overloaded_error", "the largest numbers of running and waiting requests are reached");
    answer.headers = {{"Retry-After", fmt::format("{:.0f}", engine_.retry_after_s())}};
    return reply.whole(std::move(answer));
  }
  if (request->streams) reply.begin({200, "text/event-stream", first_event(head), {{"Cache-Control", "no-cache"}}});
  reply.on_gone([this, id = *id] { engine_.cancel(id); });
}

}  // namespace nlsplit::inline server
