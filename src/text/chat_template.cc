#include "text/chat_template.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <optional>
#include <utility>

#include "base/text_reader.h"

namespace nlsplit::inline text {
namespace {

constexpr std::string_view system_role = "system", user_role = "user", assistant_role = "assistant";
constexpr std::string_view dates_of_llama = "Cutting Knowledge Date: December 2023";

using Messages = std::span<const ChatMessage>;

bool has(std::string_view source, std::string_view mark) { return source.find(mark) != std::string_view::npos; }
// As a whole literal of the template.
bool has_literal(std::string_view source, std::string_view text) {
  return has(source, fmt::format("'{}'", text)) || has(source, fmt::format("\"{}\"", text));
}

// As Python's str.strip() does with text of these characters.
std::string_view trimmed(std::string_view text) {
  constexpr std::string_view space = " \t\n\v\f\r";
  const size_t begin = text.find_first_not_of(space);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(space) + 1 - begin);
}

// "Use the template's own words where no system message is given": `…system\nYou are …<|im_end|>` in a literal.
std::optional<std::string> default_system(std::string_view source) {
  for (const std::string_view opening : {"<|im_start|>system\\n", "<|im_start|>system\n"}) {
    for (size_t at = source.find(opening); at != std::string_view::npos; at = source.find(opening, at + 1)) {
      const std::string_view rest = source.substr(at + opening.size());
      const std::string_view words = rest.substr(0, rest.find("<|im_end|>"));
      if (!words.empty() && words.size() < rest.size() && words.find_first_of("'\"{\\") == std::string_view::npos)
        return std::string(words);
    }
  }
  return std::nullopt;
}

// A thought of an earlier answer is not repeated: what stands behind the last </think>.
std::string_view without_thoughts(std::string_view source, std::string_view content) {
  constexpr std::string_view end = "</think>";
  const size_t at = content.rfind(end);
  if (!has(source, "split('</think>')") || at == std::string_view::npos) return content;
  std::string_view rest = content.substr(at + end.size());
  while (rest.starts_with('\n')) rest.remove_prefix(1);
  return rest;
}

std::string in_chatml(const ChatTemplate& chat, Messages messages) {
  std::string text = has(chat.source, "bos_token") ? chat.bos : "";
  if (messages.front().role != system_role) {
    if (const auto words = default_system(chat.source))
      text += fmt::format("<|im_start|>system\n{}<|im_end|>\n", *words);
  }
  for (const ChatMessage& message : messages) {
    const std::string_view content =
        message.role == assistant_role ? without_thoughts(chat.source, message.content) : message.content;
    text += fmt::format("<|im_start|>{}\n{}<|im_end|>\n", message.role, content);
  }
  return text + "<|im_start|>assistant\n";
}

std::string in_phi4(const ChatTemplate&, Messages messages) {
  std::string text;
  for (const ChatMessage& message : messages)
    text += fmt::format("<|im_start|>{}<|im_sep|>{}<|im_end|>", message.role, message.content);
  return text + "<|im_start|>assistant<|im_sep|>";
}

std::string header_of(std::string_view role) { return fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n", role); }

std::string in_llama3(const ChatTemplate& chat, Messages messages) {
  std::string text = has(chat.source, "bos_token") ? chat.bos : "";
  for (const ChatMessage& message : messages)
    text += fmt::format("{}{}<|eot_id|>", header_of(message.role), trimmed(message.content));
  return text + header_of(assistant_role);
}

std::string in_llama3_dated(const ChatTemplate& chat, Messages messages, std::string_view today) {
  const bool says_system = messages.front().role == system_role;
  // Llama 3.1 has no clock; 3.2 asks for one.
  const std::string_view date = has(chat.source, "strftime_now") ? today : "26 Jul 2024";
  std::string text = fmt::format("{}{}{}\nToday Date: {}\n\n{}<|eot_id|>", chat.bos, header_of(system_role),
                                 dates_of_llama, date, says_system ? trimmed(messages.front().content) : "");
  for (const ChatMessage& message : messages.subspan(says_system ? 1 : 0))
    text += fmt::format("{}{}<|eot_id|>", header_of(message.role), trimmed(message.content));
  return text + header_of(assistant_role);
}

std::string in_llama2(const ChatTemplate& chat, Messages messages) {
  const bool each = has(chat.source, "bos_token + '[INST] '"), says_system = messages.front().role == system_role;
  std::string text = each ? "" : chat.bos;
  for (size_t m = says_system ? 1 : 0; m < messages.size(); ++m) {
    std::string content = messages[m].content;
    if (m == 1 && says_system) content = fmt::format("<<SYS>>\n{}\n<</SYS>>\n\n{}", messages[0].content, content);
    text += messages[m].role == user_role ? fmt::format("{}[INST] {} [/INST]", each ? chat.bos : "", trimmed(content))
                                          : fmt::format(" {} {}", trimmed(content), chat.eos);
  }
  return text;
}

// Where the words of the system stand in Mistral's templates, which is what tells their versions apart.
enum class MistralSystem : uint8_t { refused, in_first, in_last, own };
MistralSystem mistral_system(std::string_view source) {
  if (has(source, "[SYSTEM_PROMPT]")) return MistralSystem::own;
  if (has(source, "loop.first and system_message")) return MistralSystem::in_first;
  if (has(source, "loop.last and system_message")) return MistralSystem::in_last;
  return MistralSystem::refused;
}

std::string in_mistral(const ChatTemplate& chat, Messages messages) {
  const std::string_view source = chat.source;
  const std::string_view opening = has(source, "' [INST] '")       ? " [INST] "
                                   : has_literal(source, "[INST]") ? "[INST]"
                                                                   : "[INST] ";
  const std::string_view closing = has_literal(source, " [/INST]") ? " [/INST]" : "[/INST]";
  const bool spaced = has(source, "' ' + message['content'] + eos_token") ||
                      has(source, "\" \" + message[\"content\"] + eos_token") ||
                      has(source, "\" \" + message[\"content\"]|trim + eos_token");
  const bool trims = has(source, "message[\"content\"]|trim + eos_token");
  const MistralSystem place = mistral_system(source);
  const bool says_system = messages.front().role == system_role;
  std::string text = chat.bos;
  if (says_system && place == MistralSystem::own)
    text += fmt::format("[SYSTEM_PROMPT] {}[/SYSTEM_PROMPT]", messages[0].content);
  const size_t begin = says_system ? 1 : 0, asked = place == MistralSystem::in_first ? begin : messages.size() - 1;
  for (size_t m = begin; m < messages.size(); ++m) {
    const std::string_view content = messages[m].content;
    const bool with_system = says_system && m == asked && place != MistralSystem::own;
    if (messages[m].role == user_role)
      text += fmt::format("{}{}{}{}", opening, with_system ? messages[0].content + "\n\n" : "", content, closing);
    else
      text += fmt::format("{}{}{}", spaced ? " " : "", trims ? trimmed(content) : content, chat.eos);
  }
  return text;
}

std::string in_gemma(const ChatTemplate& chat, Messages messages) {
  std::string text = has(chat.source, "bos_token") ? chat.bos : "";
  for (const ChatMessage& message : messages)
    text += fmt::format("<start_of_turn>{}\n{}<end_of_turn>\n", message.role == assistant_role ? "model" : message.role,
                        trimmed(message.content));
  return text + "<start_of_turn>model\n";
}

std::string in_phi3(const ChatTemplate& chat, Messages messages) {
  std::string text = has(chat.source, "bos_token") ? chat.bos : "";
  for (const ChatMessage& message : messages) {
    if (message.role == system_role && message.content.empty()) continue;
    text += fmt::format("<|{}|>\n{}<|end|>\n", message.role, message.content);
  }
  return text + "<|assistant|>\n";
}

std::string in_zephyr(const ChatTemplate& chat, Messages messages) {
  std::string text;
  for (const ChatMessage& message : messages)
    text += fmt::format("<|{}|>\n{}{}\n", message.role, message.content, chat.eos);
  return text + "<|assistant|>\n";
}

// A template is of the first family all of whose marks it has and none of those it must not have.
struct KnownFamily {
  ChatFamily family;
  std::string_view name;
  std::vector<std::string_view> marks, foreign;
};
const std::vector<KnownFamily>& known_families() {
  static const std::vector<KnownFamily> known = {
      {ChatFamily::phi4, "phi4", {"<|im_start|>user<|im_sep|>", "<|im_start|>system<|im_sep|>"}, {}},
      {ChatFamily::chatml,
       "chatml",
       {"<|im_start|>", "<|im_end|>", "assistant"},
       // A beginning of the answer other than the role alone, dates, other rules for what is said before.
       {"<|im_sep|>", "<think>\\n' }}", "assistant\\n<think>", "strftime_now", "macro ", "generation %}", "Knowledge"}},
      {ChatFamily::llama3_dated, "llama3-dated", {"<|start_header_id|>", dates_of_llama, "Today Date: "}, {}},
      {ChatFamily::llama3, "llama3", {"<|start_header_id|>", "<|eot_id|>", "trim"}, {"Today", "functions"}},
      {ChatFamily::llama2, "llama2", {"[INST] ", "<<SYS>>", "content.strip()", "eos_token"}, {"true == true"}},
      {ChatFamily::mistral, "mistral", {"[INST]", "[/INST]", "eos_token"}, {"<<SYS>>", "default_system_message"}},
      {ChatFamily::gemma, "gemma", {"<start_of_turn>", "<end_of_turn>", "model", "System role not supported"}, {}},
      {ChatFamily::phi3, "phi3", {"<|end|>", "<|assistant|>"}, {"<|start|>", "tools"}},
      {ChatFamily::zephyr, "zephyr", {"<|user|>", "<|assistant|>", "message['content'] + eos_token"}, {"<|end|>"}},
  };
  return known;
}

bool is_of(const KnownFamily& family, std::string_view source) {
  const auto in_source = [&](std::string_view mark) { return has(source, mark); };
  return std::ranges::all_of(family.marks, in_source) && std::ranges::none_of(family.foreign, in_source);
}

bool takes_system(const ChatTemplate& chat) {
  switch (chat.family) {
    case ChatFamily::gemma:
      return false;
    case ChatFamily::mistral:
      return mistral_system(chat.source) != MistralSystem::refused;
    case ChatFamily::phi3:  // the first ones passed over what the system says
      return has(chat.source, "<|system|>") || has(chat.source, "'<|' + message['role']");
    default:
      return true;
  }
}

// These raise an exception where the user and the assistant do not speak in turns, or write the beginning of an answer
// behind each message of the user.
bool wants_turns(ChatFamily family) {
  switch (family) {
    case ChatFamily::llama2:
    case ChatFamily::mistral:
    case ChatFamily::gemma:
    case ChatFamily::phi3:
    case ChatFamily::phi4:
      return true;
    default:
      return false;
  }
}

Status check_messages(const ChatTemplate& chat, Messages messages) {
  if (messages.empty()) return invalid_input("there are no messages");
  for (size_t m = 0; m < messages.size(); ++m) {
    const std::string& role = messages[m].role;
    const auto wrong = [&](std::string_view why) {
      return invalid_input(fmt::format("message {} is of role {}: {}", m + 1, quote(role), why));
    };
    if (role != system_role && role != user_role && role != assistant_role)
      return wrong("roles are system, user and assistant");
    if (role == system_role && m > 0) return wrong("only the first message is the system's");
    if (role == system_role && !takes_system(chat)) return wrong("the model's template knows no system's message");
    if (wants_turns(chat.family) && m > 0 && messages[m - 1].role == role)
      return wrong("in this model's template user and assistant alternate");
    if (role == assistant_role && (m == 0 || messages[m - 1].role == system_role))
      return wrong("the user speaks first");
  }
  if (messages.back().role != user_role) return invalid_input("the last message is not the user's");
  return ok_status();
}

}  // namespace

std::string_view name_of(ChatFamily family) {
  return std::ranges::find(known_families(), family, &KnownFamily::family)->name;
}

std::vector<std::string_view> names_of_chat_families() {
  std::vector<std::string_view> names;
  for (const KnownFamily& known : known_families()) names.push_back(known.name);
  return names;
}

Result<ChatTemplate> recognise_chat_template(std::string source, std::string bos, std::string eos,
                                             const std::string& where) {
  for (const KnownFamily& known : known_families()) {
    if (is_of(known, source)) return ChatTemplate{known.family, std::move(source), std::move(bos), std::move(eos)};
  }
  return unsupported(
      fmt::format("{}: the template is of no known family; those that are: {}. Give the text as the model wants to see "
                  "it instead (`--prompt`, /v1/completions)",
                  where, fmt::join(names_of_chat_families(), ", ")));
}

Result<std::string> chat_text(const ChatTemplate& chat, Messages messages, std::string_view today) {
  RETURN_IF_ERROR(check_messages(chat, messages));
  switch (chat.family) {
    case ChatFamily::chatml:
      return in_chatml(chat, messages);
    case ChatFamily::phi4:
      return in_phi4(chat, messages);
    case ChatFamily::llama3:
      return in_llama3(chat, messages);
    case ChatFamily::llama3_dated:
      return in_llama3_dated(chat, messages, today);
    case ChatFamily::llama2:
      return in_llama2(chat, messages);
    case ChatFamily::mistral:
      return in_mistral(chat, messages);
    case ChatFamily::gemma:
      return in_gemma(chat, messages);
    case ChatFamily::phi3:
      return in_phi3(chat, messages);
    case ChatFamily::zephyr:
      return in_zephyr(chat, messages);
  }
  CHECK(false, "a family without its text");
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  return fmt::format("{:%d %b %Y}", fmt::localtime(now));
}

}  // namespace nlsplit::inline text
