// Text from a language model, as a user asks for it: the same tokens however the network is split, the prompt is cut
// into chunks, and whatever other sequences there are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using json = nlohmann::json;

// Three heads of keys for two shards: their parts are unequal.
std::string generating(const std::string& workload) {
  return "model: zoo:llama?layers=3&hidden=48&heads=6&kv_heads=3&ffn=96&vocab=300\n"
         "workload: {mode: generation, " +
         workload +
         "}\n"
         "devices:\n"
         "  a: &machine {host: h1, memory: 64MiB, costs: {roofline: {compute: 20GFLOPS, memory: 10GBps}}}\n"
         "  b: {<<: *machine, host: h2}\n"
         "  c: {<<: *machine, host: h3}\n"
         "switches: [sw]\n"
         "links:\n"
         "  - {between: [h1, sw], bandwidth: 1Gbps, latency: 50us}\n"
         "  - {between: [h2, sw], bandwidth: 1Gbps, latency: 50us}\n"
         "  - {between: [h3, sw], bandwidth: 1Gbps, latency: 50us}\n"
         "source: h1\nsink: h1\n"
         "plans:\n"
         "  one: [rest@a]\n"
         "  layers: [..model.layers.0@a, rest@b]\n"
         "  back: [..model.layers.1@b, rest@a]\n"
         "  away: [rest@b]\n"
         "  three: [..model.layers.0@c, ..model.layers.1@a, rest@b]\n"
         "  tensor: [rest@tensor(a+b)]\n"
         "  both: [..model.layers.0@c, rest@tensor(a+b)]\n"
         "  copies: [rest@a+b]\n";
}

// Prompts are computed elsewhere than tokens are.
std::string generating_apart(const std::string& workload) {
  return generating(workload) +
         "  handed: {prefill: [rest@a], decode: [rest@b]}\n"
         "  fetched: {prefill: [rest@b], decode: [rest@a]}\n"
         "  partly: {prefill: [..model.layers.1@a, rest@b], decode: [..model.layers.0@b, rest@a]}\n"
         "  third: {prefill: [..model.layers.0@c, rest@b], decode: [..model.layers.1@a, rest@c]}\n"
         "  nowhere: {prefill: [rest@b], decode: [rest@c]}\n";
}

constexpr std::array handed_over = {"handed", "fetched", "partly", "third", "nowhere"};

struct Generated {
  std::vector<std::vector<int>> tokens;  // [sequence]
  json all;
};

Generated generate(const std::string& scenario, const std::string& plan, const std::string& more) {
  const Outcome run =
      nlbench(fmt::format("generate {} --plan {} --transport threads --json - {}", scenario, plan, more));
  EXPECT_EQ(run.code, 0) << run.err;
  Generated made;
  if (run.code != 0) return made;
  made.all = json::parse(run.out);
  for (const json& sequence : made.all.at("sequences")) made.tokens.push_back(sequence.at("tokens"));
  return made;
}

constexpr const char* prompt = "--prompt-tokens 5,250,7,8,9,10,11,12,13,14,15 ";

TEST(Generate, GivesTheSameTokensUnderEveryPlan) {
  const Scratch scratch;
  const std::string scenario = scratch.write("s.yaml", generating("prompt: 11, tokens: 9, chunk: 4"));
  const Generated one = generate(scenario, "one", prompt);
  ASSERT_EQ(one.tokens.size(), 1);
  ASSERT_EQ(one.tokens[0].size(), 9);
  EXPECT_GT(std::set<int>(one.tokens[0].begin(), one.tokens[0].end()).size(), 2);  // it says something
  for (const char* plan : {"layers", "back", "away", "three", "tensor", "both"}) {
    SCOPED_TRACE(plan);
    EXPECT_EQ(generate(scenario, plan, prompt).tokens, one.tokens);
  }
  const Outcome ranks = mpirun(2, fmt::format("generate {} --plan back --json - {}", scenario, prompt));
  ASSERT_EQ(ranks.code, 0) << ranks.err;
  EXPECT_EQ(json::parse(ranks.out).at("sequences").at(0).at("tokens").get<std::vector<int>>(), one.tokens[0]);
}

