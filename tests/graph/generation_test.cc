// A network that goes on with its states, a chunk or a token at a time, against one pass over all tokens.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "graph/elements.h"
#include "graph/gguf/import.h"
#include "graph/passes/passes.h"
#include "graph/reference/evaluate.h"
#include "graph/zoo/zoo.h"
#include "testing/paths.h"
#include "testing/value_of.h"

namespace nlsplit::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int64_t vocabulary = 50, context = 16, candidates = 3;

Model small_llama(const std::string& more) {
  return value_of(
      zoo_model("llama?layers=2&hidden=32&heads=4&kv_heads=2&ffn=64&vocab=" + std::to_string(vocabulary) + "&" + more));
}
Model going_on(int64_t length) {
  return small_llama(fmt::format("length={}&context={}&candidates={}", length, context, candidates));
}

Tensor integers(Shape shape, const std::vector<int64_t>& values) {
  return tensor_of({DType::i64, std::move(shape)},
                   std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t)));
}

const std::vector<int64_t> text = {3, 17, 42, 8, 8, 31, 0, 49, 12, 5, 26};

// Of the position behind all tokens: [vocabulary].
std::vector<float> logits_behind(const std::vector<int64_t>& tokens) {
  const auto length = static_cast<int64_t>(tokens.size());
  const Model whole = small_llama(fmt::format("length={}", length));
  const Tensor logits = value_of(evaluate(whole.graph, whole.weights, {integers({1, length}, tokens)}))[0];
  return {logits.values.end() - vocabulary, logits.values.end()};
}

void expect_best_of(const std::vector<float>& logits, const std::vector<Tensor>& outputs) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  ASSERT_EQ(outputs.size(), 2);
  for (size_t i = 0; i < static_cast<size_t>(candidates); ++i) {
    EXPECT_EQ(outputs[1].values[i], static_cast<float>(order[i])) << i;
    EXPECT_NEAR(outputs[0].values[i], logits[order[i]], 1e-4) << i;
  }
}

std::vector<Tensor> go_on(const Model& model, States& states, int64_t begin, std::vector<int64_t> tokens) {
  const auto length = model.graph.value(model.graph.inputs[0]).type.shape[1];
  const auto taken = static_cast<int64_t>(tokens.size());
  tokens.resize(static_cast<size_t>(length), 7);  // what stands behind the last one means nothing
  std::vector<Tensor> inputs = {integers({1, length}, tokens), integers({1}, {begin}), integers({1}, {begin + length})};
  if (length > 1) inputs.push_back(integers({1, 1}, {taken - 1}));
  return value_of(evaluate(model.graph, model.weights, inputs, &states));
}

TEST(GoingOn, TokenByTokenIsOnePass) {
  const Model model = going_on(1);
  States states;
  for (size_t t = 0; t < text.size(); ++t) {
    SCOPED_TRACE(t);
    const std::vector<Tensor> made = go_on(model, states, static_cast<int64_t>(t), {text[t]});
    expect_best_of(logits_behind({text.begin(), text.begin() + static_cast<std::ptrdiff_t>(t) + 1}), made);
  }
}

// The last chunk has fewer tokens than the others; what it writes behind them is written over.
TEST(GoingOn, InChunksAndThenByTokens) {
  for (const int64_t chunk : {2, 4, 5}) {
    SCOPED_TRACE(chunk);
    const Model prompts = going_on(chunk), tokens = going_on(1);
    States states;
    std::vector<Tensor> made;
    constexpr int64_t prompt = 9;
    for (int64_t begin = 0; begin < prompt; begin += chunk) {
      const auto first = text.begin() + begin;
      made = go_on(prompts, states, begin, {first, first + std::min(chunk, prompt - begin)});
    }
    expect_best_of(logits_behind({text.begin(), text.begin() + prompt}), made);
    for (int64_t at = prompt; at < std::ssize(text); ++at)
      made = go_on(tokens, states, at, {text[static_cast<size_t>(at)]});
    expect_best_of(logits_behind(text), made);
  }
}

// Windows, two bases of rotation, soft caps and factors over caches, token by token and in chunks: of files with random
// weights, against one pass over all tokens, which gguf_import_test.cc holds against the definition.
class GoingOnFromAFile : public ::testing::TestWithParam<const char*> {};

