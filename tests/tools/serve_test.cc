// A server of a language model, as programs use it: answers whole and in streams, the same tokens whatever else runs,
// capacity, clients that go, secrets, its end; and the load that is sent to it and simulated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "server/raw_client.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using json = nlohmann::json;

const std::string small_tokenizer = NLS_SOURCE_DIR "/tests/text/fixtures/smollm2.json";

std::string serving_scenario(const std::string& workload = "chunk: 4, sequences: 3, context: 64, candidates: 20") {
  return "model: zoo:llama?layers=3&hidden=48&heads=6&kv_heads=3&ffn=96&vocab=701\n"
         "workload: {mode: generation, prompt: 8, tokens: 8, " +
         workload +
         "}\n"
         "devices:\n"
         "  a: &machine {host: h1, memory: 64MiB, costs: {roofline: {compute: 20GFLOPS, memory: 10GBps}}}\n"
         "  b: {<<: *machine, host: h2}\n"
         "links:\n"
         "  - {between: [h1, h2], bandwidth: 1Gbps, latency: 50us}\n"
         "source: h1\nsink: h1\n"
         "plans:\n"
         "  one: [rest@a]\n"
         "  layers: [..model.layers.0@a, rest@b]\n"
         "  heads: [rest@tensor(a+b)]\n";
}

