// The tokenizer of a GGUF file: the same tokens as the tokenizer.json that it was written from, and what is refused.
#include "text/tokenizer_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "graph/gguf_bytes.h"
#include "testing/value_of.h"
#include "text/decode.h"
#include "text/tokenizer_json.h"

namespace nlsplit {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr uint32_t array_kind = 9, text_kind = 8, integer_kind = 5, bool_kind = 7, float_kind = 6;

std::string array_of(uint32_t kind, size_t count, const std::string& elements) {
  return little(kind) + little(static_cast<uint64_t>(count)) + elements;
}

struct GgufParts {
  std::string model = "gpt2", cuts = "gpt-2";
  std::vector<std::string> tokens = {}, merges = {};
  std::vector<int32_t> kinds = {};
  std::vector<float> scores = {};
};

GgufBytes gguf_file_of(const GgufParts& parts) {
  GgufBytes file;
  std::string tokens, merges, kinds;
  for (const std::string& token : parts.tokens) tokens += gguf_text(token);
  for (const std::string& merge : parts.merges) merges += gguf_text(merge);
  for (const int32_t kind : parts.kinds) kinds += little(kind);
  file.text("tokenizer.ggml.model", parts.model).text("tokenizer.ggml.pre", parts.cuts);
  file.value("tokenizer.ggml.tokens", array_kind, array_of(text_kind, parts.tokens.size(), tokens));
  file.value("tokenizer.ggml.token_type", array_kind, array_of(integer_kind, parts.kinds.size(), kinds));
  if (!parts.scores.empty()) {
    std::string scores;
    for (const float score : parts.scores) scores += little(score);
    file.value("tokenizer.ggml.scores", array_kind, array_of(float_kind, parts.scores.size(), scores));
  }
  file.value("tokenizer.ggml.merges", array_kind, array_of(text_kind, parts.merges.size(), merges));
  return file;
}

// As llama.cpp's converter writes a tokenizer.json.
GgufParts gguf_parts_of(const json& tokenizer, const std::string& cuts) {
  GgufParts parts;
  parts.cuts = cuts;
  const json& vocabulary = tokenizer["model"]["vocab"];
  parts.tokens.resize(vocabulary.size());
  parts.kinds.assign(vocabulary.size(), 1);
  for (const auto& [spelled, id] : vocabulary.items()) parts.tokens.at(id.get<size_t>()) = spelled;
  for (const json& added : tokenizer["added_tokens"]) parts.kinds.at(added["id"].get<size_t>()) = 3;
  for (const json& merge : tokenizer["model"]["merges"])
    parts.merges.push_back(merge.is_string() ? merge.get<std::string>()
                                             : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  return parts;
}

GgufParts small_gguf() {
  return {.tokens = {"a", "b", "ab", "<e>", "\u0120"}, .merges = {"a b"}, .kinds = {1, 1, 1, 3, 1}};
}

std::string gguf_error_of(const std::function<void(GgufParts&)>& spoil) {
  GgufParts parts = small_gguf();
  spoil(parts);
  const auto read = read_tokenizer_gguf(gguf_file_of(parts).write("bad.gguf"));
  return read.ok() ? "" : read.error().to_string();
}

TEST(GgufTokenizer, GivesTheTokensOfTheTokenizerItWasWrittenFrom) {
  const std::map<std::string, std::string> cuts = {
      {"gpt2", "gpt-2"}, {"llama3", "llama-bpe"}, {"qwen2", "qwen2"}, {"smollm2", "smollm"}};
  for (const auto& [name, pre] : cuts) {
    const std::string fixture = NLS_SOURCE_DIR "/tests/text/fixtures/" + name;
    json tokenizer = json::parse(value_of(read_file(fixture + ".json")));
    // What such files cannot say: white space that goes along, a space in front, tokens around a text.
    tokenizer["added_tokens"].erase(1);
    tokenizer["post_processor"] = nullptr;
    json& last = tokenizer["pre_tokenizer"];
    (last["type"] == "Sequence" ? last["pretokenizers"].back() : last)["add_prefix_space"] = false;
    const Tokenizer theirs = value_of(parse_tokenizer_json(tokenizer.dump(), fixture));
    const Tokenizer ours =
        value_of(read_tokenizer_gguf(gguf_file_of(gguf_parts_of(tokenizer, pre)).write(name + ".gguf")));
    size_t texts = 0;
    for (const json& one : json::parse(value_of(read_file(fixture + ".cases.json")))) {
      const auto text = one["text"].get<std::string>();
      EXPECT_EQ(value_of(encode(ours, text)), value_of(encode(theirs, text))) << name << ": " << text;
      ++texts;
    }
    EXPECT_GT(texts, 10u);
  }
}

GgufParts scored(const json& fixture) {
  GgufParts parts{.model = "llama", .cuts = "default"};
  parts.tokens = fixture["tokens"].get<std::vector<std::string>>();
  parts.kinds = fixture["kinds"].get<std::vector<int32_t>>();
  parts.scores = fixture["scores"].get<std::vector<float>>();
  return parts;
}

json sentencepiece_fixture() {
  return json::parse(value_of(read_file(NLS_SOURCE_DIR "/tests/text/fixtures/sentencepiece.json")));
}

TEST(GgufTokenizer, GivesTheTokensOfSentencePiece) {
  const json fixture = sentencepiece_fixture();
  GgufBytes file = gguf_file_of(scored(fixture));
  const Tokenizer tokenizer =
      value_of(read_tokenizer_gguf(file.integer("tokenizer.ggml.bos_token_id", 1).write("spm.gguf")));
  ASSERT_GT(fixture["cases"].size(), 10u);
  for (const json& one : fixture["cases"]) {
    const auto text = one["text"].get<std::string>();
    const auto ids = one["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(value_of(encode(tokenizer, text, Around::without)), ids) << text;
    EXPECT_EQ(value_of(decode(tokenizer, ids)), one["shown"].get<std::string>());
  }
  EXPECT_EQ(value_of(encode(tokenizer, "")), std::vector<TokenId>{1}) << "texts begin with the first token";
}

// Each piece between tokens that stand in the text gets its space in front, as Llama 2's tokenizer.json says.
TEST(GgufTokenizer, PutsASpaceInFrontOfEachPieceUnlessTheFileSaysNo) {
  GgufParts parts{.model = "llama",
                  .tokens = {"<unk>", "<s>", "<u>", "\u2581", "a", "\u2581a", "<0x62>", "<0x20>"},
                  .kinds = {2, 3, 4, 1, 1, 1, 6, 6},
                  .scores = {0, 0, 0, -2, -3, -1, 0, 0}};
  const auto tokens = [](GgufBytes file, const std::string& text) {
    return value_of(encode(value_of(read_tokenizer_gguf(file.write("front.gguf"))), text));
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(tokens(gguf_file_of(parts), "a<u>a b"), ElementsAre(5, 2, 5, 3, 6));
  EXPECT_THAT(tokens(gguf_file_of(parts), " a"), ElementsAre(3, 5));
  const std::string no = little(uint8_t{0});
  EXPECT_THAT(tokens(gguf_file_of(parts).value("tokenizer.ggml.add_space_prefix", bool_kind, no), "a<u> a"),
              ElementsAre(4, 2, 5));
}

// Phi-3's marks of a conversation take what stands behind them along.
TEST(GgufTokenizer, MarksOfPhi3TakeWhiteSpace) {
  GgufParts parts{.model = "llama",
                  .tokens = {"<unk>", "<s>", "<|user|>", "\u2581", "a", "\u2581a", "<0x0A>"},
                  .kinds = {2, 3, 3, 1, 1, 1, 6},
                  .scores = {0, 0, 0, -2, -3, -1, 0}};
  for (const auto& [family, wanted] :
       {std::pair("phi3", std::vector<TokenId>{2, 5}), std::pair("llama", std::vector<TokenId>{2, 3, 6, 4})}) {
    GgufBytes file = gguf_file_of(parts).text("general.architecture", family);
    EXPECT_EQ(value_of(encode(value_of(read_tokenizer_gguf(file.write("phi3.gguf"))), "<|user|>\na")), wanted)
        << family;
  }
}

TEST(GgufTokenizer, RefusesScoresAndTokensThatMakeNoSense) {
  const auto error = [](const std::function<void(GgufParts&)>& spoil) {
    GgufParts parts{.model = "llama",
                    .tokens = {"<unk>", "a", "b", "ab", "<0x0A>"},
                    .kinds = {2, 1, 1, 1, 6},
                    .scores = {0, -1, -2, -3, 0}};
    spoil(parts);
    const auto read = read_tokenizer_gguf(gguf_file_of(parts).write("bad_scores.gguf"));
    return read.ok() ? "" : read.error().to_string();
  };
  EXPECT_EQ(error([](GgufParts&) {}), "");
  EXPECT_EQ(error([](GgufParts& p) { p.tokens[3] = "a\xff"; }), "") << "a token that is no text is never made";
  EXPECT_EQ(error([](GgufParts& p) { p.tokens[3] = "a b"; }), "");
  EXPECT_THAT(error([](GgufParts& p) { p.scores[3] = std::numeric_limits<float>::quiet_NaN(); }),
              HasSubstr("tokenizer.ggml.scores at"));
  EXPECT_THAT(error([](GgufParts& p) { p.scores[3] = std::numeric_limits<float>::infinity(); }),
              HasSubstr("token 3 has the score inf"));
  EXPECT_THAT(error([](GgufParts& p) { p.scores.pop_back(); }), HasSubstr("4 scores of 5 tokens"));
  EXPECT_THAT(error([](GgufParts& p) { p.tokens[3] = std::string(2000, 'a'); }), HasSubstr("token 3 has 2000 bytes"));
  EXPECT_THAT(error([](GgufParts& p) { p.tokens[4] = "<0xZZ>"; }), HasSubstr("stands for no byte"));
  EXPECT_THAT(error([](GgufParts& p) { p.tokens[2] = "a"; }), HasSubstr("has two numbers"));
  EXPECT_THAT(error([](GgufParts& p) { p.kinds[2] = 7; }), HasSubstr("token 2 is of kind 7"));
  EXPECT_THAT(error([](GgufParts& p) { p.kinds[2] = 3, p.tokens[2] = ""; }), HasSubstr("token 2 is empty"));
}

TEST(GgufTokenizer, PutsTokensAroundATextWhereTheFileSaysSo) {
  using ::testing::ElementsAre;
  const auto tokens = [](GgufBytes file) {
    return value_of(encode(value_of(read_tokenizer_gguf(file.write("around.gguf"))), "ab"));
  };
  const std::string yes = little(uint8_t{1}), no = little(uint8_t{0});
  EXPECT_THAT(tokens(gguf_file_of(small_gguf())), ElementsAre(2));
  EXPECT_THAT(tokens(gguf_file_of(small_gguf()).integer("tokenizer.ggml.bos_token_id", 3)), ElementsAre(2));
  EXPECT_THAT(tokens(gguf_file_of(small_gguf())
                         .integer("tokenizer.ggml.bos_token_id", 3)
                         .value("tokenizer.ggml.add_bos_token", bool_kind, yes)),
              ElementsAre(3, 2));
  EXPECT_THAT(tokens(gguf_file_of(small_gguf())
                         .integer("tokenizer.ggml.eos_token_id", 3)
                         .value("tokenizer.ggml.add_eos_token", bool_kind, yes)),
              ElementsAre(2, 3));
  GgufParts llama = small_gguf();
  llama.cuts = "llama-bpe";
  EXPECT_THAT(tokens(gguf_file_of(llama).integer("tokenizer.ggml.bos_token_id", 3)), ElementsAre(3, 2));
  EXPECT_THAT(tokens(gguf_file_of(llama)
                         .integer("tokenizer.ggml.bos_token_id", 3)
                         .value("tokenizer.ggml.add_bos_token", bool_kind, no)),
              ElementsAre(2));
  const auto beyond = read_tokenizer_gguf(gguf_file_of(small_gguf())
                                              .integer("tokenizer.ggml.bos_token_id", 5)
                                              .value("tokenizer.ggml.add_bos_token", bool_kind, yes)
                                              .write("around.gguf"));
  ASSERT_FALSE(beyond.ok());
  EXPECT_THAT(beyond.error().to_string(), HasSubstr("there is no token 5"));
}

TEST(GgufTokenizer, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(gguf_error_of([](GgufParts&) {}), "");
  EXPECT_THAT(gguf_error_of([](GgufParts& p) { p.model = "llama"; }), HasSubstr("scores: it is missing"));
  EXPECT_THAT(gguf_error_of([](GgufParts& p) { p.model = "t5"; }), HasSubstr("the tokenizer is \"t5\"; byte-level"));
  EXPECT_THAT(gguf_error_of([](GgufParts& p) { p.cuts = "mine"; }),
              HasSubstr("those that are: gpt-2, llama-bpe, qwen2, smollm, "));
  EXPECT_THAT(gguf_error_of([](GgufParts& p) { p.kinds.pop_back(); }), HasSubstr("4 kinds of 5 tokens"));
  EXPECT_THAT(gguf_error_of([](GgufParts& p) { p.kinds[1] = 6; }), HasSubstr("token 1 is of kind 6"));
  EXPECT_THAT(gguf_error_of([](GgufParts& p) { p.kinds[1] = -1; }), HasSubstr("token 1 is of kind -1"));
  EXPECT_THAT(gguf_error_of([](GgufParts& p) { p.tokens[3] = ""; }), HasSubstr("token 3 is empty"));
  EXPECT_THAT(gguf_error_of([](GgufParts& p) { p.merges[0] = "ab"; }), HasSubstr("is not a pair of tokens"));
  EXPECT_THAT(gguf_error_of([](GgufParts& p) { p.merges[0] = "a  b"; }), HasSubstr("is not a pair of tokens"));
  EXPECT_THAT(gguf_error_of([](GgufParts& p) { p.merges[0] = "a c"; }), HasSubstr("there is no token \"c\""));
  const auto without = read_tokenizer_gguf(GgufBytes().text("general.architecture", "llama").write("none.gguf"));
  ASSERT_FALSE(without.ok());
  EXPECT_THAT(without.error().to_string(), HasSubstr("tokenizer.ggml.model: it is missing"));
}

}  // namespace
}  // namespace nlsplit
