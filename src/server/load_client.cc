#include "server/load_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

namespace nlsplit::inline server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Clock = std::chrono::steady_clock;
using LoadError = boost::system::error_code;
using Endpoints = asio::ip::tcp::resolver::results_type;

constexpr uint64_t longest_answer = uint64_t{1} << 26;

struct Load {
  const RequestTrace& trace;
  const LoadOptions& options;
  Endpoints endpoints;
  Clock::time_point begin;
  std::vector<ServedRequest> served;
  std::vector<bool> ended;
  size_t open = 0;  // requests that have not ended

  double now_s() const { return std::chrono::duration<double>(Clock::now() - begin).count(); }
};

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::string body_of(const Load& load, size_t request) {
  const nlohmann::json body = {{"prompt", prompt_of(load.trace, request, load.options.vocabulary)},
                               {"max_tokens", load.trace.requests[request].tokens},
                               {"temperature", 0},
                               {"stream", true},
                               {"stream_options", {{"include_usage", true}}},
                               {"ignore_eos", true},
                               {"return_token_ids", true}};
  return body.dump();
}

// One request, from its connection to its last token.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(asio::io_context& context, Load& load, size_t request)
      : stream_(context), load_(load), served_(load.served[request]), request_(request) {
    parser_.body_limit(longest_answer);
  }

  void start() {
    stream_.expires_at(load_.begin + duration_of(served_.at_s + load_.options.patience_s));
    stream_.async_connect(load_.endpoints, [self = shared_from_this()](LoadError error, const auto&) {
      if (error) return self->fail("connect: " + error.message());
      self->send();
    });
  }

 private:
  void send() {
    const ServerUrl& url = load_.options.url;
    const std::string body = body_of(load_, request_);
    text_ = fmt::format(
        "POST {}/v1/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}"
        "Connection: close\r\n\r\n{}",
        url.path, host_and_port(url), body.size(),
        load_.options.token.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", load_.options.token), body);
    asio::async_write(stream_, asio::buffer(text_), [self = shared_from_this()](LoadError error, size_t) {
      if (error) return self->fail("send: " + error.message());
      self->read();
    });
  }

  void read() {
    http::async_read_some(stream_, buffer_, parser_,
                          [self = shared_from_this()](LoadError error, size_t) { self->on_read(error); });
  }

  void on_read(LoadError error) {
    if (error) return fail("receive: " + error.message());
    if (parser_.is_header_done() && parser_.get().result_int() == 200) take_events();
    if (ended_) return;
    if (!parser_.is_done()) return read();
    const int status = parser_.get().result_int();
    if (status != 200) {
      served_.outcome = status == 429 ? Outcome::turned_away : Outcome::failed;
      return end(fmt::format("status {}: {}", status, parser_.get().body().substr(0, 200)));
    }
    fail("the answer ended in the middle");
  }

  // "data: {…}\n\n" as far as they are complete.
  void take_events() {
    std::string& body = parser_.get().body();
    constexpr std::string_view data = "data: ";
    for (size_t at = body.find("\n\n"); at != std::string::npos && !ended_; at = body.find("\n\n")) {
      const std::string event = body.substr(0, at);
      body.erase(0, at + 2);
      if (event.starts_with(data)) take(event.substr(data.size()));
    }
  }

  void take(const std::string& event) {
    if (event == "[DONE]") {
      served_.outcome = served_.tokens > 0 ? Outcome::answered : Outcome::failed;
      return end(served_.tokens > 0 ? "" : "the answer has no token");
    }
    const nlohmann::json value = nlohmann::json::parse(event, nullptr, false);
    if (!value.is_object()) return fail("an event that is no JSON");
    if (value.contains("error"))
      return fail(value["error"].dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    take_usage(value);
    const auto choices = value.find("choices");
    if (choices == value.end() || !choices->is_array() || choices->empty() || !(*choices)[0].is_object()) return;
    const nlohmann::json& choice = (*choices)[0];
    const auto ids = choice.find("token_ids");
    const auto text = choice.find("text");
    int64_t tokens = text != choice.end() && text->is_string() && !text->get_ref<const std::string&>().empty() ? 1 : 0;
    tells_tokens_ = tells_tokens_ || ids != choice.end();
    if (tells_tokens_) tokens = ids != choice.end() && ids->is_array() ? std::ssize(*ids) : 0;
    if (tokens == 0) return;
    if (served_.tokens == 0) served_.first_s = load_.now_s();
    served_.last_s = load_.now_s();
    served_.tokens += tokens;
  }

  // Other servers may not say what they reused.
  void take_usage(const nlohmann::json& event) {
    static const nlohmann::json::json_pointer place("/usage/prompt_tokens_details/cached_tokens");
    if (event.contains(place) && event.at(place).is_number_integer())
      served_.cached = std::clamp<int64_t>(event.at(place).get<int64_t>(), 0, served_.prompt);
  }

  void fail(const std::string& why) {
    served_.outcome = Outcome::failed;
    end(why);
  }

  void end(std::string why) {
    ended_ = true;
    served_.why = std::move(why);
    stream_.close();
    load_.ended[request_] = true;
    --load_.open;
  }

  beast::tcp_stream stream_;
  Load& load_;
  ServedRequest& served_;
  const size_t request_;
  std::string text_;
  beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
  bool ended_ = false;
  bool tells_tokens_ = false;  // else each event with text counts as one
};

// Begins each request at its time.
class Starter {
 public:
  Starter(asio::io_context& context, Load& load) : context_(context), load_(load), timer_(context), look_(context) {}

  void start() {
    next();
    look();
  }

 private:
  void next() {
    if (at_ == load_.trace.requests.size()) return;
    timer_.expires_at(load_.begin + duration_of(load_.trace.requests[at_].at_s));
    timer_.async_wait([this](LoadError error) {
      if (error) return;
      std::make_shared<Exchange>(context_, load_, at_++)->start();
      next();
    });
  }

  void look() {
    if (load_.open == 0 || (load_.options.cancelled != nullptr && load_.options.cancelled())) return context_.stop();
    look_.expires_after(std::chrono::milliseconds(20));
    look_.async_wait([this](LoadError) { look(); });
  }

  asio::io_context& context_;
  Load& load_;
  asio::steady_timer timer_, look_;
  size_t at_ = 0;
};

}  // namespace

