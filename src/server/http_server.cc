#include "server/http_server.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <set>

#include "server/api/answer.h"

namespace nlsplit::inline server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

struct Shared {
  HttpOptions options;
  HttpServer::Handler handler;
  std::set<std::shared_ptr<HttpConnection>> connections;
  std::map<int, uint64_t> answers;  // by status
  size_t lingering = 0;             // of the connections: they are answered
  bool stops = false;
};

std::string_view reason_of(int status) {
  const beast::string_view reason = http::obsolete_reason(static_cast<http::status>(status));
  return {reason.data(), reason.size()};
}

}  // namespace

// Its functions run on the server's thread.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(Tcp::socket socket, Shared& shared) : stream_(std::move(socket)), shared_(shared) {}

  asio::any_io_executor executor() { return stream_.get_executor(); }

  void read() {
    parser_.emplace();
    parser_->header_limit(shared_.options.most_header);
    parser_->body_limit(shared_.options.most_body);
    stream_.expires_after(milliseconds_of(shared_.options.patience_s));
    reads_ = true;
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](ErrorCode error, size_t) {
      self->reads_ = false;
      self->on_request(error);
    });
  }

  void answer(HttpAnswer answer) {
    if (state_ != State::asked) return;
    state_ = State::answered;
    const bool head = parser_ && parser_->is_header_done() && parser_->get().method() == http::verb::head;
    send(head_of(answer, fmt::format("Content-Length: {}\r\n", answer.body.size())) + (head ? "" : answer.body));
  }

  void begin(HttpAnswer head) {
    if (state_ != State::asked) return;
    state_ = State::streams;
    chunked_ = parser_->get().version() >= 11;
    if (!chunked_) keeps_ = false;  // the end of the connection is the answer's
    send(head_of(head, chunked_ ? "Transfer-Encoding: chunked\r\n" : "") + in_chunk(head.body));
  }

  void piece(const std::string& text) {
    if (state_ == State::streams) send(in_chunk(text));
  }

  void end(const std::string& text) {
    if (state_ != State::streams) return;
    state_ = State::answered;
    send(in_chunk(text) + (chunked_ ? "0\r\n\r\n" : ""));
  }

  void on_gone(std::function<void()> told) {
    if (state_ == State::asked || state_ == State::streams) gone_ = std::move(told);
  }

  // The server ends: a connection that waits for a request does not wait any longer.
  void stop() {
    keeps_ = false;
    if ((state_ == State::reading && reads_) || state_ == State::lingers) close();
  }

  void close() {
    if (state_ == State::closed) return;
    if (state_ == State::lingers) --shared_.lingering;
    state_ = State::closed;
    if (auto told = std::exchange(gone_, nullptr)) told();
    ErrorCode ignored;
    stream_.socket().shutdown(Tcp::socket::shutdown_both, ignored);
    stream_.close();
    shared_.connections.erase(shared_from_this());
  }

  // Beyond the limit of connections: said, if it can be said at once.
  void refuse() {
    state_ = State::asked;
    keeps_ = false;
    unread_ = true;
    answer({503, "application/json", error_answer("overloaded_error", "too many connections"), {{"Retry-After", "1"}}});
  }

 private:
  enum class State : uint8_t { reading, asked, streams, answered, lingers, closed };

  void on_request(ErrorCode error) {
    if (state_ != State::reading) return;
    const auto wrong = [&](int status, std::string_view why) {
      state_ = State::asked;
      keeps_ = false;
      unread_ = true;
      answer({status, "application/json", error_answer("invalid_request_error", why)});
    };
    if (error == http::error::header_limit)
      return wrong(431, fmt::format("headers beyond {} bytes", shared_.options.most_header));
    if (error == http::error::body_limit)
      return wrong(413, fmt::format("a body beyond {} bytes", shared_.options.most_body));
    if (error && error != http::error::end_of_stream &&
        error.category() == http::make_error_code(http::error::bad_method).category())
      return wrong(400, "this is not HTTP/1.1: " + error.message());
    if (error) return close();
    const auto& message = parser_->get();
    keeps_ = message.keep_alive() && !shared_.stops;
    state_ = State::asked;
    stream_.expires_never();  // an answer may take its time
    watch();
    const auto text = [](beast::string_view view) { return std::string(view.data(), view.size()); };
    shared_.handler({text(message.method_string()), text(message.target()), text(message[http::field::authorization]),
                     message.body()},
                    HttpReply(weak_from_this()));
  }

  // While an answer is under way nothing is expected from the client but that it goes.
  void watch() {
    stream_.socket().async_wait(Tcp::socket::wait_read, [self = shared_from_this(), asked = asked_](ErrorCode error) {
      if (error || self->asked_ != asked || self->state_ == State::closed) return;
      char byte = 0;
      const ssize_t got = ::recv(self->stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      if (got > 0) return;  // the next request, early
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return self->watch();
      self->close();
    });
  }

  std::string head_of(const HttpAnswer& answer, std::string_view length) {
    ++shared_.answers[answer.status];
    std::string head = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n{}Connection: {}\r\n", answer.status,
                                   reason_of(answer.status), answer.type, length, keeps_ ? "keep-alive" : "close");
    for (const auto& [name, value] : answer.headers) head += fmt::format("{}: {}\r\n", name, value);
    return head + "\r\n";
  }

  std::string in_chunk(const std::string& text) const {
    if (text.empty() || !chunked_) return text;
    return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
  }

  void send(std::string text) {
    waits_ += text;
    if (writing_.empty()) write();
  }

  void write() {
    writing_ = std::exchange(waits_, {});
    stream_.expires_after(milliseconds_of(shared_.options.patience_s));
    stream_.async_write_some(asio::buffer(writing_), [self = shared_from_this()](ErrorCode error, size_t written) {
      self->on_written(error, written);
    });
  }

  void on_written(ErrorCode error, size_t written) {
    if (state_ == State::closed) return;
    if (error) return close();
    writing_.erase(0, written);
    waits_.insert(0, writing_);
    writing_.clear();
    if (!waits_.empty()) return write();
    if (state_ != State::answered) return stream_.expires_never();
    gone_ = nullptr;
    if (unread_ && !shared_.stops && shared_.lingering < shared_.options.most_connections) return linger();
    if (!keeps_ || shared_.stops) return close();
    ++asked_;
    state_ = State::reading;
    chunked_ = false;
    read();
  }

  // A socket that is closed with unread bytes resets the connection, and the answer may be lost with it (RFC 9112,
  // 9.6): what the client still sends is thrown away, for a time.
  void linger() {
    state_ = State::lingers;
    ++shared_.lingering;
    ErrorCode ignored;
    stream_.socket().shutdown(Tcp::socket::shutdown_send, ignored);
    stream_.expires_after(milliseconds_of(shared_.options.goodbye_s));
    rest_.resize(size_t{16} << 10);
    throw_away();
  }

  void throw_away() {
    stream_.async_read_some(asio::buffer(rest_), [self = shared_from_this()](ErrorCode error, size_t) {
      if (self->state_ != State::lingers) return;
      if (error) return self->close();
      self->throw_away();
    });
  }

  beast::tcp_stream stream_;
  Shared& shared_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  State state_ = State::reading;
  bool keeps_ = true, chunked_ = false, reads_ = false;
  bool unread_ = false;          // the request was answered before all of it was read
  uint64_t asked_ = 0;           // requests so far: a watch of an earlier one is none of this one
  std::string writing_, waits_;  // under way, and behind it
  std::string rest_;             // of a request that is not read
  std::function<void()> gone_;
};

