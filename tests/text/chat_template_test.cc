// Conversations as the models' templates write them: what jinja2 makes of small templates of each family
// (scripts/compare_chat_templates --write-fixtures).
#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "graph/gguf_bytes.h"
#include "testing/paths.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char *bos = "<bos-of-test>", *eos = "<eos-of-test>";
const std::string chats = NLS_SOURCE_DIR "/tests/text/fixtures/chat/";

struct FamilyCase {
  const char* file;
  ChatFamily family;
};

std::vector<ChatMessage> messages_of(const json& list) {
  std::vector<ChatMessage> messages;
  for (const json& one : list) messages.push_back({one.at("role"), one.at("content")});
  return messages;
}

class ChatFamilies : public ::testing::TestWithParam<FamilyCase> {};

TEST_P(ChatFamilies, WriteWhatJinjaWrites) {
  const std::string path = chats + GetParam().file;
  const ChatTemplate chat =
      value_of(recognise_chat_template(value_of(read_file(path + ".jinja")), bos, eos, "template"));
  EXPECT_EQ(name_of(chat.family), name_of(GetParam().family));
  const json cases = json::parse(value_of(read_file(path + ".cases.json")));
  int equal = 0;
  for (const json& one : cases) {
    const Result<std::string> text = chat_text(chat, messages_of(one.at("messages")), "1 Jan 2030");
    if (!text.ok()) {  // more is refused here than there
      EXPECT_THAT(text.error().message, HasSubstr("role"));
      continue;
    }
    ASSERT_TRUE(one.at("text").is_string()) << "refused by the template: " << *text;
    EXPECT_EQ(*text, one.at("text").get<std::string>());
    ++equal;
  }
  EXPECT_GE(equal, 3);
}

INSTANTIATE_TEST_SUITE_P(
    Each, ChatFamilies,
    ::testing::Values(FamilyCase{"chatml", ChatFamily::chatml}, FamilyCase{"chatml_thoughts", ChatFamily::chatml},
                      FamilyCase{"phi4", ChatFamily::phi4}, FamilyCase{"llama3", ChatFamily::llama3},
                      FamilyCase{"llama3_dated", ChatFamily::llama3_dated}, FamilyCase{"llama2", ChatFamily::llama2},
                      FamilyCase{"mistral_v1", ChatFamily::mistral}, FamilyCase{"mistral_v3", ChatFamily::mistral},
                      FamilyCase{"gemma", ChatFamily::gemma}, FamilyCase{"phi3", ChatFamily::phi3},
                      FamilyCase{"zephyr", ChatFamily::zephyr}),
    [](const auto& info) { return std::string(info.param.file); });

TEST(ChatTemplate, SaysTheDayWhereTheTemplateAsks) {
  std::string source = value_of(read_file(chats + "llama3_dated.jinja"));
  source.replace(source.find("\"26 Jul 2024\""), 13, "strftime_now(\"%d %b %Y\")");
  const ChatTemplate chat = value_of(recognise_chat_template(source, "", "", "template"));
  const std::vector<ChatMessage> messages = {{"user", "Hi"}};
  EXPECT_THAT(value_of(chat_text(chat, messages, "01 Jan 2030")), HasSubstr("Today Date: 01 Jan 2030\n"));
}

TEST(ChatTemplate, RefusesWhatItDoesNotKnow) {
  const auto unknown =
      recognise_chat_template("{% for m in messages %}Human: {{ m.content }}{% endfor %}", "", "", "a.json");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().kind, ErrorKind::unsupported);
  EXPECT_THAT(unknown.error().message, HasSubstr("a.json: the template is of no known family; those that are: phi4"));
  EXPECT_THAT(unknown.error().message, HasSubstr("`--prompt`"));
  const ChatTemplate chat = value_of(recognise_chat_template(value_of(read_file(chats + "gemma.jinja")), "", "", ""));
  const auto refused = [&](const std::vector<ChatMessage>& messages) {
    const auto text = chat_text(chat, messages, "");
    return text.ok() ? *text : text.error().message;
  };
  EXPECT_EQ(refused({}), "there are no messages");
  EXPECT_EQ(refused({{"user", "a"}, {"assistant", "b"}}), "the last message is not the user's");
  EXPECT_THAT(refused({{"tool", "a"}}),
              HasSubstr("message 1 is of role \"tool\": roles are system, user and assistant"));
  EXPECT_THAT(refused({{"system", "a"}, {"user", "b"}}), HasSubstr("knows no system's message"));
  EXPECT_THAT(refused({{"user", "a"}, {"user", "b"}}), HasSubstr("message 2 is of role \"user\""));
}

TEST(ChatTemplate, IsReadFromFolders) {
  const Scratch scratch;
  const std::string tokenizer = scratch / "tokenizer.json", config = "tokenizer_config.json";
  EXPECT_THAT(read_chat_template(tokenizer).error().message,
              HasSubstr("tokenizer_config.json: there is no chat template"));
  const std::string phi3 = value_of(read_file(chats + "phi3.jinja")),
                    llama3 = value_of(read_file(chats + "llama3.jinja"));
  scratch.write(config,
                json{{"chat_template", phi3}, {"bos_token", {{"content", "<s>"}}}, {"eos_token", nullptr}}.dump());
  const ChatTemplate one = value_of(read_chat_template(tokenizer));
  EXPECT_EQ(one.family, ChatFamily::phi3);
  EXPECT_EQ(one.bos, "<s>");
  const json two = {{{"name", "tool_use"}, {"template", "{{ 1 }}"}}, {{"name", "default"}, {"template", llama3}}};
  scratch.write(config, json{{"chat_template", two}}.dump());
  EXPECT_EQ(value_of(read_chat_template(tokenizer)).family, ChatFamily::llama3);
  scratch.write("chat_template.jinja", phi3);
  EXPECT_EQ(value_of(read_chat_template(tokenizer)).family, ChatFamily::phi3);
  scratch.write(config, R"({"bos_token": 3})");
  EXPECT_THAT(read_chat_template(tokenizer).error().to_string(),
              HasSubstr("tokenizer_config.json: /bos_token: 3 is not a string"));
}

TEST(ChatTemplate, IsReadFromGguf) {
  GgufBytes file;
  file.text("tokenizer.chat_template", value_of(read_file(chats + "zephyr.jinja")));
  EXPECT_EQ(value_of(read_chat_template(file.write("chat.gguf"))).family, ChatFamily::zephyr);
  const auto none = read_chat_template(GgufBytes().text("a", "b").write("no_chat.gguf"));
  EXPECT_THAT(none.error().message, HasSubstr("tokenizer.chat_template: there is no chat template"));
}

}  // namespace
}  // namespace nlsplit