Result<ServerUrl> parse_url(const std::string& url) {
  constexpr std::string_view scheme = "http://";
  const auto wrong = [&] {
    return invalid_input(fmt::format("\"{}\" is no URL of a server: http://127.0.0.1:8080", url));
  };
  if (!url.starts_with(scheme)) return wrong();
  std::string rest = url.substr(scheme.size());
  ServerUrl made;
  made.port = "80";
  if (const size_t slash = rest.find('/'); slash != std::string::npos) {
    made.path = rest.substr(slash);
    while (made.path.ends_with('/')) made.path.pop_back();
    rest.resize(slash);
  }
  const size_t colon = rest.rfind(':');
  if (colon != std::string::npos && rest.find(']', colon) == std::string::npos) {
    made.port = rest.substr(colon + 1);
    rest.resize(colon);
  }
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  made.host = rest;
  if (made.host.empty() || made.port.empty() || made.port.find_first_not_of("0123456789") != std::string::npos)
    return wrong();
  return made;
}

std::string host_and_port(const ServerUrl& url) {
  const bool is_ipv6 = url.host.find(':') != std::string::npos;
  return is_ipv6 ? fmt::format("[{}]:{}", url.host, url.port) : fmt::format("{}:{}", url.host, url.port);
}

Result<LoadResult> run_load(const RequestTrace& trace, const LoadOptions& options) {
  asio::io_context context(1);
  asio::ip::tcp::resolver resolver(context);
  LoadError error;
  Load load{.trace = trace,
            .options = options,
            .endpoints = resolver.resolve(options.url.host, options.url.port, error),
            .begin = {},
            .served = {},
            .ended = std::vector<bool>(trace.requests.size()),
            .open = trace.requests.size()};
  if (error) return invalid_input(fmt::format("{}: {}", host_and_port(options.url), error.message()));
  for (const ArrivingRequest& request : trace.requests)
    load.served.push_back({.at_s = request.at_s, .prompt = request.prompt});
  load.begin = Clock::now();
  Starter starter(context, load);
  starter.start();
  context.run();
  LoadResult result;
  for (size_t r = 0; r < load.served.size(); ++r) {
    if (load.ended[r])
      result.served.push_back(std::move(load.served[r]));
    else
      ++result.missing;
  }
  return result;
}

}  // namespace nlsplit::inline server
