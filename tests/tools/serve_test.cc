// A server of a language model, as programs use it: answers whole and in streams, the same tokens whatever else runs,
// capacity, clients that go, secrets, its end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tools/served_model.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using json = nlohmann::json;

TEST(Serve, AnswersWholeAndInStreams) {
  const Server server("--plan one --model-name tiny");
  const json whole = server.complete(request({5, 6, 7}, 6));
  EXPECT_EQ(whole.at("object"), "text_completion");
  EXPECT_EQ(whole.at("model"), "tiny");
  EXPECT_EQ(whole.at("choices").at(0).at("finish_reason"), "length");
  EXPECT_EQ(whole.at("usage"), (json{{"prompt_tokens", 3},
                                     {"completion_tokens", 6},
                                     {"total_tokens", 9},
                                     {"prompt_tokens_details", {{"cached_tokens", 0}}}}));
  json streamed = request({5, 6, 7}, 6);
  streamed["stream"] = true;
  streamed["stream_options"] = {{"include_usage", true}};
  const std::string events = server.ask(post("/v1/completions", streamed.dump()));
  EXPECT_THAT(events, HasSubstr("Content-Type: text/event-stream"));
  EXPECT_THAT(events, HasSubstr("\"finish_reason\":\"length\""));
  EXPECT_THAT(events, HasSubstr("\"completion_tokens\":6"));
  EXPECT_THAT(events, HasSubstr("data: [DONE]\n\n\r\n0\r\n\r\n"));
  std::vector<int> tokens;
  std::string text;
  for (size_t at = events.find("data: {"); at != std::string::npos; at = events.find("data: {", at + 1)) {
    const json event = json::parse(events.substr(at + 6, events.find('\n', at) - at - 6));
    if (event.at("choices").empty()) continue;
    text += event.at("choices").at(0).at("text");
    for (const json& token : event.at("choices").at(0).value("token_ids", json::array())) tokens.push_back(token);
  }
  EXPECT_EQ(json(tokens), whole.at("choices").at(0).at("token_ids"));
  EXPECT_EQ(json(text), whole.at("choices").at(0).at("text"));
  EXPECT_THAT(server.ask(get("/v1/models")), HasSubstr("\"id\":\"tiny\""));
  EXPECT_THAT(server.ask(get("/health")), HasSubstr("200 OK"));
  EXPECT_EQ(server.metric("requests_finished_total"), 2);
  EXPECT_EQ(server.metric("answer_tokens_total"), 12);
}

// Alone, among others of other lengths that come and go, in whole chunks and beside them, drawn by a seed; with layers
// on two machines, by threads and by MPI.
TEST(Serve, GivesTheSameTokensWhateverElseRuns) {
  std::vector<json> requests;
  for (int r = 0; r < 12; ++r) {
    std::vector<int> prompt;
    for (int t = 0; t <= (r * 7) % 23; ++t) prompt.push_back((r * 131 + t * 17) % 701);
    requests.push_back(request(prompt, 3 + (r * 5) % 17));
    if (r % 3 == 0) requests.back().update({{"temperature", 1.5}, {"seed", r}});
  }
  std::vector<std::vector<int>> alone;
  {
    const Server server("--plan one");
    for (const json& one : requests) alone.push_back(server.tokens(one));
  }
  for (const auto& [more, ranks] : {std::pair("--plan one", 1), {"--plan layers", 1}, {"--plan layers", 2}}) {
    SCOPED_TRACE(fmt::format("{} {}", more, ranks));
    const Server server(std::string(more) + " --waiting 20", ranks);
    std::vector<std::vector<int>> among(requests.size());
    std::vector<std::thread> clients;
    for (size_t r = 0; r < requests.size(); ++r)
      clients.emplace_back([&, r] { among[r] = server.tokens(requests[r]); });
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(among, alone);
  }
}

int64_t cached_of(const json& answer) {
  return answer.at("usage").at("prompt_tokens_details").at("cached_tokens").get<int64_t>();
}

// Conversations: each turn has all that was said before, and a few tokens more.
struct Turns {
  std::vector<std::vector<int>> answers;
  int64_t prompts = 0, cached = 0;  // tokens
};
Turns converse(const Server& server, int who) {
  Turns turns;
  std::vector<int> said = {1, 2, 3, 4, 5};  // all begin alike
  for (int turn = 0; turn < 4; ++turn) {
    for (int t = 0; t <= (who + turn) % 5; ++t) said.push_back((who * 131 + turn * 31 + t * 17) % 701);
    json body = request(said, 2 + (who + 2 * turn) % 7);
    if (who % 3 == 0) body.update({{"temperature", 1.5}, {"seed", who}});
    const json answer = server.complete(body);
    turns.answers.push_back(answer.at("choices").at(0).at("token_ids").get<std::vector<int>>());
    turns.prompts += std::ssize(said);
    turns.cached += cached_of(answer);
    said.insert(said.end(), turns.answers.back().begin(), turns.answers.back().end());
  }
  return turns;
}

