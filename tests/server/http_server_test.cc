// The server's edges: what is too long, too slow, broken or gone costs nobody else anything.
#include "server/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "server/raw_client.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Answers "/echo" at once and others when the test says so.
class Running {
 public:
  explicit Running(HttpOptions options = {})
      : server_(value_of(HttpServer::open(
            options, [this](HttpRequest request, HttpReply reply) { take(std::move(request), std::move(reply)); }))),
        thread_([this] { server_->run(); }) {}
  ~Running() { stop(); }

  void stop() {
    server_->stop();
    if (thread_.joinable()) thread_.join();
  }
  uint16_t port() const { return server_->port(); }
  HttpReply held() {
    for (int tries = 0; tries < 2000; ++tries) {
      {
        const std::lock_guard lock(mutex_);
        if (!held_.empty()) {
          HttpReply reply = held_.back();
          held_.pop_back();
          return reply;
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    CHECK(false, "no request came");
  }
  bool gone_within(double seconds) const {
    for (double waited = 0; waited < seconds && gone == 0; waited += 0.01)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return gone > 0;
  }
  std::atomic<int> gone = 0;

 private:
  void take(HttpRequest request, HttpReply reply) {
    if (request.target == "/echo") return reply.whole({200, "text/plain", request.body});
    reply.on_gone([this] { ++gone; });
    const std::lock_guard lock(mutex_);
    held_.push_back(std::move(reply));
  }

  std::mutex mutex_;
  std::vector<HttpReply> held_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST(HttpServer, AnswersAndKeepsTheConnection) {
  Running server;
  RawClient client(server.port());
  for (int i = 0; i < 3; ++i) {
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    const std::string answer = client.receive("hello");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(answer, HasSubstr("Connection: keep-alive"));
  }
}

TEST(HttpServer, StreamsInChunks) {
  Running server;
  RawClient client(server.port());
  client.send(get("/later"));
  const HttpReply reply = server.held();
  reply.begin({200, "text/event-stream", ""});
  reply.piece("one");
  EXPECT_THAT(client.receive("one\r\n"), HasSubstr("Transfer-Encoding: chunked"));
  reply.end("twelve bytes");
  EXPECT_THAT(client.receive(""), HasSubstr("c\r\ntwelve bytes\r\n0\r\n\r\n"));
  EXPECT_TRUE(client.closed());
  EXPECT_EQ(server.gone, 0);
}

TEST(HttpServer, BoundsHeadersAndBodies) {
  Running server({.most_header = 1000, .most_body = 100});
  const auto answer_to = [&](const std::string& text) {
    RawClient client(server.port());
    client.send(text);
    return client.receive("");
  };
  EXPECT_THAT(answer_to(get("/echo", "X: " + std::string(2000, 'x') + "\r\n")), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(answer_to(post("/echo", std::string(101, 'x'))), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(answer_to(post("/echo", std::string(100, 'x'))), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer_to("\x01\x02 nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(answer_to("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), StartsWith("HTTP/1.1 400"));
}

TEST(HttpServer, LetsClientsSeeThatTheirBodyIsTooLong) {
  Running server;
  RawClient client(server.port());
  client.send(post("/echo", std::string(size_t{8} << 20, 'x')));
  EXPECT_THAT(client.receive(""), StartsWith("HTTP/1.1 413"));
  EXPECT_TRUE(client.closed());
  EXPECT_FALSE(client.broken());
}

// And who goes on sending is cut off.
TEST(HttpServer, LingersForAWhile) {
  Running server({.most_body = 100, .goodbye_s = 0.3});
  RawClient client(server.port());
  client.send(post("/echo", std::string(101, 'x')));
  EXPECT_THAT(client.receive(""), StartsWith("HTTP/1.1 413"));
  for (int tries = 0; tries < 500 && !client.broken(); ++tries) {
    client.send("x");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(client.broken());
}

TEST(HttpServer, AnswersHeadWithoutABody) {
  Running server;
  RawClient client(server.port());
  client.send("HEAD /echo HTTP/1.1\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
  const std::string answer = client.receive("");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST(HttpServer, CutsOffWhoSendsNothing) {
  Running server({.patience_s = 0.3});
  RawClient silent(server.port()), slow(server.port()), other(server.port());
  slow.send("POST /echo HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf");
  other.send(get("/echo"));
  EXPECT_THAT(other.receive(""), StartsWith("HTTP/1.1 200"));
  silent.receive("", 5);
  slow.receive("", 5);
  EXPECT_TRUE(silent.closed());
  EXPECT_TRUE(slow.closed());
}

TEST(HttpServer, TellsWhenTheClientGoes) {
  Running server;
  RawClient client(server.port());
  client.send(get("/later"));
  const HttpReply reply = server.held();
  client.close();
  EXPECT_TRUE(server.gone_within(5));
  reply.whole({200, "text/plain", "nobody hears it"});
}

// What was said to it is kept only so long, and meanwhile others are served.
TEST(HttpServer, CutsOffWhoTakesNothing) {
  Running server({.patience_s = 0.5});
  RawClient client(server.port(), 4096);
  client.send(get("/later"));
  const HttpReply reply = server.held();
  reply.begin({200, "text/event-stream", ""});
  for (int i = 0; i < 200; ++i) reply.piece(std::string(100'000, 'x'));
  RawClient other(server.port());
  other.send(get("/echo"));
  EXPECT_THAT(other.receive(""), StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(server.gone_within(5));
}

TEST(HttpServer, RefusesConnectionsBeyondItsLimit) {
  Running server({.most_connections = 2});
  RawClient first(server.port()), second(server.port());
  first.send("POST /echo HTTP/1.1\r\nContent-Length: 1\r\n\r\na");
  first.receive("\r\n\r\na");  // both have been accepted once the answers are here
  second.send("POST /echo HTTP/1.1\r\nContent-Length: 1\r\n\r\nb");
  second.receive("\r\n\r\nb");
  RawClient third(server.port());
  EXPECT_THAT(third.receive(""), StartsWith("HTTP/1.1 503"));
  first.close();
  for (int tries = 0; tries < 200; ++tries) {
    RawClient again(server.port());
    again.send(get("/echo"));
    if (again.receive("").starts_with("HTTP/1.1 200")) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ADD_FAILURE() << "a place that became free is not used";
}

TEST(HttpServer, EndsWhatIsUnderWay) {
  Running server;
  RawClient idle(server.port()), client(server.port());
  client.send(get("/later"));
  const HttpReply reply = server.held();
  reply.begin({200, "text/event-stream", "begun"});
  client.receive("begun\r\n");
  std::thread stopping([&] { server.stop(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  reply.end("the last words");
  EXPECT_THAT(client.receive(""), HasSubstr("the last words"));
  EXPECT_TRUE(client.closed());
  stopping.join();
  idle.receive("", 5);
  EXPECT_TRUE(idle.closed());
}

TEST(HttpServer, SaysWhereItCannotListen) {
  Running server;
  EXPECT_THAT(HttpServer::open({.port = server.port()}, nullptr).error().message, HasSubstr("already in use"));
  EXPECT_THAT(HttpServer::open({.address = "nowhere"}, nullptr).error().message,
              HasSubstr("nowhere is not an address"));
}

}  // namespace
}  // namespace nlsplit