// Prompts are computed on other devices than tokens are: keys and values move, in whole chunks, chunks that begin again
// near the end of the context, and of sequences that write while others read their prompts.
TEST(Generate, GivesTheSameTokensWherePromptsAreComputedElsewhere) {
  const Scratch scratch;
  const std::string prompts =
      "--prompt-tokens 1,2 --prompt-tokens 40,50,60,70,80,90,100,110,120,130,140 --prompt-tokens 7,8,9";
  for (const std::string& workload :
       {std::string("chunk: 4"), std::string("chunk: 11"), std::string("chunk: 5, context: 20"),
        std::string("chunk: 4, sequences: 4"), std::string("chunk: 3, sequences: 4, micro_batches: 2")}) {
    SCOPED_TRACE(workload);
    const bool several = workload.find("sequences") != std::string::npos;
    const std::string scenario = scratch.write("s.yaml", generating_apart("prompt: 11, tokens: 9, " + workload));
    const std::string given = several ? prompts : prompt;
    const Generated one = generate(scenario, "one", given);
    ASSERT_EQ(one.tokens.size(), several ? 3u : 1u);
    for (const char* plan : handed_over) EXPECT_EQ(generate(scenario, plan, given).tokens, one.tokens) << plan;
    if (!several) continue;
    for (const auto& [plan, ranks] : std::map<std::string, int>{{"partly", 2}, {"third", 3}}) {
      SCOPED_TRACE(plan);
      const Outcome run = mpirun(ranks, fmt::format("generate {} --plan {} --json - {}", scenario, plan, given));
      ASSERT_EQ(run.code, 0) << run.err;
      const json made = json::parse(run.out).at("sequences");
      for (size_t s = 0; s < one.tokens.size(); ++s)
        EXPECT_EQ(made.at(s).at("tokens").get<std::vector<int>>(), one.tokens[s]);
    }
  }
}

TEST(Generate, PlansWithPrefillElsewhereAreSavedAndNotServed) {
  const Scratch scratch;
  const std::string scenario = scratch.write("s.yaml", generating_apart("prompt: 11, tokens: 6, chunk: 4"));
  const Generated one = generate(scenario, "one", prompt);
  const std::string folder = scratch / "saved";
  const Outcome saved = nlsim(fmt::format("lower {} --plan handed --session --save {}", scenario, folder));
  ASSERT_EQ(saved.code, 0) << saved.err;
  const Outcome run = nlbench(fmt::format("generate {} --transport threads --json - {}", folder, prompt));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(json::parse(run.out).at("sequences").at(0).at("tokens").get<std::vector<int>>(), one.tokens.at(0));
  const Outcome load = nlsim(fmt::format("serve {} --plan handed --rate 2/s --requests 5", scenario));
  EXPECT_EQ(load.code, 2);
  EXPECT_THAT(load.err, HasSubstr("prefill and decode of their own"));
  const Outcome served = nlbench(fmt::format("serve {} --transport threads --port 0", folder));
  EXPECT_EQ(served.code, 2);
  EXPECT_THAT(served.err, HasSubstr("prefill and decode of their own"));
}

// Each shard keeps what the heads it computes see: of one head of keys both keep all.
// Experts on one machine, in layers and dealt out; in chunks that choose together or alone.
TEST(Generate, ExpertsGiveTheSameTokensUnderEveryPlan) {
  const Scratch scratch;
  const auto scenario = [&](const std::string& name, const std::string& workload) {
    std::string text = generating(workload);
    text.replace(
        text.find("zoo:"), text.find('\n') - text.find("zoo:"),
        "zoo:qwen3_moe?layers=3&hidden=48&heads=6&kv_heads=3&head=8&ffn=32&experts=5&experts_used=2&vocab=300");
    return scratch.write(name, text);
  };
  const std::string of_four = scenario("s.yaml", "prompt: 11, tokens: 12, chunk: 4"),
                    of_one = scenario("t.yaml", "prompt: 11, tokens: 12, chunk: 1");
  const std::string prompt = "--prompt-tokens 5,9,200,7,4,100,3,2,1,250,99";
  const Generated one = generate(of_four, "one", prompt);
  ASSERT_EQ(one.tokens.size(), 1u);
  EXPECT_EQ(one.tokens[0].size(), 12u);
  for (const char* plan : {"layers", "back", "three", "tensor", "both"})
    EXPECT_EQ(generate(of_four, plan, prompt).tokens, one.tokens) << plan;
  EXPECT_EQ(generate(of_one, "layers", prompt).tokens, one.tokens);
}