TEST_P(GoingOnFromAFile, IsOnePass) {
  const std::string file = fmt::format("{}/tests/graph/gguf/{}.gguf", NLS_SOURCE_DIR, GetParam());
  const auto model_of = [&](const std::string& sizes) { return value_of(import_gguf(file + "?weights=f32&" + sizes)); };
  const auto behind = [&](size_t count) {
    const Model whole = model_of(fmt::format("length={}", count));
    const std::vector<int64_t> tokens(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(count));
    const Tensor logits =
        value_of(evaluate(whole.graph, whole.weights, {integers({1, static_cast<int64_t>(count)}, tokens)}))[0];
    return std::vector<float>(logits.values.end() - whole.graph.value(whole.graph.outputs[0]).type.shape[2],
                              logits.values.end());
  };
  for (const int64_t chunk : {1, 4}) {
    const Model model = model_of(fmt::format("length={}&context={}&candidates={}", chunk, context, candidates));
    States states;
    for (int64_t begin = 0; begin + chunk <= std::ssize(text); begin += chunk) {
      SCOPED_TRACE(begin);
      const auto first = text.begin() + begin;
      expect_best_of(behind(static_cast<size_t>(begin + chunk)), go_on(model, states, begin, {first, first + chunk}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, GoingOnFromAFile, ::testing::Values("mistral", "gemma2", "gemma3"),
                         [](const auto& kind) { return std::string(kind.param); });

// Halves: the states are f16, and what is read of them is what was kept, rounded once.
TEST(GoingOn, KeepsHalvesWhereTheyAreAskedFor) {
  const Model model = small_llama(fmt::format("length=1&context={}&candidates={}&cache_bits=16", context, candidates));
  for (const StateUpdate& update : state_updates(model.graph))
    EXPECT_EQ(model.graph.value(update.state).type.dtype, DType::f16);
  States states;
  for (size_t t = 0; t < text.size(); ++t) {
    const std::vector<Tensor> made = go_on(model, states, static_cast<int64_t>(t), {text[t]});
    const std::vector<float> logits = logits_behind({text.begin(), text.begin() + static_cast<std::ptrdiff_t>(t) + 1});
    for (size_t i = 0; i < static_cast<size_t>(candidates); ++i)
      EXPECT_NEAR(made[0].values[i], logits[static_cast<size_t>(made[1].values[i])], 5e-3) << t;
  }
}

TEST(GoingOn, PassesKeepTheStates) {
  Model model = going_on(4);
  const Graph before = model.graph;
  model.graph = value_of(optimize(before, model.weights));
  EXPECT_EQ(state_updates(model.graph).size(), state_updates(before).size());
  EXPECT_EQ(state_updates(before).size(), 4);  // keys and values of two layers
  States plain, optimized;
  const Model unchanged = going_on(4);
  const std::vector<Tensor> a = go_on(unchanged, plain, 0, {1, 2, 3, 4}), b = go_on(model, optimized, 0, {1, 2, 3, 4});
  EXPECT_EQ(a[1].values, b[1].values);
  EXPECT_EQ(plain.size(), optimized.size());
}

TEST(GoingOn, SamplesHaveStatesOfTheirOwn) {
  const Model model = going_on(1);
  const Graph of_two = value_of(with_batch(model.graph, 2));
  for (const StateUpdate& update : state_updates(of_two))
    EXPECT_EQ(of_two.value(update.state).type.shape[0], 2) << of_two.value(update.state).name;
  States both, one;
  std::vector<Tensor> together, alone;
  for (int64_t t = 0; t < 4; ++t) {
    const auto token = [&](int64_t at) { return text[static_cast<size_t>(at)]; };
    together = value_of(evaluate(
        of_two, model.weights,
        {integers({2, 1}, {token(t), token(t + 5)}), integers({2}, {t, t}), integers({2}, {t + 1, t + 1})}, &both));
    alone = go_on(model, one, t, {token(t + 5)});
  }
  const std::vector<float> second(together[0].values.begin() + candidates, together[0].values.end());
  EXPECT_THAT(second, ElementsAreArray(alone[0].values));
}

TEST(States, HaveATextOfTheirOwn) {
  const Graph graph = going_on(1).graph;
  const std::string text_of_it = to_string(graph);
  EXPECT_THAT(text_of_it, HasSubstr("state %model.layers.0.self_attn.past_keys f32[1,2,16,8]\n"));
  EXPECT_EQ(value_of(parse_graph(text_of_it, "graph")), graph);
}

TEST(States, AreReadOnceByTheNodeThatChangesThem) {
  const auto verified = [](const std::string& nodes) {
    return parse_graph("graph \"g\"\nstate %past f32[1,1,4,2]\ninput %x f32[1,1,1,2]\n" + nodes, "g");
  };
  const std::string change = "%now f32[1,1,4,2] = TensorScatter(%past, %x) as \"now\"\n";
  EXPECT_TRUE(verified(change + "output %now\n").ok());
  const auto never = verified("%y f32[1,1,1,2] = Relu(%x) as \"y\"\noutput %y\n");
  ASSERT_FALSE(never.ok());
  EXPECT_THAT(never.error().message, HasSubstr("state past is to be read once, by the node that changes it"));
  EXPECT_FALSE(verified(change + "%y f32[1,1,4,2] = Relu(%past) as \"y\"\noutput %now\noutput %y\n").ok());
  EXPECT_FALSE(verified("%y f32[1,1,4,2] = Relu(%past) as \"y\"\noutput %y\n").ok());
}

TEST(Llama, RefusesAContextThatCannotBe) {
  const auto refused = [](const std::string& sizes) {
    const auto model = zoo_model("llama?layers=1&hidden=32&heads=4&kv_heads=2&ffn=64&vocab=50&" + sizes);
    return model.ok() ? std::string() : model.error().message;
  };
  EXPECT_THAT(refused("length=8&context=7"), HasSubstr("context 7 is not from the length, 8, to"));
  EXPECT_THAT(refused("length=1&context=7&candidates=51"), HasSubstr("candidates 51 is more than the 50 tokens"));
  EXPECT_THAT(refused("length=1&context=7&cache_bits=8"), HasSubstr("cache_bits 8 are neither 32 nor 16"));
  EXPECT_THAT(refused("length=1&cache_bits=16"), HasSubstr("cache_bits need a context"));
}

}  // namespace
}  // namespace nlsplit::testing