// `nlbench serve`, until the end of the scope.
class Server {
 public:
  explicit Server(const std::string& more, int ranks = 1, const std::string& workload = {}) {
    const std::string text = workload.empty() ? serving_scenario() : serving_scenario(workload);
    const std::string how = ranks == 1
                                ? std::string("exec ")
                                : fmt::format("ASAN_OPTIONS=detect_leaks=0 exec mpirun {} --oversubscribe -np {} ",
                                              ::geteuid() == 0 ? "--allow-run-as-root" : "", ranks);
    const std::string line =
        fmt::format("{}{}/nlbench serve {} --tokenizer {} --port 0 --port-file {} {} {} > {} 2> {}", how, NLS_BIN_DIR,
                    scratch_.write("s.yaml", text), small_tokenizer, scratch_ / "port",
                    ranks == 1 ? "--transport threads" : "", more, scratch_ / "out", scratch_ / "err");
    const char* const arguments[] = {"sh", "-c", line.c_str(), nullptr};
    CHECK(::posix_spawn(&child_, "/bin/sh", nullptr, nullptr, const_cast<char* const*>(arguments), environ) == 0, line);
    for (int tries = 0; tries < 6000 && port_ == 0; ++tries) {
      const auto read = read_file(scratch_ / "port");
      if (read.ok() && !read->empty()) port_ = static_cast<uint16_t>(std::stoi(*read));
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CHECK(port_ != 0, value_of(read_file(scratch_ / "err")));
  }
  ~Server() { end(SIGTERM); }

  uint16_t port() const { return port_; }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  std::string said() const { return value_of(read_file(scratch_ / "err")); }

  // Its exit code; 128 and more: of a signal.
  int end(int signal) {
    if (child_ == 0) return -1;
    int status = 0;
    ::kill(child_, signal);
    ::waitpid(child_, &status, 0);
    child_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string ask(const std::string& text) const {
    RawClient client(port_);
    client.send(text);
    return client.receive("");
  }
  json complete(const json& body) const {
    const std::string answer = ask(post("/v1/completions", body.dump()));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200")) << answer;
    return json::parse(answer.substr(answer.find("\r\n\r\n") + 4), nullptr, false);
  }
  std::vector<int> tokens(const json& body) const {
    const json answer = complete(body);
    return answer.at("choices").at(0).at("token_ids").get<std::vector<int>>();
  }
  double metric(const std::string& name) const {
    const std::string all = ask(get("/metrics"));
    const size_t at = all.find("\nnlsplit_" + name + " ");
    return at == std::string::npos ? -1 : std::stod(all.substr(at + name.size() + 10));
  }
  bool comes_to(const std::string& name, double value) const {
    for (int tries = 0; tries < 1000; ++tries) {
      if (metric(name) == value) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

 private:
  Scratch scratch_;
  pid_t child_ = 0;
  uint16_t port_ = 0;
};

json request(std::vector<int> prompt, int tokens) {
  return {{"prompt", prompt}, {"max_tokens", tokens}, {"ignore_eos", true}, {"return_token_ids", true}};
}

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
              HasSubstr("its first line is no token"));
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

TEST(Load, IsSentReplayedAndSimulated) {
  const Scratch scratch;
  const Server server("--plan one --waiting 50");
  const std::string trace = scratch / "trace.json", made = scratch / "load.json";
  const Outcome sent =
      nlbench(fmt::format("load --url {} --rate 200/s --requests 40 --prompt-length 4..12 --tokens 2..9 "
                          "--seed 3 --save-trace {} --json {}",
                          server.url(), trace, made));
  ASSERT_EQ(sent.code, 0) << sent.err;
  EXPECT_THAT(sent.out, StartsWith("40 requests: 40 answered, 0 turned away, 0 failed\n"));
  const json load = json::parse(value_of(read_file(made))), asked = json::parse(value_of(read_file(trace)));
  ASSERT_EQ(load.at("requests").size(), 40u);
  for (size_t r = 0; r < 40; ++r) {
    EXPECT_EQ(load["requests"][r]["tokens"], asked["requests"][r]["tokens"]);
    EXPECT_GE(load["requests"][r]["first_s"], asked["requests"][r]["at_s"]);
  }
  EXPECT_GT(load.at("summary").at("next_token").at("p99_s"), 0);
  const Outcome again = nlbench(fmt::format("load --url {} --trace {} --json -", server.url(), trace));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(json::parse(again.out).at("summary").at("answered"), 40);
  const std::string scenario = scratch.write("s.yaml", serving_scenario());
  const Outcome simulated = nlsim(fmt::format("serve {} --plan one --trace {} --waiting 50 --json -", scenario, trace));
  ASSERT_EQ(simulated.code, 0) << simulated.err;
  const json simulation = json::parse(simulated.out);
  EXPECT_EQ(simulation.at("summary").at("answered"), 40);
  EXPECT_EQ(simulation.at("slots"), 3);
  EXPECT_GT(simulation.at("prefill").at("at_none_s"), simulation.at("decode").at("at_none_s"));
}

// The server reuses what the simulator says, request by request: they come one after the other.
TEST(Load, SharesPrefixesAndIsSimulatedSo) {
  const Scratch scratch;
  const Server server("--plan one");
  const std::string scenario = scratch.write("s.yaml", serving_scenario()), made = scratch / "load.json";
  std::string requests;
  int64_t expected = 0;
  for (int r = 0; r < 9; ++r) {
    requests += fmt::format(R"({}{{"at_s": {}, "prompt": {}, "tokens": 3, "prefix": {}, "text": {}}})",
                            r == 0 ? "" : ",", r * 0.3, 20 + 8 * (r / 3), 15 + 8 * (r / 3), r % 3);
    if (r >= 3) expected += 15 + 8 * (r / 3 - 1);  // the prefix of the turn before
  }
  const std::string trace = scratch.write(
      "t.json",
      fmt::format(R"({{"format": "nlsplit-requests", "version": 1, "seed": 1, "requests": [{}]}})", requests));
  const Outcome sent =
      nlbench(fmt::format("load --url {} --trace {} --vocabulary 700 --json {}", server.url(), trace, made));
  ASSERT_EQ(sent.code, 0) << sent.err;
  EXPECT_THAT(sent.out, HasSubstr(fmt::format("of 252 tokens of prompts {} were reused", expected)));
  const json load = json::parse(value_of(read_file(made)));
  EXPECT_EQ(load.at("summary").at("cached_tokens"), expected);
  EXPECT_EQ(load.at("requests").at(8).at("cached"), 23);
  const auto simulated = [&](const std::string& more) {
    const Outcome run = nlsim(fmt::format("serve {} --plan one --trace {} --json - {}", scenario, trace, more));
    EXPECT_EQ(run.code, 0) << run.err;
    return json::parse(run.out).at("summary");
  };
  EXPECT_EQ(simulated("").at("cached_tokens"), expected);
  EXPECT_EQ(simulated("--no-prefix-reuse").at("cached_tokens"), 0);
  EXPECT_LT(simulated("").at("first_token").at("mean_s"),
            simulated("--no-prefix-reuse").at("first_token").at("mean_s"));
  const Outcome drawn = nlsim(fmt::format(
      "serve {} --plan one --rate 1/s --requests 50 --prompt-length 4 --tokens 4 --shared-prefix 40 --shared-texts 2",
      scenario));
  EXPECT_THAT(drawn.out, HasSubstr("of 2200 tokens of prompts 1920 were reused"));
  const Outcome long_one = nlsim(fmt::format(
      "serve {} --plan one --rate 1/s --requests 5 --prompt-length 9 --shared-prefix 1073741820", scenario));
  EXPECT_EQ(long_one.code, 2);
  EXPECT_THAT(long_one.err, HasSubstr("--shared-prefix 1073741820 and --prompt-length 9 are together above"));
}

TEST(Load, IsSimulatedAsTheScenarioSays) {
  const Scratch scratch;
  const std::string arrivals = "chunk: 4, sequences: 3, context: 64, arrivals: {rate: 30/min, requests: 20, seed: 5}";
  const std::string scenario = scratch.write("s.yaml", serving_scenario(arrivals)), trace = scratch / "t.json";
  const Outcome simulated = nlsim(fmt::format("serve {} --plan one --save-trace {}", scenario, trace));
  ASSERT_EQ(simulated.code, 0) << simulated.err;
  EXPECT_THAT(simulated.out, HasSubstr("20 requests: 20 answered"));
  const json requests = json::parse(value_of(read_file(trace))).at("requests");
  EXPECT_EQ(requests.size(), 20u);
  EXPECT_EQ(requests[0].at("prompt"), 8);
  EXPECT_GT(requests[19].at("at_s"), 15);  // 40 in the mean
  const Outcome passed_over = nlsim(fmt::format("serve {} --plan one --requests 3", scenario));
  EXPECT_EQ(passed_over.code, 2);
  EXPECT_THAT(passed_over.err, HasSubstr("--requests requires --rate"));
  const auto refused = [&](const std::string& wrong) {
    const Outcome run = nlsim("serve " + scratch.write("w.yaml", serving_scenario("chunk: 4, arrivals: " + wrong)));
    EXPECT_EQ(run.code, 2) << run.out;
    return run.err;
  };
  EXPECT_THAT(refused("{rate: 2, requests: 3}"), HasSubstr("w.yaml:2:"));
  EXPECT_THAT(refused("{rate: 2, requests: 3}"), HasSubstr("\"2\" is no rate: 2/s"));
  EXPECT_THAT(refused("{rate: 2/s, requests: 0}"), HasSubstr("requests"));
  EXPECT_THAT(refused("{rate: 2/s}"), HasSubstr("requests"));
  const Outcome plain = nlsim("serve " + scratch.write("p.yaml", small_scenario()) + " --rate 1/s --requests 2");
  EXPECT_EQ(plain.code, 2);
  EXPECT_THAT(plain.err, HasSubstr("is what a server runs"));
}

TEST(Load, SaysWhatItHasWhenItIsInterrupted) {
  const Scratch scratch;
  const Server server("--plan one");
  const std::string made = scratch / "load.json",
                    trace = scratch.write("trace.json",
                                          R"({"format": "nlsplit-requests", "version": 1, "seed": 1, "requests": [
          {"at_s": 0, "prompt": 3, "tokens": 2}, {"at_s": 1e6, "prompt": 3, "tokens": 2}]})");
  // `--foreground`: one signal, not two.
  const Outcome sent = run_command(
      fmt::format("timeout --foreground --preserve-status -s INT 6 {}/nlbench load --url {} --trace {} --json {}",
                  NLS_BIN_DIR, server.url(), trace, made));
  EXPECT_EQ(sent.code, 130) << sent.err;
  EXPECT_THAT(sent.out, StartsWith("1 request: 1 answered"));
  EXPECT_THAT(sent.err, HasSubstr("1 of 2 requests had not ended"));
  EXPECT_EQ(json::parse(value_of(read_file(made))).at("requests").size(), 1u);
}

TEST(Load, CountsWhatIsTurnedAwayAndSaysWhatIsWrong) {
  const Server server("--plan one --waiting 0", 1, "chunk: 4, sequences: 1, context: 4096, candidates: 20");
  const Outcome sent = nlbench(
      fmt::format("load --url {} --rate 1000/s --requests 30 --prompt-length 8 --tokens 400 --json -", server.url()));
  ASSERT_EQ(sent.code, 0) << sent.err;
  const json summary = json::parse(sent.out).at("summary");
  EXPECT_GT(summary.at("turned_away"), 0);
  EXPECT_GT(summary.at("answered"), 0);
  EXPECT_EQ(summary.at("failed"), 0);
  const auto refused = [](const std::string& arguments, int code) {
    const Outcome run = nlbench("load " + arguments);
    EXPECT_EQ(run.code, code) << run.out;
    return run.out + run.err;
  };
  EXPECT_THAT(refused("--url ftp://x --rate 1/s --requests 1", 2), HasSubstr("no URL of a server"));
  EXPECT_THAT(refused("--url http://127.0.0.1:1 --rate 1 --requests 1", 2), HasSubstr("is no rate"));
  EXPECT_THAT(refused("--url http://127.0.0.1:1", 2), HasSubstr("--rate and --requests"));
  EXPECT_THAT(refused("--url http://127.0.0.1:1 --requests 3", 2), HasSubstr("--requests requires --rate"));
  EXPECT_THAT(refused("--url http://127.0.0.1:1 --rate 1/s --requests 1 --patience 1e300", 2), HasSubstr("--patience"));
  EXPECT_THAT(refused("--url http://127.0.0.1:1 --rate 1e-9/s --requests 99", 2), HasSubstr("beyond the latest"));
  EXPECT_THAT(refused("--url http://127.0.0.1:1 --rate 100/s --requests 2", 1), HasSubstr("2 failed: connect: "));
}

}  // namespace
}  // namespace nlsplit