TEST(Generate, SharesHeadsOfKeysThatAreTooFew) {
  const Scratch scratch;
  std::string text = generating("prompt: 11, tokens: 6, chunk: 4");
  const std::string heads = "kv_heads=3";
  text.replace(text.find(heads), heads.size(), "kv_heads=1");
  const std::string scenario = scratch.write("s.yaml", text);
  const Generated one = generate(scenario, "one", prompt);
  EXPECT_EQ(generate(scenario, "tensor", prompt).tokens, one.tokens);
  EXPECT_EQ(generate(scenario, "both", prompt).tokens, one.tokens);
}

TEST(Generate, KeepsHalvesUnderEveryPlan) {
  const Scratch scratch;
  std::string text = generating_apart("prompt: 11, tokens: 6, chunk: 4");
  const std::string heads = "kv_heads=3";
  text.replace(text.find(heads), heads.size(), heads + "&cache_bits=16");
  const std::string scenario = scratch.write("s.yaml", text);
  const Generated one = generate(scenario, "one", prompt);
  ASSERT_EQ(one.tokens.size(), 1);
  for (const char* plan : {"layers", "back", "three", "tensor", "handed", "third"}) {
    SCOPED_TRACE(plan);
    EXPECT_EQ(generate(scenario, plan, prompt).tokens, one.tokens);
  }
}

TEST(Generate, GivesTheSameTokensInAnyChunks) {
  const Scratch scratch;
  std::vector<std::vector<int>> expected;
  for (const int chunk : {1, 2, 5, 11}) {
    SCOPED_TRACE(chunk);
    const std::string scenario =
        scratch.write("s.yaml", generating(fmt::format("prompt: 11, tokens: 6, chunk: {}", chunk)));
    const Generated made = generate(scenario, "layers", prompt);
    if (expected.empty()) expected = made.tokens;
    EXPECT_EQ(made.tokens, expected);
  }
}

TEST(Generate, SequencesDoNotDisturbEachOther) {
  const Scratch scratch;
  const std::string scenario = scratch.write("s.yaml", generating("prompt: 8, tokens: 5, chunk: 3, sequences: 2"));
  const std::string shorter = "--prompt-tokens 1,2 ", longer = "--prompt-tokens 40,50,60,70,80,90,100,110 ";
  const Generated a = generate(scenario, "back", shorter), b = generate(scenario, "back", longer);
  const Generated both = generate(scenario, "back", "--prompt-tokens 1,2 --prompt-tokens 40,50,60,70,80,90,100,110");
  ASSERT_EQ(both.tokens.size(), 2);
  EXPECT_EQ(both.tokens[0], a.tokens.at(0));
  EXPECT_EQ(both.tokens[1], b.tokens.at(0));
}