// Conversations one after the other and all at once, against each with all computed anew: with layers on two machines,
// by threads and by MPI, in micro-batches; heads on two.
TEST(Serve, ReusesPrefixesAndGivesTheSameTokens) {
  struct Case {
    std::string plan;
    int ranks;
    std::string workload;
  };
  const std::string in_halves = "chunk: 4, sequences: 4, micro_batches: 2, context: 64, candidates: 20";
  for (const auto& [plan, ranks, workload] :
       {Case{"one", 1, ""}, {"layers", 1, ""}, {"layers", 2, ""}, {"layers", 1, in_halves}, {"heads", 1, ""}}) {
    SCOPED_TRACE(fmt::format("{} {} {}", plan, ranks, workload));
    constexpr int talkers = 6;
    std::vector<Turns> anew;
    {
      const Server server(fmt::format("--plan {} --no-prefix-reuse", plan), 1, workload);
      for (int who = 0; who < talkers; ++who) anew.push_back(converse(server, who));
      EXPECT_EQ(server.metric("cached_tokens_total"), 0);
    }
    const Server server(fmt::format("--plan {} --waiting 20", plan), ranks, workload);
    int64_t cached = 0;
    for (size_t who = 0; who < talkers; ++who) {
      const Turns turns = converse(server, static_cast<int>(who));
      EXPECT_EQ(turns.answers, anew[who].answers);
      EXPECT_GT(turns.cached * 2, turns.prompts);
      cached += turns.cached;
    }
    std::vector<Turns> at_once(talkers);
    std::vector<std::thread> clients;
    for (size_t who = 0; who < talkers; ++who)
      clients.emplace_back([&, who] { at_once[who] = converse(server, static_cast<int>(who)); });
    for (std::thread& client : clients) client.join();
    for (size_t who = 0; who < talkers; ++who) {
      EXPECT_EQ(at_once[who].answers, anew[who].answers);
      cached += at_once[who].cached;
    }
    EXPECT_EQ(server.metric("cached_tokens_total"), static_cast<double>(cached));
  }
}

// One of three texts, and a few tokens more; some are drawn.
json behind_a_text(int who) {
  std::vector<int> prompt;
  for (int t = 0; t < 33; ++t) prompt.push_back((who % 3 * 211 + t * 37) % 701);
  for (int t = 0; t <= who % 5; ++t) prompt.push_back((who * 131 + t * 17) % 701);
  json body = request(prompt, who == 0 ? 150 : 2 + who % 7);
  if (who % 4 == 1) body.update({{"temperature", 1.5}, {"seed", who}});
  return body;
}

// Requests that begin alike come beside one that runs, and then many at once, against each alone with all computed
// anew: with layers on two machines, by threads and by MPI, in micro-batches, with replicas; heads on two; caches of
// f16.
TEST(Serve, LendsPrefixesAndGivesTheSameTokens) {
  struct Case {
    std::string plan;
    int ranks;
    std::string workload, model;
  };
  const std::string alone = "chunk: 4, sequences: 4, context: 256, candidates: 20",
                    halves = alone + ", micro_batches: 2";
  double lent_at_once = 0;
  for (const auto& [plan, ranks, workload, model] : {Case{"one", 1, alone, ""},
                                                     {"one", 1, alone, "&cache_bits=16"},
                                                     {"layers", 1, alone, ""},
                                                     {"layers", 2, alone, ""},
                                                     {"layers", 1, halves, ""},
                                                     {"replicas", 2, halves, ""},
                                                     {"heads", 2, alone, ""}}) {
    SCOPED_TRACE(fmt::format("{} {} {} {}", plan, ranks, workload, model));
    constexpr int requests = 18;
    std::vector<std::vector<int>> anew(requests), at_once(requests);
    {
      const Server server(fmt::format("--plan {} --no-prefix-reuse", plan), 1, workload, model);
      for (int who = 0; who < requests; ++who) anew[static_cast<size_t>(who)] = server.tokens(behind_a_text(who));
      EXPECT_EQ(server.metric("copied_tokens_total"), 0);
    }
    const Server server(fmt::format("--plan {} --waiting 20", plan), ranks, workload, model);
    RawClient first(server.port());
    json longest = behind_a_text(0);
    longest["stream"] = true;
    first.send(post("/v1/completions", longest.dump()));
    first.receive("token_ids");
    const json beside = server.complete(behind_a_text(3));
    EXPECT_EQ(beside.at("choices").at(0).at("token_ids"), json(anew[3]));
    EXPECT_EQ(cached_of(beside), 33);
    EXPECT_EQ(server.metric("copied_tokens_total"), 33);
    std::vector<std::thread> clients;
    for (size_t who = 0; who < requests; ++who)
      clients.emplace_back([&, who] { at_once[who] = server.tokens(behind_a_text(static_cast<int>(who))); });
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(at_once, anew);
    lent_at_once += server.metric("copied_tokens_total") - 33;
  }
  EXPECT_GT(lent_at_once, 0);  // of one case it depends on who comes when
}

