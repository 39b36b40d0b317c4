// Text to tokens and back, as a user does it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

const std::string llama3 = NLS_SOURCE_DIR "/tests/text/fixtures/llama3.json";

TEST(Tokenize, ThereAndBack) {
  const Outcome table = nlsim("tokenize " + llama3 + " --text 'a \u4e2d'");
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("token  text\n"));
  EXPECT_THAT(table.out, HasSubstr("\"<|end|>\""));
  EXPECT_THAT(table.out, HasSubstr(" of 5 bytes\n"));

  const Outcome tokens = nlsim("tokenize " + llama3 + " --text 'It is a \u4e2d!' --json");
  ASSERT_EQ(tokens.code, 0) << tokens.err;
  const auto json = nlohmann::json::parse(tokens.out);
  ASSERT_EQ(json["ids"].size(), json["pieces"].size());
  std::string ids;
  for (const auto& id : json["ids"]) ids += (ids.empty() ? "" : ",") + id.dump();
  const Outcome shown = nlsim("tokenize " + llama3 + " --decode " + ids);
  EXPECT_EQ(shown.out, "<|end|>It is a \u4e2d!\n") << shown.err;
  EXPECT_EQ(nlsim("tokenize " + llama3 + " --skip-special --decode " + ids).out, "It is a \u4e2d!\n");
  EXPECT_EQ(nlsim("tokenize " + llama3 + " --json --skip-special --decode " + ids).out,
            "{\"text\":\"It is a \u4e2d!\"}\n");
}

TEST(Tokenize, FilesAndPlain) {
  const Scratch scratch;
  const std::string file = scratch.write("text", "one\ntwo\n");
  const auto with = nlohmann::json::parse(nlsim("tokenize " + llama3 + " --json --file " + file).out);
  const auto plain = nlohmann::json::parse(nlsim("tokenize " + llama3 + " --json --plain --file " + file).out);
  EXPECT_EQ(with["ids"].size(), plain["ids"].size() + 1);
}

TEST(Tokenize, Conversations) {
  const Scratch scratch;
  std::filesystem::copy(llama3, scratch / "tokenizer.json");
  scratch.write("chat_template.jinja", value_of(read_file(NLS_SOURCE_DIR "/tests/text/fixtures/chat/phi3.jinja")));
  const std::string messages = scratch.write("m.json", R"([{"role": "user", "content": "one"}])");
  const Outcome made = nlsim("tokenize " + (scratch / "tokenizer.json") + " --json --chat " + messages);
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(nlohmann::json::parse(made.out).at("text"), "<|user|>\none<|end|>\n<|assistant|>\n");
  const std::string wrong = scratch.write("w.json", R"([{"role": "robot", "content": "one"}])");
  const Outcome refused = nlsim("tokenize " + (scratch / "tokenizer.json") + " --chat " + wrong);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("w.json: message 1 is of role \"robot\""));
}

TEST(Tokenize, BadInput) {
  const Scratch scratch;
  const auto fails_with = [](const std::string& arguments, const std::string& message) {
    const Outcome outcome = nlsim("tokenize " + arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << arguments;
  };
  fails_with(llama3, "it takes one of --text, --file, --chat and --decode");
  fails_with(llama3 + " --text a --decode 1", "it takes one of --text, --file, --chat and --decode");
  fails_with(llama3 + " --decode 99999", "there is no token 99999");
  fails_with(llama3 + " --decode x", "x");
  fails_with("/nowhere.json --text a", "/nowhere.json");
  fails_with(scratch.write("t.json", "{\"model\":{\"type\":\"Unigram\"}}") + " --text a",
             "t.json: /model/type: the model \"Unigram\" is not supported");
  const std::string file = scratch.write("bytes", "abc\xff");
  fails_with(llama3 + " --file " + file, "bytes: byte 4 of the text, 0xFF, is no UTF-8");
}

}  // namespace
}  // namespace nlsplit