// Micro-batches of sequences pass the stages one behind the other, several tokens at once; each goes on with its own
// caches, and ends when it ends.
TEST(Generate, MicroBatchesOfSequencesDoNotDisturbEachOther) {
  const Scratch scratch;
  const std::vector<std::string> prompts = {"1,2", "40,50,60,70,80,90,100,110", "7,8,9", "200,100,50,25,12"};
  std::string all;
  for (const std::string& one : prompts) all += "--prompt-tokens " + one + " ";
  const auto scenario = [&](int micro_batches) {
    return scratch.write(
        fmt::format("s{}.yaml", micro_batches),
        generating(fmt::format("prompt: 8, tokens: 20, chunk: 3, sequences: 4, micro_batches: {}", micro_batches)));
  };
  const Generated together = generate(scenario(1), "layers", all);
  ASSERT_EQ(together.tokens.size(), 4);
  for (const std::vector<int>& one : together.tokens) EXPECT_EQ(one.size(), 20);  // more than are chosen at once
  for (const int micro_batches : {2, 4}) {
    for (const char* plan : {"one", "layers", "back", "away", "three", "both", "copies"}) {
      SCOPED_TRACE(fmt::format("{} in {}", plan, micro_batches));
      EXPECT_EQ(generate(scenario(micro_batches), plan, all).tokens, together.tokens);
    }
  }
  const Generated some = generate(scenario(4), "back", "--prompt-tokens 1,2 --prompt-tokens " + prompts[1]);
  EXPECT_EQ(some.tokens[0], together.tokens[0]);
  EXPECT_EQ(some.tokens[1], together.tokens[1]);
  const Outcome ranks = mpirun(3, fmt::format("generate {} --plan three --json - {}", scenario(2), all));
  ASSERT_EQ(ranks.code, 0) << ranks.err;
  for (size_t s = 0; s < prompts.size(); ++s)
    EXPECT_EQ(json::parse(ranks.out).at("sequences").at(s).at("tokens").get<std::vector<int>>(), together.tokens[s]);
}

// Two stages that compute, and do not only read weights, do so at the same time.
TEST(Generate, MicroBatchesKeepStagesBusy) {
  const Scratch scratch;
  const auto tokens_per_s = [&](int micro_batches) {
    std::string text =
        generating(fmt::format("prompt: 8, tokens: 64, chunk: 8, sequences: 32, micro_batches: {}", micro_batches));
    const std::string slow = "{compute: 20GFLOPS, memory: 10GBps}";
    text.replace(text.find(slow), slow.size(), "{compute: 1GFLOPS, memory: 1000GBps}");
    const Outcome ranked = nlsim(fmt::format("rank {} --json {}", scratch.write("s.yaml", text), scratch / "r.json"));
    EXPECT_EQ(ranked.code, 0) << ranked.err;
    const json ranking = json::parse(value_of(read_file(scratch / "r.json")));
    for (const json& plan : ranking.at("plans")) {
      if (plan.at("name") == "layers") return plan.at("generation").at("tokens_per_s").get<double>();
    }
    return 0.0;
  };
  const double one = tokens_per_s(1), two = tokens_per_s(2);
  EXPECT_GT(one, 0);
  EXPECT_GT(two, 1.2 * one);
}

TEST(Generate, SaysHowLongItTookAndWhatWasExpected) {
  const Scratch scratch;
  const std::string scenario = scratch.write("s.yaml", generating("prompt: 11, tokens: 4, chunk: 4"));
  const Outcome run = nlbench(fmt::format("generate {} --plan layers --transport threads {}", scenario, prompt));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("4 tokens in "));
  EXPECT_THAT(run.err, HasSubstr("first token (TTFT)"));
  EXPECT_THAT(run.err, HasSubstr("each next token (TPOT)"));
  const json made = generate(scenario, "layers", prompt).all;
  EXPECT_GT(made.at("predicted").at("next_token_s"), 0);
  EXPECT_EQ(made.at("token_steps_s").size(), 3);
}

TEST(Generate, DrawsByItsSeed) {
  const Scratch scratch;
  const std::string scenario = scratch.write("s.yaml", generating("prompt: 11, tokens: 9, chunk: 4, candidates: 50"));
  const std::string hot = std::string(prompt) + "--temperature 2 --seed ";
  const Generated one = generate(scenario, "one", hot + "1"), again = generate(scenario, "tensor", hot + "1");
  EXPECT_EQ(one.tokens, again.tokens);
  EXPECT_NE(one.tokens, generate(scenario, "one", hot + "2").tokens);
  EXPECT_NE(one.tokens, generate(scenario, "one", prompt).tokens);
}

