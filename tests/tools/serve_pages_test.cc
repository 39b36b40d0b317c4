// A server whose requests share a cache in pages: the tokens of caches in one piece, whoever shares, waits or is
// preempted; and what says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tools/served_model.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using json = nlohmann::json;

const std::string sizes = "chunk: 4, sequences: 5, context: 64, candidates: 20";

// Behind one of three texts, prompts of many lengths, in whole chunks and beside them; some are drawn.
std::vector<json> different_requests() {
  std::vector<json> requests;
  for (int r = 0; r < 16; ++r) {
    std::vector<int> prompt;
    for (int t = 0; t < (r % 2 == 0 ? 21 : 2); ++t) prompt.push_back((r % 3 * 211 + t * 37) % 701);
    for (int t = 0; t <= (r * 7) % 17; ++t) prompt.push_back((r * 131 + t * 17) % 701);
    requests.push_back(request(prompt, 3 + (r * 5) % 23));
    if (r % 4 == 1) requests.back().update({{"temperature", 1.5}, {"seed", r}});
  }
  return requests;
}

std::vector<std::vector<int>> one_by_one(const Server& server, const std::vector<json>& requests) {
  std::vector<std::vector<int>> answers;
  for (const json& one : requests) answers.push_back(server.tokens(one));
  return answers;
}

std::vector<std::vector<int>> all_at_once(const Server& server, const std::vector<json>& requests) {
  std::vector<std::vector<int>> answers(requests.size());
  std::vector<std::thread> clients;
  for (size_t r = 0; r < requests.size(); ++r)
    clients.emplace_back([&, r] { answers[r] = server.tokens(requests[r]); });
  for (std::thread& client : clients) client.join();
  return answers;
}

// Alone and all at once; with room for every request, and for little more than one: with layers on two machines, by
// threads and by MPI; heads on two; caches of f16; pages that are longer and shorter than a chunk.
TEST(ServePages, GivesTheTokensOfCachesInOnePiece) {
  struct Case {
    std::string plan;
    int ranks;
    std::string pages, model;
  };
  const std::vector<json> requests = different_requests();
  const auto expected = [&](const std::string& plan, const std::string& model) {
    const Server server("--no-prefix-reuse --plan " + plan, 1, sizes, model);
    return one_by_one(server, requests);
  };
  const auto f32 = expected("one", ""), f16 = expected("one", "&cache_bits=16"), heads = expected("heads", "");
  double preemptions = 0;
  for (const auto& [plan, ranks, pages, model] : {Case{"one", 1, "page: 8", ""},
                                                  {"one", 1, "page: 2, cache: 70", ""},
                                                  {"one", 1, "page: 8, cache: 72", "&cache_bits=16"},
                                                  {"layers", 1, "page: 4, cache: 72", ""},
                                                  {"layers", 2, "page: 8, cache: 80", ""},
                                                  {"replicas", 1, "page: 8, cache: 80", ""},
                                                  {"heads", 2, "page: 8, cache: 80", ""}}) {
    SCOPED_TRACE(fmt::format("{} {} {} {}", plan, ranks, pages, model));
    const Server server(fmt::format("--waiting 20 --plan {}", plan), ranks, sizes + ", " + pages, model);
    const auto& tokens = plan == "heads" ? heads : model.empty() ? f32 : f16;
    EXPECT_EQ(one_by_one(server, requests), tokens);
    EXPECT_EQ(server.metric("preemptions_total"), 0);
    EXPECT_EQ(all_at_once(server, requests), tokens);
    EXPECT_EQ(all_at_once(server, requests), tokens);
    EXPECT_EQ(server.metric("copied_tokens_total"), 0);
    EXPECT_EQ(server.metric("requests_finished_total"), 48);
    preemptions += server.metric("preemptions_total");
    if (pages.find("cache") != pages.npos) continue;  // in so little room who finds what depends on who comes when
    EXPECT_GT(server.metric("cached_tokens_total"), 0);
    EXPECT_EQ(preemptions, 0);
  }
  EXPECT_GT(preemptions, 0);
}

// Those that come together share a text of five pages: the first one computes it for all.
TEST(ServePages, SharesWhatHasJustBeenComputed) {
  const Server server("--plan one --waiting 20", 1, sizes + ", page: 8");
  std::vector<json> requests;
  for (int r = 0; r < 5; ++r) {
    std::vector<int> prompt;
    for (int t = 0; t < 42; ++t) prompt.push_back(t * 37 % 701);
    prompt.push_back(r);
    requests.push_back(request(prompt, 4));
  }
  all_at_once(server, requests);
  EXPECT_EQ(server.metric("cached_tokens_total"), 4 * 40);
  const json again = server.complete(requests[3]);
  EXPECT_EQ(again.at("usage").at("prompt_tokens_details").at("cached_tokens"), 40);
}

// Its pages are others' at once.
TEST(ServePages, AClientThatGoesLeavesItsPages) {
  const Server server("--plan one --waiting 20", 1, sizes + ", page: 8, cache: 64");
  {
    RawClient gone(server.port());
    json longest = request({1, 2, 3, 4, 5}, 60);
    longest["stream"] = true;
    gone.send(post("/v1/completions", longest.dump()));
    gone.receive("token_ids");
  }
  ASSERT_TRUE(server.comes_to("requests_running", 0));
  EXPECT_EQ(server.tokens(request({9, 8, 7}, 62)).size(), 62u);
}

TEST(ServePages, AreSimulatedRankedAndRefused) {
  const Scratch scratch;
  const std::string scenario = scratch.write("s.yaml", serving_scenario(sizes + ", page: 8, cache: 64"));
  const Outcome simulated =
      nlsim("serve " + scenario +
            " --plan layers --rate 1000/s --requests 40 --prompt-length 4..30 --tokens 30 --waiting 40");
  ASSERT_EQ(simulated.code, 0) << simulated.err;
  EXPECT_THAT(simulated.out, HasSubstr("40 answered"));
  EXPECT_THAT(simulated.out, HasSubstr("preemptions for want of pages"));
  EXPECT_THAT(simulated.out, HasSubstr("(of one request "));
  const Outcome ranked = nlsim("rank " + scenario + " --json -");
  ASSERT_EQ(ranked.code, 0) << ranked.err;
  const Outcome generated = nlbench("generate " + scenario + " --plan one --transport threads --prompt-tokens 1,2");
  EXPECT_EQ(generated.code, 2);
  EXPECT_THAT(generated.err, HasSubstr("caches in pages are for `nlbench serve` and `nlsim serve`"));
  const Outcome validated = nlbench(fmt::format("validate {} -o {}", scenario, scratch / "v"));
  EXPECT_EQ(validated.code, 2);
  EXPECT_THAT(validated.err, HasSubstr("caches in pages are for a server"));
  const std::string apart = scratch.write(
      "apart.yaml", serving_scenario(sizes + ", page: 8") + "  apart: {prefill: [rest@a], decode: [rest@b]}\n");
  const Outcome split = nlsim("serve " + apart + " --plan apart --rate 1/s --requests 2");
  EXPECT_EQ(split.code, 2);
  EXPECT_THAT(split.err, HasSubstr("a server, which computes prompts and tokens by one plan"));
}

}  // namespace
}  // namespace nlsplit
