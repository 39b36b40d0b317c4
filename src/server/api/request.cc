#include "server/api/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/json_place.h"

namespace nlsplit::inline server {
namespace {

constexpr size_t most_stops = 4, longest_stop = 256;
constexpr int64_t most_tokens_of_answer = int64_t{1} << 30;

Result<int64_t> whole_from_to(const JsonPlace& place, int64_t least, int64_t most, int64_t otherwise) {
  if (place.is_null()) return otherwise;
  ASSIGN_OR_RETURN(const int64_t value, place.integer());
  if (value < least || value > most) return place.wrong(fmt::format("{} is not from {} to {}", value, least, most));
  return value;
}

Result<double> from_to(const JsonPlace& place, double least, double most, double otherwise) {
  if (place.is_null()) return otherwise;
  ASSIGN_OR_RETURN(const double value, place.number());
  if (!(value >= least && value <= most))
    return place.wrong(fmt::format("{} is not from {} to {}", place.excerpt(), least, most));
  return value;
}

Status read_prompt(const JsonPlace& place, CompletionRequest& request) {
  if (place.value->is_string()) {
    ASSIGN_OR_RETURN(request.prompt, place.text());
    return ok_status();
  }
  if (!place.value->is_array() || place.value->empty()) return place.wrong("neither a text nor a list of tokens");
  if (place.value->size() == 1 && place.element(0).value->is_string()) {
    ASSIGN_OR_RETURN(request.prompt, place.element(0).text());
    return ok_status();
  }
  if (place.element(0).value->is_string() || place.element(0).value->is_array())
    return place.not_supported("several prompts in one request; send one request for each");
  for (size_t at = 0; at < place.value->size(); ++at) {
    ASSIGN_OR_RETURN(const int64_t token, whole_from_to(place.element(at), 0, most_tokens - 1, 0));
    request.prompt_tokens.push_back(static_cast<TokenId>(token));
  }
  return ok_status();
}

// "…" or [{"type": "text", "text": "…"}, …].
Result<std::string> content_of(const JsonPlace& place) {
  if (!place.value->is_array()) return place.text();
  std::string all;
  for (size_t at = 0; at < place.value->size(); ++at) {
    const JsonPlace part = place.element(at);
    ASSIGN_OR_RETURN(const std::string type, part.optional("type").text());
    if (type != "text") return part.optional("type").not_supported(fmt::format("\"{}\": only text is read", type));
    ASSIGN_OR_RETURN(const std::string text, part.optional("text").text());
    all += text;
  }
  return all;
}

Status read_messages(const JsonPlace& place, CompletionRequest& request) {
  RETURN_IF_ERROR(place.must_be_array());
  for (size_t at = 0; at < place.value->size(); ++at) {
    const JsonPlace one = place.element(at);
    RETURN_IF_ERROR(one.must_be_object({"role", "content", "name"}));
    ChatMessage message;
    ASSIGN_OR_RETURN(message.role, one.optional("role").text());
    ASSIGN_OR_RETURN(message.content, content_of(one.optional("content")));
    request.messages.push_back(std::move(message));
  }
  return ok_status();
}

Status read_stops(const JsonPlace& place, CompletionRequest& request) {
  if (place.is_null()) return ok_status();
  const bool several = place.value->is_array();
  if (several && place.value->size() > most_stops)
    return place.wrong(fmt::format("{} texts; at most {} are read", place.value->size(), most_stops));
  for (size_t at = 0; at < (several ? place.value->size() : 1); ++at) {
    const JsonPlace one = several ? place.element(at) : place;
    ASSIGN_OR_RETURN(std::string stop, one.text());
    if (stop.empty() || stop.size() > longest_stop)
      return one.wrong(fmt::format("a text of 1 to {} bytes is wanted", longest_stop));
    request.stops.push_back(std::move(stop));
  }
  return ok_status();
}

Status read_sampling(const JsonPlace& root, Sampling& sampling) {
  ASSIGN_OR_RETURN(sampling.temperature, from_to(root.optional("temperature"), 0.0, 100.0, 0.0));
  ASSIGN_OR_RETURN(sampling.top_p, from_to(root.optional("top_p"), 0.0, 1.0, 1.0));
  ASSIGN_OR_RETURN(sampling.min_p, from_to(root.optional("min_p"), 0.0, 1.0, 0.0));
  ASSIGN_OR_RETURN(const int64_t top_k, whole_from_to(root.optional("top_k"), -1, most_tokens, 0));
  sampling.top_k = static_cast<int>(std::max<int64_t>(top_k, 0));  // others say -1 for "all"
  ASSIGN_OR_RETURN(const int64_t seed, whole_from_to(root.optional("seed"), INT64_MIN, INT64_MAX, 0));
  sampling.seed = static_cast<uint64_t>(seed);
  if (const Status fine = check(sampling); !fine.ok()) return root.wrong(fine.error().message);
  return ok_status();
}

// What is the same as not saying it.
bool says_nothing(const JsonPlace& place, std::string_view key) {
  const nlohmann::json& value = *place.value;
  if (value.is_null()) return true;
  if (key == "n" || key == "best_of") return value.is_number_integer() && value == 1;
  if (key == "tool_choice" || key == "function_call") return value == "none" || value == "auto";
  if (key == "parallel_tool_calls") return value.is_boolean();  // of the tools, and there are none
  if (key == "response_format")
    return value.is_object() && value.size() == 1 && *place.optional("type").value == "text";
  if (key == "suffix") return value == "";
  if (key == "echo" || key == "logprobs") return value == false;  // `logprobs: 0` asks for those of the answer
  if (value.is_number()) return value == 0;
  return value.is_structured() && value.empty();
}

// Keys that are passed over; those that count only if they ask for nothing; and those that are read.
constexpr std::array passed_over = {"user",         "metadata",          "store",
                                    "service_tier", "safety_identifier", "prompt_cache_key"};
constexpr std::array only_as_default = {"n",
                                        "best_of",
                                        "echo",
                                        "suffix",
                                        "logprobs",
                                        "top_logprobs",
                                        "logit_bias",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "tools",
                                        "tool_choice",
                                        "functions",
                                        "function_call",
                                        "response_format",
                                        "parallel_tool_calls"};
constexpr std::array read_of_all = {"model",  "temperature",    "top_p",      "min_p",
                                    "top_k",  "seed",           "stop",       "max_tokens",
                                    "stream", "stream_options", "ignore_eos", "return_token_ids"};

Status check_keys(const JsonPlace& root, Route route) {
  for (const auto& [key, value] : root.value->items()) {
    const auto is_one_of = [&key = key](const auto& keys) { return std::ranges::find(keys, key) != keys.end(); };
    if (is_one_of(passed_over) || is_one_of(read_of_all)) continue;
    if (route == Route::chat ? key == "messages" || key == "max_completion_tokens" : key == "prompt") continue;
    const JsonPlace place = root.optional(key.c_str());
    if (!is_one_of(only_as_default))
      return root.not_supported(fmt::format("the key \"{}\" is not known", key.substr(0, 80)));
    if (!says_nothing(place, key)) return place.not_supported(fmt::format("{} is not supported", place.excerpt()));
  }
  return ok_status();
}

}  // namespace

Result<CompletionRequest> parse_request(Route route, std::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json whole, parse_json(body, "", KeyTwice::is_wrong));
  const JsonPlace root{&whole, ""};
  if (!whole.is_object()) return root.wrong(fmt::format("{} is not an object", root.excerpt()));
  RETURN_IF_ERROR(check_keys(root, route));
  CompletionRequest request;
  request.route = route;
  if (const JsonPlace model = root.optional("model"); !model.is_null()) {
    ASSIGN_OR_RETURN(request.model, model.text());
  }
  if (route == Route::chat) {
    RETURN_IF_ERROR(read_messages(root.optional("messages"), request));
  } else {
    RETURN_IF_ERROR(read_prompt(root.optional("prompt"), request));
  }
  const JsonPlace newer = root.optional("max_completion_tokens");
  ASSIGN_OR_RETURN(request.tokens,
                   whole_from_to(newer.is_null() ? root.optional("max_tokens") : newer, 1, most_tokens_of_answer, 0));
  RETURN_IF_ERROR(read_sampling(root, request.sampling));
  request.has_seed = !root.optional("seed").is_null();
  RETURN_IF_ERROR(read_stops(root.optional("stop"), request));
  ASSIGN_OR_RETURN(request.streams, root.optional("stream").flag(false));
  if (const JsonPlace options = root.optional("stream_options"); !options.is_null()) {
    RETURN_IF_ERROR(options.must_be_object({"include_usage", "include_obfuscation"}));
    ASSIGN_OR_RETURN(request.reports_usage, options.optional("include_usage").flag(false));
  }
  ASSIGN_OR_RETURN(request.ignores_end, root.optional("ignore_eos").flag(false));
  ASSIGN_OR_RETURN(request.returns_tokens, root.optional("return_token_ids").flag(false));
  return request;
}

}  // namespace nlsplit::inline server