namespace {

template <class Call>
void on_thread_of(const std::weak_ptr<HttpConnection>& connection, Call call) {
  const auto there = connection.lock();
  if (there == nullptr) return;
  asio::dispatch(there->executor(), [there, call = std::move(call)]() mutable { call(*there); });
}

class BeastServer : public HttpServer {
 public:
  BeastServer(const HttpOptions& options, Handler handler)
      : context_(1),
        acceptor_(context_),
        goodbye_(context_),
        shared_{.options = options, .handler = std::move(handler), .connections = {}, .answers = {}} {}
  ~BeastServer() override { shared_.connections.clear(); }

  Status listen() {
    const HttpOptions& options = shared_.options;
    const auto refused = [&](const ErrorCode& error) {
      return invalid_input(fmt::format("{}:{}: {}", options.address, options.port, error.message()));
    };
    ErrorCode error;
    const auto address = asio::ip::make_address(options.address, error);
    if (error)
      return invalid_input(fmt::format("{} is not an address such as 127.0.0.1, 0.0.0.0 or ::1", options.address));
    const Tcp::endpoint endpoint(address, options.port);
    if (acceptor_.open(endpoint.protocol(), error)) return refused(error);
    if (acceptor_.set_option(asio::socket_base::reuse_address(true), error)) return refused(error);
    if (acceptor_.bind(endpoint, error)) return refused(error);
    if (acceptor_.listen(asio::socket_base::max_listen_connections, error)) return refused(error);
    port_ = acceptor_.local_endpoint(error).port();
    accept();
    return ok_status();
  }

