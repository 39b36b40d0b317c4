// Small tokenizers of each kind and what the package `tokenizers` makes of them: scripts/compare_tokenizers
// --write-fixtures.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "testing/paths.h"
#include "testing/value_of.h"
#include "text/decode.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace nlsplit {
namespace {

const std::string folder = NLS_SOURCE_DIR "/tests/text/fixtures/";

class Fixtures : public ::testing::TestWithParam<const char*> {
 protected:
  Tokenizer tokenizer_ = value_of(read_tokenizer_json(folder + GetParam() + ".json"));
  bool begins() const {
    const std::string name = GetParam();
    return name == "llama3" || name == "llama2" || name == "mistral" || name == "gemma" || name == "metaspace";
  }
  nlohmann::json cases_ = nlohmann::json::parse(value_of(read_file(folder + GetParam() + ".cases.json")));
};

TEST_P(Fixtures, SameTokensAsTokenizers) {
  ASSERT_GT(cases_.size(), 10u);
  for (const auto& one : cases_) {
    const auto text = one["text"].get<std::string>();
    EXPECT_EQ(value_of(encode(tokenizer_, text)), one["ids"].get<std::vector<TokenId>>()) << text;
  }
}

TEST_P(Fixtures, SameTextAsTokenizers) {
  for (const auto& one : cases_) {
    const auto ids = one["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(value_of(decode(tokenizer_, ids, SpecialTokens::shown)), one["shown"].get<std::string>());
    EXPECT_EQ(value_of(decode(tokenizer_, ids, SpecialTokens::skipped)), one["skipped"].get<std::string>());
  }
}

// Token by token nothing comes that is half a character, and in the end all has come.
TEST_P(Fixtures, StreamsWholeCharacters) {
  for (const auto& one : cases_) {
    TextStream stream(tokenizer_, SpecialTokens::shown);
    std::string text;
    for (const TokenId token : one["ids"].get<std::vector<TokenId>>()) {
      const std::string part = value_of(stream.next(token));
      EXPECT_EQ(first_invalid_utf8(part), part.size());
      text += part;
    }
    EXPECT_EQ(text + stream.finish(), one["shown"].get<std::string>());
  }
}

TEST_P(Fixtures, WithoutWhatIsAround) {
  const auto with = value_of(encode(tokenizer_, "one")), without = value_of(encode(tokenizer_, "one", Around::without));
  EXPECT_EQ(with.size(), without.size() + (begins() ? 1 : 0));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Fixtures,
                         ::testing::Values("gpt2", "llama3", "llama4", "qwen2", "smollm2", "llama2", "mistral", "gemma",
                                           "metaspace"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST(Encode, NamesTheByteThatIsNoUtf8) {
  const Tokenizer tokenizer = value_of(read_tokenizer_json(folder + "gpt2.json"));
  const auto tokens = encode(tokenizer, "abc\xff");
  ASSERT_FALSE(tokens.ok());
  EXPECT_EQ(tokens.error().message, "byte 4 of the text, 0xFF, is no UTF-8");
  EXPECT_FALSE(encode(tokenizer, "\xed\xa0\x80").ok()) << "half of a surrogate pair";
}

// A heap, not a search for the best pair again and again: a word of a megabyte takes no longer than other text.
TEST(Encode, LongWords) {
  const Tokenizer tokenizer = value_of(read_tokenizer_json(folder + "llama3.json"));
  const Tokenizer of_characters = value_of(read_tokenizer_json(folder + "llama2.json"));
  for (const char* letter : {"a", " ", "\n", "=", "\u4e2d"}) {
    std::string text;
    while (text.size() < 1'000'000) text += letter;
    EXPECT_EQ(value_of(decode(tokenizer, value_of(encode(tokenizer, text)))), text);
    EXPECT_EQ(value_of(decode(of_characters, value_of(encode(of_characters, text)))), text);
  }
}

// The clock against patterns that go back over and over runs for a whole text.
TEST(Encode, LongTexts) {
  const Tokenizer tokenizer = value_of(read_tokenizer_json(folder + "gpt2.json"));
  std::string text;
  while (text.size() < 12'000'000) text += " don't we 12!\n";
  EXPECT_GT(value_of(encode(tokenizer, text)).size(), 1'000'000u);
}

TEST(Decode, BytesThatBecomeNoCharacter) {
  const Tokenizer tokenizer = value_of(read_tokenizer_json(folder + "llama3.json"));
  const TokenId start_of_three = tokenizer.bpe.byte_token[0xE4], inner = tokenizer.bpe.byte_token[0xB8],
                end = tokenizer.bpe.byte_token[0xAD], letter = tokenizer.bpe.byte_token['x'];
  TextStream stream(tokenizer);
  EXPECT_EQ(value_of(stream.next(start_of_three)), "");
  EXPECT_EQ(value_of(stream.next(inner)), "");
  EXPECT_EQ(value_of(stream.next(end)), "\u4e2d");
  EXPECT_EQ(value_of(stream.next(start_of_three)), "");
  EXPECT_EQ(value_of(stream.next(inner)), "");
  EXPECT_EQ(value_of(stream.next(letter)), "\ufffdx") << "one for the two bytes, as Unicode recommends";
  EXPECT_EQ(value_of(stream.next(inner)), "\ufffd");
  EXPECT_EQ(value_of(stream.next(start_of_three)), "");
  EXPECT_EQ(stream.finish(), "\ufffd");
  EXPECT_EQ(stream.finish(), "");
}

// What was said before needs the space that a text of its own begins without.
TEST(Decode, DropsTheSpaceThatEncodingPutInFront) {
  const Tokenizer tokenizer = value_of(read_tokenizer_json(folder + "llama2.json"));
  const std::vector<TokenId> tokens = value_of(encode(tokenizer, " two"));
  for (const auto& [begin, wanted] : {std::pair(TextBegin::here, " two"), std::pair(TextBegin::before, "  two")}) {
    TextStream stream(tokenizer, SpecialTokens::skipped, begin);
    std::string text;
    for (const TokenId token : tokens) text += value_of(stream.next(token));
    EXPECT_EQ(text + stream.finish(), wanted);
  }
}

TEST(Decode, CharactersOfByteTokens) {
  const Tokenizer tokenizer = value_of(read_tokenizer_json(folder + "llama2.json"));
  const std::vector<TokenId> tokens = value_of(encode(tokenizer, "\U0001F999!", Around::without));
  TextStream stream(tokenizer);
  std::vector<std::string> parts;
  for (const TokenId token : tokens) parts.push_back(value_of(stream.next(token)));
  EXPECT_EQ(parts, (std::vector<std::string>{"", "", "", "", "\U0001F999", "!"}))
      << "a space that is dropped, four bytes";
}

TEST(Decode, UnknownTokens) {
  const Tokenizer tokenizer = value_of(read_tokenizer_json(folder + "gpt2.json"));
  const std::vector<TokenId> beyond = {1'000'000}, negative = {-1};
  EXPECT_FALSE(decode(tokenizer, beyond).ok());
  EXPECT_FALSE(decode(tokenizer, negative).ok());
}

}  // namespace
}  // namespace nlsplit
