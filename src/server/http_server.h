// An HTTP/1.1 server on one thread: connections wait for nobody, so one that is slow or silent costs memory only, and
// that not for long.
//
//   ASSIGN_OR_RETURN(auto server, HttpServer::open({.port = 8080}, [&](HttpRequest request, HttpReply reply) {
//     reply.whole({200, "application/json", "{}"});
//   }));
//   std::thread thread([&] { server->run(); });
//   …
//   server->stop();      // any thread
//   thread.join();
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline server {

struct HttpOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;  // 0: one that is free
  uint32_t most_header = 16 << 10;
  uint64_t most_body = 1 << 20;
  size_t most_connections = 256;
  // A client that sends a request, or takes an answer, so slowly that nothing passes for so long is cut off.
  double patience_s = 30;
  // After stop(): for what still goes out. After an answer to a request that was not read whole: for the client to
  // end it, so that it sees the answer.
  double goodbye_s = 3;
};

struct HttpRequest {
  std::string method, target, authorization, body;
};

struct HttpAnswer {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
};

class HttpConnection;

// How a request is answered: at once or later, by any thread. Of an answer that nobody takes any more nothing is kept.
class HttpReply {
 public:
  explicit HttpReply(std::weak_ptr<HttpConnection> connection) : connection_(std::move(connection)) {}

  void whole(HttpAnswer answer) const;
  // An answer in pieces: begin, then pieces, then end.
  void begin(HttpAnswer head) const;  // its body is the first piece, if there is one
  void piece(std::string text) const;
  void end(std::string text = {}) const;
  // Called on the server's thread if the client has gone, or was cut off, before the end. Set once, on that thread.
  void on_gone(std::function<void()> told) const;

 private:
  std::weak_ptr<HttpConnection> connection_;
};

class HttpServer {
 public:
  using Handler = std::function<void(HttpRequest request, HttpReply reply)>;  // on the server's thread

  // Errors: no such address, the port is taken.
  static Result<std::unique_ptr<HttpServer>> open(const HttpOptions& options, Handler handler);
  virtual ~HttpServer() = default;
  virtual uint16_t port() const = 0;
  virtual void run() = 0;   // until stop()
  virtual void stop() = 0;  // no new connections; answers that are under way have `goodbye_s` to end
  virtual std::map<int, uint64_t> answers() const = 0;  // so far, by status; on the server's thread
};

}  // namespace nlsplit::inline server