TEST(Generate, RefusesWhatItCannotDo) {
  const Scratch scratch;
  const std::string scenario = scratch.write("s.yaml", generating("prompt: 11, tokens: 4, chunk: 4"));
  const auto refused = [&](const std::string& arguments) {
    const Outcome run = nlbench("generate " + arguments + " --transport threads");
    EXPECT_EQ(run.code, 2) << run.out;
    return run.err;
  };
  EXPECT_THAT(refused(scenario + " --plan one --prompt hello"), HasSubstr("--prompt needs a tokenizer"));
  EXPECT_THAT(refused(scenario + " --plan one"), HasSubstr("says what to go on from"));
  EXPECT_THAT(refused(scenario + " --plan one --prompt-tokens 1 --stop x"), HasSubstr("--stop needs a tokenizer"));
  EXPECT_THAT(refused(scenario + " --plan one --prompt-tokens 1 --stop ''"), HasSubstr("--stop: the text is empty"));
  EXPECT_THAT(refused(scenario + " --plan one --prompt-tokens 1 --chat"), HasSubstr("--chat is for a --prompt"));
  EXPECT_THAT(refused(scenario + " --plan one --prompt x --system y"), HasSubstr("--system is for --chat"));
  EXPECT_THAT(refused(scenario + " --plan one --prompt-tokens 1,2,3 --tokens 14"),
              HasSubstr("a prompt of 3 tokens and 14 more need 16 positions, and the plan keeps 14"));
  EXPECT_THAT(refused(scenario + " --plan one --prompt-tokens 1 --tokens 9223372036854775807"),
              HasSubstr("and the plan keeps 14"));
  EXPECT_THAT(refused(scenario + " --plan one --prompt-tokens 1 --temperature 1"),
              HasSubstr("`candidates` of the workload"));
  EXPECT_THAT(refused(scenario + " --plan one --prompt-tokens 1 --seed 1"), HasSubstr("--seed are for drawing"));
  EXPECT_THAT(refused(scenario + " --plan one --prompt-tokens 1 --prompt-tokens 2"),
              HasSubstr("2 prompts, and the plan has 1 at once"));
  EXPECT_THAT(refused(scenario + " --plan one --prompt-tokens 1,300"),
              HasSubstr("token 300, and the vocabulary has 300"));
  const std::string plain = NLS_SOURCE_DIR "/scenarios/counter.session";
  EXPECT_THAT(refused(plain + " --prompt-tokens 1"), HasSubstr("does not generate text"));
}

TEST(Generate, RefusesScenariosThatCannotBe) {
  const Scratch scratch;
  const auto refused = [&](const std::string& what, const std::string& by) {
    std::string text = generating("prompt: 11, tokens: 4, chunk: 4");
    text.replace(text.find(what), what.size(), by);
    const Outcome ranked = nlsim("rank " + scratch.write("s.yaml", text));
    EXPECT_EQ(ranked.code, 2) << ranked.out;
    return ranked.err;
  };
  EXPECT_THAT(refused("sink: h1", "sink: h2"), HasSubstr("s.yaml:13:7: for generation source and sink are one host"));
  EXPECT_THAT(refused("one: [rest@a]", "one: {stages: [rest@a], micro_batches: 2}"), HasSubstr("s.yaml:15:"));
  EXPECT_THAT(refused("zoo:llama?", "zoo:llama?length=4&"), HasSubstr("'length' is the workload's to say"));
  EXPECT_THAT(refused("zoo:llama?layers=3&hidden=48&heads=6&kv_heads=3&ffn=96&vocab=300", "zoo:gpt2"),
              HasSubstr("there is no context"));
}

// Kernels of both Programs are measured, on devices of unlike levels too.
TEST(Generate, IsRankedByMeasuredCosts) {
  const Scratch scratch;
  std::string text = generating("prompt: 11, tokens: 4, chunk: 4, sequences: 2, micro_batches: [1, 2]");
  const std::string costs = "costs: {roofline: {compute: 20GFLOPS, memory: 10GBps}}",
                    machine = "b: {<<: *machine, host: h2}";
  text.replace(text.find(costs), costs.size(), "costs: p.json");
  text.replace(text.find(machine), machine.size(), "b: {<<: *machine, host: h2, isa: v2}");
  const std::string scenario = scratch.write("s.yaml", text);
  const Outcome profiled = nlbench(fmt::format("profile {} -o {} --budget 2s", scenario, scratch / "p.json"));
  ASSERT_EQ(profiled.code, 0) << profiled.err;
  const Outcome ranked = nlsim("rank " + scenario);
  ASSERT_EQ(ranked.code, 0) << ranked.err;
  EXPECT_THAT(ranked.out, HasSubstr(" measured, 0 by formula"));
}