// The slot is full to the last position, and others run beside it before its prompt comes again.
TEST(Serve, ReusesWhatOthersHaveNotOverwritten) {
  const Server anew("--plan one --no-prefix-reuse"), server("--plan one");
  std::vector<int> prompt;
  for (int t = 0; t < 60; ++t) prompt.push_back((t * 37) % 701);
  const json longest = request(prompt, 5), other = request({9, 8, 7, 6, 5, 4, 3}, 6);
  const std::vector<int> expected = anew.tokens(longest);
  EXPECT_EQ(server.tokens(longest), expected);
  const json again = server.complete(longest);
  EXPECT_EQ(again.at("choices").at(0).at("token_ids"), json(expected));
  EXPECT_EQ(cached_of(again), 59);  // all but the last
  EXPECT_EQ(server.tokens(other), anew.tokens(other));
  const json behind = server.complete(longest);
  EXPECT_EQ(behind.at("choices").at(0).at("token_ids"), json(expected));
  EXPECT_EQ(cached_of(behind), 59);
}

TEST(Serve, DrawsAnewWithoutASeed) {
  const Server server("--plan one");
  json drawn = request({5, 6, 7}, 16);
  drawn["temperature"] = 5;
  EXPECT_NE(server.tokens(drawn), server.tokens(drawn));
  drawn["seed"] = 0;
  EXPECT_EQ(server.tokens(drawn), server.tokens(drawn));
}

TEST(Serve, StopsAtTextsAndSaysSo) {
  const Server server("--plan one");
  json body = request({5, 6, 7}, 20);
  const std::string text = server.complete(body).at("choices").at(0).at("text");
  const auto letter = std::find_if(text.begin() + 2, text.end(), [](char c) { return c > ' ' && c < 127; });
  ASSERT_NE(letter, text.end());
  const std::string stop(1, *letter);
  body["stop"] = stop;
  const json stopped = server.complete(body).at("choices").at(0);
  EXPECT_EQ(stopped.at("finish_reason"), "stop");
  EXPECT_EQ(stopped.at("text"), text.substr(0, text.find(stop)));
}

