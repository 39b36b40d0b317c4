// The text in which a model was taught to see a conversation. Models bring it as a Jinja template; Debian has no C++
// library that reads these, so the families that most models use are known here by what their templates contain, and
// written as those templates write them (scripts/compare_chat_templates holds both against each other).
//
//   ASSIGN_OR_RETURN(const ChatTemplate chat, read_chat_template("model.gguf"));
//   ASSIGN_OR_RETURN(const std::string text, chat_text(chat, {{"user", "Hello"}}, today()));
//   encode(tokenizer, text, Around::without)    // marks of the conversation are tokens of the vocabulary
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline text {

struct ChatMessage {
  std::string role;  // system, user or assistant
  std::string content;
};

enum class ChatFamily : uint8_t { chatml, phi4, llama3, llama3_dated, llama2, mistral, gemma, phi3, zephyr };
std::string_view name_of(ChatFamily family);
std::vector<std::string_view> names_of_chat_families();

struct ChatTemplate {
  ChatFamily family{};
  std::string source;    // the Jinja text
  std::string bos, eos;  // the texts of the model's first and last token, which templates call by these names
};

// Error: the template is of no known family. `where` is the file or key that holds it.
Result<ChatTemplate> recognise_chat_template(std::string source, std::string bos, std::string eos,
                                             const std::string& where);

// Of a GGUF file its tokenizer.chat_template; beside a tokenizer.json chat_template.jinja, else the chat_template of
// tokenizer_config.json (of several the one that is called "default"). Errors name the file: it has none, or the above.
Result<ChatTemplate> read_chat_template(const std::string& tokenizer_path);

// What the template makes of the conversation, and the beginning of the assistant's answer behind it. `today` is as in
// "26 Jul 2024": some templates say it. Errors: no messages; roles that are not known or in an order that the template
// does not know; the last one is not the user's.
Result<std::string> chat_text(const ChatTemplate& chat, std::span<const ChatMessage> messages, std::string_view today);

std::string today();

}  // namespace nlsplit::inline text
