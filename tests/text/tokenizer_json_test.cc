// What a tokenizer.json says wrong, or says that is not supported, is an error with its place.
#include "text/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "testing/value_of.h"

namespace nlsplit {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

json small() {
  return json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 5, "content": "<e>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "post_processor": null,
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
              "vocab": {"a": 0, "b": 1, "ab": 2, "aab": 3, "Ġ": 4}, "merges": [["a", "b"], "a ab"]}})");
}

std::string error_of(const std::function<void(json&)>& change) {
  json file = small();
  change(file);
  const auto tokenizer = parse_tokenizer_json(file.dump(), "t.json");
  return tokenizer.ok() ? "fine" : tokenizer.error().to_string();
}

TEST(TokenizerJson, MergesInOrder) {
  const Tokenizer tokenizer = value_of(parse_tokenizer_json(small().dump(), "t.json"));
  EXPECT_EQ(value_of(encode(tokenizer, "aab<e> aabb")), (std::vector<TokenId>{3, 5, 4, 3, 1}));
  EXPECT_THAT(encode(tokenizer, "abc").error().message, HasSubstr("no token for the byte 0x63, which is in 'abc'"));
}

TEST(TokenizerJson, LeftmostOfEqualMergesFirst) {
  json file = small();
  file["model"]["vocab"]["aa"] = 6;
  file["model"]["merges"] = json::array({json::array({"a", "a"})});
  const Tokenizer tokenizer = value_of(parse_tokenizer_json(file.dump(), "t.json"));
  EXPECT_EQ(value_of(encode(tokenizer, "aaaaa")), (std::vector<TokenId>{6, 6, 0}));
}

TEST(TokenizerJson, NotSupportedIsRefusedByName) {
  const auto type_at = [](const char* place, const char* type) {
    return error_of([&](json& file) { file[json::json_pointer(place)] = {{"type", type}}; });
  };
  EXPECT_EQ(type_at("/model", "Unigram"), "t.json: /model/type: the model \"Unigram\" is not supported");
  EXPECT_EQ(type_at("/normalizer", "Lowercase"),
            "t.json: /normalizer/type: the normalizer \"Lowercase\" is not supported");
  EXPECT_EQ(type_at("/pre_tokenizer", "Metaspace"),
            "t.json: /pre_tokenizer/type: the pre-tokenizer \"Metaspace\" is not supported");
  EXPECT_THAT(type_at("/post_processor", "BertProcessing"), StartsWith("t.json: /post_processor/type: "));
  EXPECT_THAT(type_at("/decoder", "WordPiece"), StartsWith("t.json: /decoder/type: "));
  EXPECT_THAT(error_of([](json& f) { f["new"] = 1; }), HasSubstr("the key \"new\" is not known"));
  EXPECT_THAT(error_of([](json& f) { f["model"]["new"] = 1; }), HasSubstr("/model: the key \"new\" is not known"));
  EXPECT_THAT(error_of([](json& f) { f["version"] = "2.0"; }), HasSubstr("/version: "));
  EXPECT_THAT(error_of([](json& f) { f["truncation"] = {{"max_length", 5}}; }), HasSubstr("/truncation: "));
  EXPECT_THAT(error_of([](json& f) { f["model"]["byte_fallback"] = true; }),
              HasSubstr("/pre_tokenizer/type: the pre-tokenizer of a vocabulary with byte_fallback \"ByteLevel\""));
  EXPECT_THAT(error_of([](json& f) { f["model"]["dropout"] = 0.1; }), HasSubstr("/model/dropout: "));
  EXPECT_THAT(error_of([](json& f) { f["added_tokens"][0]["single_word"] = true; }),
              HasSubstr("/added_tokens/0/single_word: "));
  EXPECT_THAT(error_of([](json& f) { f["pre_tokenizer"] = nullptr; }),
              HasSubstr("neither ByteLevel nor byte_fallback"));
}