TEST(Serve, TurnsAwayBeyondItsCapacityAndRecovers) {
  const Server server("--plan one --waiting 1", 1, "chunk: 4, sequences: 1, context: 4096, candidates: 20");
  RawClient running(server.port()), waiting(server.port());
  json longest = request({5, 6, 7}, 4000);
  longest["stream"] = true;
  running.send(post("/v1/completions", longest.dump()));
  running.receive("data: ");
  waiting.send(post("/v1/completions", request({5}, 2).dump()));
  ASSERT_TRUE(server.comes_to("requests_waiting", 1));
  const std::string refused = server.ask(post("/v1/completions", request({5}, 2).dump()));
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 429 Too Many Requests"));
  EXPECT_THAT(refused, HasSubstr("Retry-After: "));
  EXPECT_EQ(server.metric("requests_turned_away_total"), 1);
  running.close();  // a client that vanishes frees its place
  EXPECT_THAT(waiting.receive(""), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(server.metric("requests_cancelled_total"), 1);
  EXPECT_EQ(server.tokens(request({5}, 2)).size(), 2u);
}

TEST(Serve, SaysWhatIsWrong) {
  const Server server("--plan one --max-body 5000");
  const auto refused = [&](const std::string& body, const std::string& path = "/v1/completions") {
    return server.ask(post(path, body));
  };
  EXPECT_THAT(refused(R"({"prompt": "a",})"), HasSubstr("byte 16: this is not JSON"));
  EXPECT_THAT(refused(R"({"prompt": [701]})"), HasSubstr("token 701, and the vocabulary has 701"));
  EXPECT_THAT(refused(R"({"prompt": [1], "max_tokens": 65})"), HasSubstr("need 65 positions, and the plan keeps 64"));
  EXPECT_THAT(refused(R"({"prompt": [1], "top_k": 21, "temperature": 1})"), HasSubstr("and the plan gives 20"));
  EXPECT_THAT(refused(R"({"prompt": [1], "model": "gpt-4"})"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(refused(R"({"messages": [{"role": "user", "content": "a"}]})", "/v1/chat/completions"),
              HasSubstr("there is no chat template"));
  EXPECT_THAT(refused(std::string(6000, 'x')), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(refused("{}", "/v2/x"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(server.ask(get("/v1/completions")), StartsWith("HTTP/1.1 405"));
}

TEST(Serve, WantsItsSecret) {
  const Scratch scratch;
  const Server server("--plan one --token-file " + scratch.write("token", "open-sesame\nmore\n"));
  EXPECT_THAT(server.ask(get("/v1/models")), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(server.ask(get("/v1/models", "Authorization: Bearer open-sesam\r\n")), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(server.ask(get("/v1/models", "Authorization: Bearer open-sesame\r\n")), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(server.ask(get("/health")), StartsWith("HTTP/1.1 200"));
}

TEST(Serve, EndsStreamsWhenItIsTold) {
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    Server server("--plan layers", ranks, "chunk: 4, sequences: 1, context: 4096, candidates: 20");
    RawClient client(server.port());
    json longest = request({5, 6, 7}, 4000);
    longest["stream"] = true;
    client.send(post("/v1/completions", longest.dump()));
    client.receive("token_ids");
    // mpirun itself ends with 1 after SIGTERM; SIGUSR1 it passes on.
    EXPECT_EQ(server.end(ranks == 1 ? SIGTERM : SIGUSR1), 130);
    EXPECT_THAT(client.receive(""), HasSubstr("the server ends"));
    EXPECT_THAT(server.said(), HasSubstr("interrupted"));
  }
}

// No core burns and nobody calls it hung, for longer than the watchdog waits.
TEST(Serve, MayBeIdle) {
  const Server server("--plan layers --watchdog 0.5 --heartbeat 2", 2);
  server.tokens(request({5}, 2));
  std::this_thread::sleep_for(std::chrono::seconds(4));
  EXPECT_EQ(server.tokens(request({5}, 2)).size(), 2u);
}

TEST(Serve, RefusesToBeginWhatCannotBe) {
  const Scratch scratch;
  const std::string scenario = scratch.write("s.yaml", serving_scenario());
  const auto refused = [&](const std::string& more) {
    const Outcome run = nlbench(fmt::format("serve {} --plan one --transport threads --port 0 {}", scenario, more));
    EXPECT_EQ(run.code, 2) << run.err;
    return run.err;
  };
  EXPECT_THAT(refused(""), HasSubstr("--tokenizer FILE"));
  EXPECT_THAT(refused("--host 0.0.0.0 --tokenizer " + small_tokenizer), HasSubstr("give --token-file"));
  EXPECT_THAT(refused("--heartbeat 0 --tokenizer " + small_tokenizer), HasSubstr("add --watchdog 0"));
  EXPECT_THAT(refused("--token-file " + scratch.write("t", "\n") + " --tokenizer " + small_tokenizer),
              HasSubstr("its first line is not a token"));
}

// Said once, before any rank begins: no time-out, and the code of what the user said wrong.
TEST(Serve, RefusesToBeginWhereItCannotListen) {
  const Scratch scratch;
  const Server other("--plan one");
  const std::string scenario = scratch.write("s.yaml", serving_scenario());
  const auto refused = [&](const std::string& more) {
    const std::string arguments =
        fmt::format("serve {} --plan layers --heartbeat 2 --tokenizer {} {}", scenario, small_tokenizer, more);
    const Outcome ranks = mpirun(2, arguments), threads = nlbench(arguments + " --transport threads");
    EXPECT_EQ(ranks.code, 2) << ranks.err;
    EXPECT_EQ(threads.code, 2) << threads.err;
    EXPECT_THAT(ranks.err, Not(HasSubstr("heartbeat")));
    EXPECT_THAT(ranks.err, HasSubstr(threads.err));
    return threads.err;
  };
  EXPECT_THAT(refused(fmt::format("--port {}", other.port())), HasSubstr("already in use"));
  EXPECT_THAT(refused("--port 0 --port-file " + scratch / "none/port"), HasSubstr("none/port"));
}

}  // namespace
}  // namespace nlsplit
