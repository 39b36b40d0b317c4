#include "server/api/answer.h"

#include <nlohmann/json.hpp>

namespace nlsplit::inline server {
namespace {

using nlohmann::ordered_json;

std::string dumped(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}
std::string event(const ordered_json& value) { return "data: " + dumped(value) + "\n\n"; }

ordered_json head_of(const AnswerHead& head, bool streams) {
  const bool chat = head.route == Route::chat;
  const char* const kind = !chat ? "text_completion" : streams ? "chat.completion.chunk" : "chat.completion";
  return {{"id", head.id}, {"object", kind}, {"created", head.created}, {"model", head.model}};
}

ordered_json usage_json(Usage usage) {
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.answer},
          {"total_tokens", usage.prompt + usage.answer},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}}};
}

ordered_json error_json(std::string_view type, std::string_view message) {
  return {{"error", {{"message", message}, {"type", type}, {"param", nullptr}, {"code", nullptr}}}};
}

std::string event_of(const AnswerHead& head, ordered_json choice) {
  choice["index"] = 0;
  ordered_json all = head_of(head, true);
  all["choices"] = ordered_json::array({std::move(choice)});
  return event(all);
}

}  // namespace

std::string whole_answer(const AnswerHead& head, const WholeAnswer& answer) {
  ordered_json choice = {{"index", 0}};
  if (head.route == Route::chat)
    choice["message"] = {{"role", "assistant"}, {"content", answer.text}};
  else
    choice["text"] = answer.text;
  choice["finish_reason"] = answer.finish;
  choice["logprobs"] = nullptr;
  if (answer.with_tokens) choice["token_ids"] = answer.tokens;
  ordered_json all = head_of(head, false);
  all["choices"] = ordered_json::array({std::move(choice)});
  all["usage"] = usage_json(answer.usage);
  return dumped(all);
}

std::string first_event(const AnswerHead& head) {
  if (head.route != Route::chat) return {};
  return event_of(head, {{"delta", {{"role", "assistant"}, {"content", ""}}}, {"finish_reason", nullptr}});
}

std::string text_event(const AnswerHead& head, std::string_view text, const std::vector<TokenId>* tokens) {
  ordered_json choice;
  if (head.route == Route::chat)
    choice["delta"] = {{"content", text}};
  else
    choice["text"] = text;
  choice["finish_reason"] = nullptr;
  if (tokens != nullptr) choice["token_ids"] = *tokens;
  return event_of(head, std::move(choice));
}

std::string last_event(const AnswerHead& head, std::string_view finish) {
  ordered_json choice;
  if (head.route == Route::chat)
    choice["delta"] = ordered_json::object();
  else
    choice["text"] = "";
  choice["finish_reason"] = finish;
  return event_of(head, std::move(choice));
}

std::string usage_event(const AnswerHead& head, Usage usage) {
  ordered_json all = head_of(head, true);
  all["choices"] = ordered_json::array();
  all["usage"] = usage_json(usage);
  return event(all);
}

std::string done_event() { return "data: [DONE]\n\n"; }

std::string error_event(std::string_view type, std::string_view message) { return event(error_json(type, message)); }

std::string error_answer(std::string_view type, std::string_view message) { return dumped(error_json(type, message)); }

std::string models_answer(std::string_view model, int64_t created) {
  return dumped({{"object", "list"},
                 {"data", ordered_json::array(
                              {{{"id", model}, {"object", "model"}, {"created", created}, {"owned_by", "nlsplit"}}})}});
}

}  // namespace nlsplit::inline server