TEST(TokenizerJson, OfCharactersNotSupportedIsRefusedByName) {
  const auto error = [](const std::function<void(json&)>& change) {
    return error_of([&](json& file) {
      file["model"]["byte_fallback"] = true;
      file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
      file["pre_tokenizer"] = nullptr;
      file["decoder"] = json::parse(R"({"type": "Sequence", "decoders": [
          {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
          {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})");
      change(file);
    });
  };
  EXPECT_EQ(error([](json&) {}), "fine");
  EXPECT_THAT(error([](json& f) { f["normalizer"] = nullptr; }),
              HasSubstr("/pre_tokenizer: byte_fallback is supported"));
  EXPECT_THAT(error([](json& f) {
                f["normalizer"]["pattern"] = {{"Regex", " "}};
              }),
              HasSubstr("/normalizer/pattern: only a String"));
  EXPECT_THAT(error([](json& f) { f["normalizer"]["pattern"]["String"] = ""; }), HasSubstr("the pattern is empty"));
  // Forty steps that double a text: a terabyte of one letter.
  EXPECT_THAT(error([](json& f) {
                const json step = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
                f["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::vector<json>(40, step)}};
              }),
              HasSubstr("/normalizer: its steps could make a text 1.1e+12 times as long"));
  EXPECT_THAT(error([](json& f) {
                f["normalizer"] = {{"type", "Prepend"}, {"prepend", std::string(20000, 'x')}};
              }),
              HasSubstr("/normalizer: its steps could make a text"));
  const auto metaspace = [&](const json& more) {
    return error([&](json& f) {
      f["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "\u2581"}};
      f["pre_tokenizer"].update(more);
    });
  };
  EXPECT_EQ(metaspace({{"prepend_scheme", "never"}}), "fine");
  EXPECT_EQ(metaspace({{"add_prefix_space", true}}), "fine");
  EXPECT_THAT(metaspace({{"prepend_scheme", "last"}}), HasSubstr("/pre_tokenizer/prepend_scheme: "));
  EXPECT_THAT(metaspace({{"replacement", "_"}}), HasSubstr("/pre_tokenizer/replacement: "));
  EXPECT_THAT(metaspace({{"new", 1}}), HasSubstr("the key \"new\" is not known"));
  const auto decoders = [&](const std::function<void(json&)>& change) {
    return error([&](json& f) { change(f["decoder"]["decoders"]); });
  };
  EXPECT_EQ(decoders([](json& list) { list.erase(3); }), "fine");
  EXPECT_THAT(decoders([](json& list) { list.erase(2); }), HasSubstr("/decoder/decoders/2/type: "));
  EXPECT_THAT(decoders([](json& list) { list.erase(1); }), HasSubstr("in place of ByteFallback \"Fuse\""));
  EXPECT_THAT(decoders([](json& list) { list[0]["content"] = "x"; }), HasSubstr("/decoder/decoders/0: "));
  EXPECT_THAT(decoders([](json& list) { list[3]["start"] = 2; }), HasSubstr("one space in front"));
  EXPECT_THAT(error([](json& f) { f["decoder"] = {{"type", "ByteLevel"}}; }), HasSubstr("/decoder/type: "));
}

std::string pattern_error(const std::string& pattern, const std::string& behavior = "Isolated") {
  return error_of([&](json& file) {
    const json split = {
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", false}};
    const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
  });
}

TEST(TokenizerJson, PatternsThatMayMeanSomethingElseAreRefused) {
  EXPECT_EQ(pattern_error(R"(\p{L}+|[^\s\p{L}]+(?!\S)|(?i:'s)|\p{N}{1,3})"), "fine");
  EXPECT_THAT(pattern_error(R"(a|\w+)"), HasSubstr("pattern 'a|\\w+', byte 3: '\\w' is not supported"));
  EXPECT_THAT(pattern_error("(?<=a)b"), HasSubstr("byte 1: '(?<' is not supported"));
  EXPECT_THAT(pattern_error("[a&&b]"), HasSubstr("'&&' is not supported"));
  EXPECT_THAT(pattern_error("[a[:alpha:]]"), HasSubstr("a class within a class is not supported"));
  EXPECT_THAT(pattern_error("a{1,2}+"), HasSubstr("'}+' is not supported"));
  EXPECT_THAT(pattern_error("a.b"), HasSubstr("'.' is not supported"));
  EXPECT_THAT(pattern_error("(a"), HasSubstr("U_REGEX_MISMATCHED_PAREN"));
  EXPECT_THAT(pattern_error("a", "MergedWithNext"), HasSubstr("the behavior \"MergedWithNext\" is not supported"));
}

TEST(TokenizerJson, APatternThatGoesBackForeverIsAnError) {
  json file = small();
  const json split = {
      {"type", "Split"}, {"pattern", {{"Regex", "(a+)+b"}}}, {"behavior", "Isolated"}, {"invert", false}};
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
  const Tokenizer tokenizer = value_of(parse_tokenizer_json(file.dump(), "t.json"));
  const auto tokens = encode(tokenizer, std::string(60, 'a'));
  ASSERT_FALSE(tokens.ok());
  EXPECT_THAT(tokens.error().message, HasSubstr("the pattern '(a+)+b' fails on a text of 60 bytes"));
}

TEST(TokenizerJson, RemovedAndKept) {
  const auto tokens_with = [](bool inverted) {
    json file = small();
    const json split = {
        {"type", "Split"}, {"pattern", {{"String", "b"}}}, {"behavior", "Removed"}, {"invert", inverted}};
    const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
    return value_of(encode(value_of(parse_tokenizer_json(file.dump(), "t.json")), "aba"));
  };
  EXPECT_EQ(tokens_with(false), (std::vector<TokenId>{0, 0}));
  EXPECT_EQ(tokens_with(true), (std::vector<TokenId>{1}));
}

TEST(TokenizerJson, WrongContent) {
  EXPECT_EQ(error_of([](json& f) { f["model"]["merges"][1] = "a x"; }),
            "t.json: /model/merges/1: the vocabulary has no token \"x\"");
  EXPECT_THAT(error_of([](json& f) { f["model"]["merges"][1] = {"a", "b"}; }), HasSubstr("merge 1 is listed before"));
  EXPECT_THAT(error_of([](json& f) { f["model"]["merges"][0] = "a b c"; }), HasSubstr("is not a pair of tokens"));
  EXPECT_THAT(error_of([](json& f) { f["model"]["vocab"]["b"] = 0; }), HasSubstr("another token has the number 0 too"));
  EXPECT_THAT(error_of([](json& f) { f["model"]["vocab"]["b"] = 4e24; }), HasSubstr("/model/vocab/b: "));
  EXPECT_THAT(error_of([](json& f) { f["model"]["vocab"]["b"] = -1; }), HasSubstr("is not a token ID"));
  EXPECT_THAT(error_of([](json& f) { f["model"]["vocab"]["b"] = 1u << 30; }), HasSubstr("is not a token ID"));
  EXPECT_THAT(error_of([](json& f) { f["added_tokens"][0]["id"] = 1; }), HasSubstr("contradict the vocabulary"));
  EXPECT_THAT(error_of([](json& f) { f["added_tokens"].push_back(f["added_tokens"][0]); }),
              HasSubstr("/added_tokens/1: the token \"<e>\" is listed before"));
  EXPECT_THAT(error_of([](json& f) {
                f["post_processor"] = {{"type", "TemplateProcessing"}};
              }),
              HasSubstr("/post_processor/single: "));
  EXPECT_THAT(error_of([](json& f) { f["model"] = 3; }), HasSubstr("/model: 3 is not an object"));
  const auto cut = parse_tokenizer_json(small().dump().substr(0, 100), "t.json");
  ASSERT_FALSE(cut.ok());
  EXPECT_THAT(cut.error().to_string(), StartsWith("t.json: "));
  EXPECT_FALSE(parse_tokenizer_json("[]", "t.json").ok());
  EXPECT_FALSE(read_tokenizer_json("/nowhere/tokenizer.json").ok());
}

}  // namespace
}  // namespace nlsplit
