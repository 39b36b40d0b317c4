#include "serving/arrivals.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_place.h"
#include "base/random.h"

namespace nlsplit::inline serving {
namespace {

constexpr int64_t most_requests = 1'000'000;

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failure == std::errc() && end == text.data() + text.size() && !text.empty();
}

Status read_prefix(const JsonPlace& one, ArrivingRequest& request) {
  const JsonPlace prefix = one.optional("prefix"), text = one.optional("text");
  if (!prefix.is_null()) {
    ASSIGN_OR_RETURN(request.prefix, prefix.integer());
    if (request.prefix < 1 || request.prefix > request.prompt)
      return prefix.wrong(fmt::format("{} is not from 1 to the prompt's {} tokens", request.prefix, request.prompt));
  }
  if (text.is_null()) return ok_status();
  if (request.prefix == 0) return text.wrong("a text, and no `prefix` says how much of it the prompt begins with");
  ASSIGN_OR_RETURN(request.text, text.integer());
  return request.text >= 0 ? ok_status() : Status(text.wrong(fmt::format("{} is below 0", request.text)));
}

Result<RequestTrace> read_trace(const JsonPlace& root) {
  RETURN_IF_ERROR(root.must_be_object({"format", "version", "seed", "requests"}));
  ASSIGN_OR_RETURN(const std::string format, root.optional("format").text());
  ASSIGN_OR_RETURN(const int64_t version, root.optional("version").integer());
  if (format != "nlsplit-requests" || version != 1) return root.wrong("this is no \"nlsplit-requests\" of version 1");
  RequestTrace trace;
  ASSIGN_OR_RETURN(const int64_t seed, root.optional("seed").integer());
  trace.seed = static_cast<uint64_t>(seed);
  const JsonPlace list = root.optional("requests");
  RETURN_IF_ERROR(list.must_be_array());
  if (std::ssize(*list.value) > most_requests) return list.wrong(fmt::format("more than {} requests", most_requests));
  double before = 0;
  for (size_t r = 0; r < list.value->size(); ++r) {
    const JsonPlace one = list.element(r);
    RETURN_IF_ERROR(one.must_be_object({"at_s", "prompt", "tokens", "prefix", "text"}));
    ArrivingRequest request;
    ASSIGN_OR_RETURN(request.at_s, one.optional("at_s").number());
    if (!(request.at_s >= before))
      return one.optional("at_s").wrong("it comes before the previous request, or before 0");
    if (request.at_s > latest_arrival_s)
      return one.optional("at_s").wrong(fmt::format("{} is beyond {}", request.at_s, latest_arrival_s));
    before = request.at_s;
    ASSIGN_OR_RETURN(request.prompt, one.optional("prompt").integer());
    ASSIGN_OR_RETURN(request.tokens, one.optional("tokens").integer());
    for (const int64_t length : {request.prompt, request.tokens}) {
      if (length < 1 || length > longest_text)
        return one.wrong(fmt::format("{} is not a length from 1 to {}", length, longest_text));
    }
    RETURN_IF_ERROR(read_prefix(one, request));
    trace.requests.push_back(request);
  }
  return trace;
}

}  // namespace

Result<LengthRange> parse_lengths(const std::string& text) {
  const size_t dots = text.find("..");
  LengthRange range;
  const std::string_view all = text;
  const bool fine = read_number(all.substr(0, dots), range.least) &&
                    read_number(dots == std::string::npos ? all : all.substr(dots + 2), range.most);
  if (!fine || range.least < 1 || range.most < range.least || range.most > longest_text)
    return invalid_input(fmt::format("\"{}\" is not a length such as 64 or 32..128", text));
  return range;
}

Result<double> parse_rate(const std::string& text) {
  const size_t slash = text.find('/');
  const std::string unit = slash == std::string::npos ? "" : text.substr(slash + 1);
  double rate = 0;
  const double second = unit == "s" ? 1 : unit == "min" ? 60 : unit == "h" ? 3600 : 0;
  if (second == 0 || !read_number(std::string_view(text).substr(0, slash), rate) || !(rate > 0) || !std::isfinite(rate))
    return invalid_input(fmt::format("\"{}\" is not a rate such as 2/s, 30/min or 100/h", text));
  return rate / second;
}

RequestTrace poisson_trace(const ArrivalOptions& options) {
  RequestTrace trace;
  trace.seed = options.seed;
  Random random(options.seed);
  const auto length = [&](LengthRange range) {
    return range.least + static_cast<int64_t>(random.below(static_cast<uint64_t>(range.most - range.least + 1)));
  };
  double now = 0;
  for (int64_t r = 0; r < options.requests; ++r) {
    now -= std::log(1 - random.uniform()) / options.rate;
    ArrivingRequest request{.at_s = now, .prompt = length(options.prompt), .tokens = length(options.tokens)};
    if (options.prefix > 0) {
      request.prefix = options.prefix;
      request.prompt += options.prefix;
      request.text = static_cast<int64_t>(random.below(static_cast<uint64_t>(options.texts)));
    }
    trace.requests.push_back(request);
  }
  return trace;
}

std::string trace_text(const RequestTrace& trace) {
  std::string text = fmt::format("{{\"format\": \"nlsplit-requests\", \"version\": 1, \"seed\": {}, \"requests\": [",
                                 static_cast<int64_t>(trace.seed));
  for (size_t r = 0; r < trace.requests.size(); ++r) {
    const ArrivingRequest& one = trace.requests[r];
    text += fmt::format("{}\n  {{\"at_s\": {}, \"prompt\": {}, \"tokens\": {}", r == 0 ? "" : ",", one.at_s, one.prompt,
                        one.tokens);
    if (one.prefix > 0) text += fmt::format(", \"prefix\": {}", one.prefix);
    if (one.text > 0) text += fmt::format(", \"text\": {}", one.text);
    text += "}";
  }
  return text + "]}\n";
}

Result<RequestTrace> parse_trace(const std::string& text, const std::string& file) {
  ASSIGN_OR_RETURN(const nlohmann::json whole, parse_json(text, file));
  Result<RequestTrace> trace = read_trace(JsonPlace{&whole, ""});
  if (!trace.ok()) return in_file(file, trace.error());
  return trace;
}

std::vector<int32_t> prompt_of(const RequestTrace& trace, size_t request, int64_t vocabulary) {
  const ArrivingRequest& of = trace.requests[request];
  Random seeds(trace.seed);
  Random own(seeds.next() + request), shared(seeds.next() + static_cast<uint64_t>(of.text));
  std::vector<int32_t> tokens(static_cast<size_t>(of.prompt));
  const auto draw = [&](Random& from) { return static_cast<int32_t>(from.below(static_cast<uint64_t>(vocabulary))); };
  for (size_t t = 0; t < tokens.size(); ++t) tokens[t] = draw(std::cmp_less(t, of.prefix) ? shared : own);
  return tokens;
}

int64_t common_prefix(const ArrivingRequest& one, const ArrivingRequest& other) {
  return one.text == other.text ? std::min(one.prefix, other.prefix) : 0;
}

}  // namespace nlsplit::inline serving
