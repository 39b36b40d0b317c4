// `nlbench serve` of a small language model, for tests that talk to it.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "server/raw_client.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {

inline const std::string small_tokenizer = NLS_SOURCE_DIR "/tests/text/fixtures/smollm2.json";

inline std::string serving_scenario(const std::string& workload = "chunk: 4, sequences: 3, context: 64, candidates: 20",
                                    const std::string& more_of_model = {}) {
  return "model: zoo:llama?layers=3&hidden=48&heads=6&kv_heads=3&ffn=96&vocab=701" + more_of_model +
         "\n"
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
         "  heads: [rest@tensor(a+b)]\n"
         "  replicas: [..model.layers.0@a, rest@a+b]\n";
}

// `nlbench serve`, until the end of the scope.
class Server {
 public:
  explicit Server(const std::string& more, int ranks = 1, const std::string& workload = {},
                  const std::string& more_of_model = {}) {
    const std::string text = workload.empty() ? serving_scenario() : serving_scenario(workload, more_of_model);
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
  nlohmann::json complete(const nlohmann::json& body) const {
    const std::string answer = ask(post("/v1/completions", body.dump()));
    EXPECT_THAT(answer, ::testing::StartsWith("HTTP/1.1 200")) << answer;
    return nlohmann::json::parse(answer.substr(answer.find("\r\n\r\n") + 4), nullptr, false);
  }
  std::vector<int> tokens(const nlohmann::json& body) const {
    const nlohmann::json answer = complete(body);
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

inline nlohmann::json request(std::vector<int> prompt, int tokens) {
  return {{"prompt", prompt}, {"max_tokens", tokens}, {"ignore_eos", true}, {"return_token_ids", true}};
}

}  // namespace nlsplit