  uint16_t port() const override { return port_; }

  void run() override {
    ::prctl(PR_SET_NAME, "nls-http");  // for top -H
    context_.run();
  }

  void stop() override {
    asio::post(context_, [this] {
      shared_.stops = true;
      ErrorCode ignored;
      acceptor_.close(ignored);
      const auto connections = shared_.connections;
      for (const auto& connection : connections) connection->stop();
      goodbye_.expires_after(milliseconds_of(shared_.options.goodbye_s));
      goodbye_.async_wait([this](ErrorCode error) {
        if (!error) context_.stop();
      });
      look_for_end();
    });
  }

  std::map<int, uint64_t> answers() const override { return shared_.answers; }

 private:
  void accept() {
    acceptor_.async_accept([this](ErrorCode error, Tcp::socket socket) {
      if (shared_.stops || error == asio::error::operation_aborted) return;
      if (error) {  // no descriptors left, say: those that are open go on
        pause_.expires_after(std::chrono::milliseconds(100));
        return pause_.async_wait([this](ErrorCode) { accept(); });
      }
      ErrorCode ignored;
      socket.set_option(Tcp::no_delay(true), ignored);
      socket.set_option(asio::socket_base::keep_alive(true), ignored);
      const auto connection = std::make_shared<HttpConnection>(std::move(socket), shared_);
      const bool full = shared_.connections.size() - shared_.lingering >= shared_.options.most_connections;
      shared_.connections.insert(connection);
      if (full)
        connection->refuse();
      else
        connection->read();
      accept();
    });
  }

  // Once the last answer is out nothing is waited for.
  void look_for_end() {
    if (shared_.connections.empty()) return context_.stop();
    pause_.expires_after(std::chrono::milliseconds(10));
    pause_.async_wait([this](ErrorCode) { look_for_end(); });
  }

  asio::io_context context_;
  Tcp::acceptor acceptor_;
  asio::steady_timer goodbye_, pause_{context_};
  Shared shared_;
  uint16_t port_ = 0;
};

}  // namespace

void HttpReply::whole(HttpAnswer answer) const {
  on_thread_of(connection_, [answer = std::move(answer)](HttpConnection& connection) mutable {
    connection.answer(std::move(answer));
  });
}
void HttpReply::begin(HttpAnswer head) const {
  on_thread_of(connection_,
               [head = std::move(head)](HttpConnection& connection) mutable { connection.begin(std::move(head)); });
}
void HttpReply::piece(std::string text) const {
  on_thread_of(connection_, [text = std::move(text)](HttpConnection& connection) { connection.piece(text); });
}
void HttpReply::end(std::string text) const {
  on_thread_of(connection_, [text = std::move(text)](HttpConnection& connection) { connection.end(text); });
}
void HttpReply::on_gone(std::function<void()> told) const {
  if (const auto there = connection_.lock()) there->on_gone(std::move(told));
}

Result<std::unique_ptr<HttpServer>> HttpServer::open(const HttpOptions& options, Handler handler) {
  auto server = std::make_unique<BeastServer>(options, std::move(handler));
  RETURN_IF_ERROR(server->listen());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace nlsplit::inline server
