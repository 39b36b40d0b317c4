// Routes whose answers need no session.
#include "server/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "server/raw_client.h"
#include "testing/paths.h"
#include "testing/value_of.h"
#include "text/read_tokenizer.h"

namespace nlsplit {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// With an engine that nobody runs.
class ServiceTest : public ::testing::Test {
 protected:
  ~ServiceTest() override {
    http_->stop();
    thread_.join();
  }
  std::string ask(const std::string& text) const {
    RawClient client(http_->port());
    client.send(text);
    return client.receive("");
  }

  const GenerationForm form_{.candidates = 20, .context = 64, .vocabulary = 701};
  const Tokenizer tokenizer_ = value_of(read_tokenizer(NLS_SOURCE_DIR "/tests/text/fixtures/smollm2.json"));
  const Result<ChatTemplate> chat_ = invalid_input("there is none");
  Engine engine_{form_, 0, PrefixReuse::on};
  Service service_{{.model = "tiny", .token = ""}, tokenizer_, chat_, form_, engine_};
  std::unique_ptr<HttpServer> http_ = value_of(HttpServer::open(
      {}, [this](HttpRequest request, const HttpReply& reply) { service_.handle(std::move(request), reply); }));
  std::thread thread_{[this] { http_->run(); }};
};

TEST_F(ServiceTest, SaysThatItEnds) {
  engine_.fail();
  const std::string refused = ask(post("/v1/completions", R"({"prompt": [5]})"));
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(refused, HasSubstr("the server ends"));
}

TEST_F(ServiceTest, AnswersWhoWatches) {
  EXPECT_THAT(ask(get("/health")), EndsWith("{\"status\":\"ok\"}"));
  const std::string head = ask("HEAD /health HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(head, EndsWith("\r\n\r\n"));
}

}  // namespace
}  // namespace nlsplit
