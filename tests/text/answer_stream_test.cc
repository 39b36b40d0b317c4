// Where an answer ends: at tokens that the model's files name, and before stop strings, however the text comes.
#include "text/answer_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "testing/paths.h"
#include "testing/value_of.h"
#include "text/ends_json.h"
#include "text/read_tokenizer.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string small_folder = NLS_SOURCE_DIR "/tests/text/fixtures/";

TEST(StopStrings, HoldBackWhatMayBecomeOne) {
  StopStrings stop({"User:", "\n\n"});
  EXPECT_EQ(stop.next("Yes."), "Yes.");
  EXPECT_EQ(stop.next("\n"), "");
  EXPECT_EQ(stop.next("Us"), "\n");
  EXPECT_EQ(stop.next("e"), "");
  EXPECT_EQ(stop.next("d"), "Used");
  EXPECT_EQ(stop.next("User"), "");
  EXPECT_FALSE(stop.found());
  EXPECT_EQ(stop.next(": no"), "");
  EXPECT_TRUE(stop.found());
  EXPECT_EQ(stop.next("more"), "");
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopStrings, AreNotCutShortWhenTheTextEnds) {
  StopStrings stop({"User:"});
  EXPECT_EQ(stop.next("the User"), "the ");
  EXPECT_EQ(stop.finish(), "User");
  EXPECT_FALSE(stop.found());
}

// The same as looking for the first one in the whole text.
TEST(StopStrings, AreFoundOverAnyBorders) {
  std::mt19937 random(7);
  const auto letters = [&](size_t most) {
    std::string text;
    for (size_t n = random() % (most + 1); text.size() < n;) text += static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (size_t n = random() % 4; stops.size() < n;) stops.push_back(letters(4));
    const std::string text = letters(20);
    size_t first = std::string::npos;
    for (const std::string& stop : stops) {
      if (!stop.empty()) first = std::min(first, text.find(stop));
    }
    StopStrings stop(stops);
    std::string shown;
    for (size_t at = 0; at < text.size();) {
      const size_t step = 1 + random() % 3;
      shown += stop.next(std::string_view(text).substr(at, step));
      at += step;
    }
    shown += stop.finish();
    EXPECT_EQ(shown, text.substr(0, first)) << text;
    EXPECT_EQ(stop.found(), first != std::string::npos) << text;
  }
}

TEST(AnswerStream, EndsAtTokensAndTexts) {
  const Tokenizer tokenizer = value_of(read_tokenizer(small_folder + "llama3.json"));
  const std::vector<TokenId> tokens = value_of(encode(tokenizer, "one two three", Around::without));
  const auto answer_of = [&](std::vector<TokenId> ends, std::vector<std::string> stops) {
    AnswerStream answer(tokenizer, std::move(ends), std::move(stops));
    std::string text;
    for (const TokenId token : tokens) {
      text += value_of(answer.next(token));
      if (answer.ended()) break;
    }
    return text + answer.finish();
  };
  EXPECT_EQ(answer_of({}, {}), "one two three");
  EXPECT_EQ(answer_of({}, {"wo th"}), "one t");
  EXPECT_EQ(answer_of({tokens[0]}, {}), "");
  EXPECT_EQ(answer_of({tokens.back()}, {}), value_of(decode(tokenizer, std::span(tokens).first(tokens.size() - 1))));
}

TEST(Ends, AreNamedByTheFilesBesideATokenizer) {
  const Scratch scratch;
  const Tokenizer tokenizer = value_of(read_tokenizer(small_folder + "llama3.json"));
  const std::string path = scratch / "tokenizer.json";
  const auto ends = [&] { return read_ends_beside(path, tokenizer.vocabulary); };
  EXPECT_THAT(value_of(ends()), ElementsAre());
  scratch.write("config.json", R"({"eos_token_id": 3, "hidden_size": 4})");
  EXPECT_THAT(value_of(ends()), ElementsAre(3));
  scratch.write("generation_config.json", R"({"eos_token_id": [7, 5, 7]})");
  EXPECT_THAT(value_of(ends()), ElementsAre(5, 7));
  scratch.write("tokenizer_config.json", R"({"eos_token": {"content": "a", "special": true}})");
  const auto letter = value_of(encode(tokenizer, "a", Around::without)).at(0);
  EXPECT_THAT(value_of(ends()), ::testing::UnorderedElementsAre(5, 7, letter));
  scratch.write("tokenizer_config.json", R"({"eos_token": "<none such>"})");
  EXPECT_THAT(ends().error().to_string(),
              HasSubstr("tokenizer_config.json: /eos_token: \"<none such>\" is not a token"));
  scratch.write("generation_config.json", R"({"eos_token_id": [7, 99999999]})");
  EXPECT_THAT(ends().error().to_string(),
              HasSubstr("generation_config.json: /eos_token_id/1: 99999999 is not a token ID"));
  scratch.write("generation_config.json", "[]");
  EXPECT_THAT(ends().error().to_string(), HasSubstr("generation_config.json"));
}

}  // namespace
}  // namespace nlsplit