TEST(Generate, IsRankedByItsTokens) {
  const Scratch scratch;
  const std::string scenario = scratch.write("s.yaml", generating("prompt: 11, tokens: 4, chunk: 4"));
  const Outcome ranked = nlsim("rank " + scenario);
  ASSERT_EQ(ranked.code, 0) << ranked.err;
  EXPECT_THAT(ranked.out, HasSubstr("llama generates, 1 sequence on 3 devices, best time of each token (TPOT) first"));
  EXPECT_THAT(ranked.out, HasSubstr("(TPOT)"));
  EXPECT_THAT(ranked.out, HasSubstr("nlbench generate " + scenario));
}

// Figures of a decode are not those of a batch, and nothing is said of prompts without saying so.
TEST(Generate, SimulateSaysThatItShowsDecode) {
  const Scratch scratch;
  const std::string scenario =
      scratch.write("s.yaml", generating_apart("prompt: 11, tokens: 9, chunk: 4, sequences: 2, context: 32"));
  const Outcome layers = nlsim("simulate " + scenario + " --plan layers");
  ASSERT_EQ(layers.code, 0) << layers.err;
  EXPECT_THAT(layers.out, HasSubstr("\none decode (2 sequences, a token of each, context 32): "));
  EXPECT_THAT(layers.out, HasSubstr("\nnote     all of this is decode; `nlsim rank` has the time of prompts (TTFT)"));
  EXPECT_THAT(layers.out, Not(HasSubstr("samples/s")));
  const Outcome handed = nlsim("simulate " + scenario + " --plan handed");
  ASSERT_EQ(handed.code, 0) << handed.err;
  EXPECT_THAT(handed.out, HasSubstr("prompts are computed by `prefill`, and nothing of that is here"));
  const Outcome file = nlsim("simulate " + scenario + " --plan handed --json -");
  ASSERT_EQ(file.code, 0) << file.err;
  EXPECT_EQ(json::parse(file.out).at("execution"), "decode");
}

TEST(Generate, CheckSaysHowQuicklyItMakesTokens) {
  const Scratch scratch;
  const std::string scenario =
      scratch.write("s.yaml", generating_apart("prompt: 11, tokens: 9, chunk: 4, sequences: 2"));
  const Outcome checked = nlsim("check " + scenario + " --plan layers");
  ASSERT_EQ(checked.code, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr(" each token (TPOT), "));
  EXPECT_THAT(checked.out, HasSubstr(" tokens/s of 2 sequences\n"));
  EXPECT_THAT(checked.out, HasSubstr("best time of each token (TPOT) first\n"));
  EXPECT_THAT(checked.out, Not(HasSubstr("samples/s")));
  const Outcome file = nlsim("check " + scenario + " --plan handed --json -");
  ASSERT_EQ(file.code, 0) << file.err;
  const json plan = json::parse(file.out).at("plans").at(0);
  EXPECT_GT(plan.at("figures").at("generation").at("first_token_s"), 0);
  EXPECT_GT(plan.at("best").at("figures").at("generation").at("tokens_per_s"), 0);
}

// Tokens fit, a chunk of 512 does not.
TEST(Generate, CheckRefusesWhatHasNoRoomForPrompts) {
  const Scratch scratch;
  std::string text = generating("prompt: 512, tokens: 9, chunk: 512, context: 521");
  for (size_t at; (at = text.find("64MiB")) != std::string::npos;) text.replace(at, 5, "1MiB");
  const std::string scenario = scratch.write("s.yaml", text);
  const Outcome checked = nlsim("check " + scenario + " --plan one");
  EXPECT_EQ(checked.code, 2) << checked.out;
  EXPECT_EQ(checked.out, "");
  EXPECT_THAT(checked.err, HasSubstr("device a has 1 MiB of memory, and this needs "));
}

}  // namespace
}  // namespace nlsplit
