// Bodies of requests: what is read, and where the trouble is.
#include "server/api/request.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Request, ReadsCompletions) {
  const CompletionRequest request = value_of(parse_request(
      Route::completions, R"({"prompt": "Hi", "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": -1, "seed": 3,
                              "stop": ["a", "b"], "stream": true, "stream_options": {"include_usage": true},
                              "ignore_eos": true, "n": 1, "user": "me", "logprobs": null, "model": "m"})"));
  EXPECT_EQ(request.prompt, "Hi");
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.tokens, 7);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_k, 0);
  EXPECT_EQ(request.sampling.seed, 3u);
  EXPECT_THAT(request.stops, ElementsAre("a", "b"));
  EXPECT_TRUE(request.streams && request.reports_usage && request.ignores_end);
  EXPECT_THAT(value_of(parse_request(Route::completions, R"({"prompt": [5, 6]})")).prompt_tokens, ElementsAre(5, 6));
  EXPECT_EQ(value_of(parse_request(Route::completions, R"({"prompt": ["one"]})")).prompt, "one");
}

TEST(Request, ReadsConversations) {
  const CompletionRequest request = value_of(parse_request(Route::chat,
                                                           R"({"messages": [{"role": "system", "content": "s"},
                       {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
          "max_completion_tokens": 9, "response_format": {"type": "text"}, "tools": []})"));
  ASSERT_EQ(request.messages.size(), 2u);
  EXPECT_EQ(request.messages[1].content, "ab");
  EXPECT_EQ(request.tokens, 9);
}

TEST(Request, SaysWhereItIsWrong) {
  const auto wrong = [](Route route, const std::string& body) {
    const auto parsed = parse_request(route, body);
    return parsed.ok() ? "fine" : parsed.error().message;
  };
  const auto completion = [&](const std::string& more) {
    return wrong(Route::completions, R"({"prompt": "a", )" + more + "}");
  };
  EXPECT_EQ(wrong(Route::completions, R"({"prompt": "a",})"), "byte 16: this is not JSON");
  EXPECT_THAT(wrong(Route::completions, R"({"prompt": "a")"), HasSubstr("the JSON ends in the middle"));
  EXPECT_EQ(wrong(Route::completions, "[]"), "/: [] is not an object");
  EXPECT_EQ(wrong(Route::completions, "{}"), "/prompt: neither a text nor a list of tokens");
  EXPECT_EQ(wrong(Route::completions, R"({"prompt": [1, -2]})"), "/prompt/1: -2 is not from 0 to 4194303");
  EXPECT_THAT(wrong(Route::completions, R"({"prompt": ["a", "b"]})"), HasSubstr("/prompt: several prompts"));
  EXPECT_EQ(completion(R"("max_tokens": 0)"), "/max_tokens: 0 is not from 1 to 1073741824");
  EXPECT_EQ(completion(R"("max_tokens": 1.5)"), "/max_tokens: 1.5 is not an integer");
  EXPECT_EQ(completion(R"("temperature": -1)"), "/temperature: -1 is not from 0 to 100");
  EXPECT_THAT(completion(R"("top_p": 0)"), HasSubstr("top-p"));
  EXPECT_EQ(completion(R"("stop": ["a", 3])"), "/stop/1: 3 is not a string");
  EXPECT_EQ(completion(R"("n": 2)"), "/n: 2 is not supported");
  EXPECT_EQ(completion(R"("presence_penalty": 0.5)"), "/presence_penalty: 0.5 is not supported");
  EXPECT_EQ(completion(R"("temprature": 1)"), "/: the key \"temprature\" is not known");
  EXPECT_EQ(completion(R"("prompt": "b")"), "the key \"prompt\" stands twice");
  EXPECT_THAT(completion("\"user\": \"\xff\""), HasSubstr("this is not JSON"));
  EXPECT_EQ(completion(R"("response_format": {"type": 3})"), "/response_format: {\"type\":3} is not supported");
  EXPECT_EQ(completion(R"("suffix": "auto")"), "/suffix: \"auto\" is not supported");
  EXPECT_EQ(completion(R"("logprobs": 0)"), "/logprobs: 0 is not supported");
  EXPECT_EQ(completion(R"("echo": 0)"), "/echo: 0 is not supported");
  EXPECT_EQ(completion(R"("tools": "")"), "/tools: \"\" is not supported");
  EXPECT_EQ(wrong(Route::chat, R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})"),
            "/messages/0/content/0/type: \"image_url\": only text is read");
  EXPECT_THAT(wrong(Route::chat, R"({"messages": [], "tools": [{"type": "function"}]})"), HasSubstr("/tools: "));
  EXPECT_EQ(wrong(Route::chat, R"({"prompt": "a", "messages": []})"), "/: the key \"prompt\" is not known");
}

TEST(Request, PassesOverWhatIsTheDefault) {
  for (const char* const same :
       {R"("n": 1)", R"("suffix": "")", R"("echo": false)", R"("logprobs": false, "top_logprobs": 0)",
        R"("presence_penalty": 0.0)", R"("logit_bias": {})", R"("tools": [], "tool_choice": "auto")",
        R"("function_call": "none")", R"("parallel_tool_calls": true)", R"("response_format": {"type": "text"})"})
    EXPECT_EQ(value_of(parse_request(Route::completions, fmt::format(R"({{"prompt": "a", {}}})", same))).prompt, "a");
}

// Whoever reads a value, says it or frees it would need as many frames of the stack.
TEST(Request, IsNotDeep) {
  const std::string deep = "more than 64 lists and objects in each other";
  std::string objects;
  for (int level = 0; level < 100'000; ++level) objects += "{\"a\":";
  for (const std::string& body : {std::string(100'000, '[') + std::string(100'000, ']'),
                                  R"({"user": )" + objects + "1" + std::string(100'000, '}') + "}",
                                  R"({"user": )" + std::string(64, '[') + std::string(64, ']') + "}"})
    EXPECT_EQ(parse_request(Route::completions, body).error().message, deep);
  EXPECT_THAT(parse_request(Route::completions, std::string(100'000, '[')).error().message, HasSubstr("in the middle"));
  const std::string at_limit = R"({"prompt": "a", "user": )" + std::string(63, '[') + std::string(63, ']') + "}";
  EXPECT_TRUE(parse_request(Route::completions, at_limit).ok());
}

}  // namespace
}  // namespace nlsplit
