#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json_place.h"
#include "base/process_seconds.h"
#include "report/table.h"
#include "text/byte_alphabet.h"
#include "text/chat_template.h"
#include "text/decode.h"
#include "text/read_tokenizer.h"
#include "tools/commands.h"
#include "tools/exit.h"

namespace nlsplit::inline tools {
namespace {

struct TokenizeArguments {
  std::string tokenizer, text, file, chat;
  std::vector<TokenId> ids;  // to decode
  bool has_text = false, decodes = false, plain = false, skip_special = false, json = false;
};

// Text of its own as it is, with line breaks and the like escaped; other tokens byte by byte.
std::string piece_text(const Tokenizer& tokenizer, TokenId token) {
  const std::string& bytes = tokenizer.vocabulary[static_cast<size_t>(token)].bytes;
  std::string quoted = nlohmann::json(bytes).dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore);
  if (nlohmann::json::parse(quoted) == bytes) return quoted;
  std::string hex;
  for (const char byte : bytes) hex += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return hex;
}

// A file with [{"role": "user", "content": "…"}, …] as the model's template writes it.
Result<std::string> read_conversation(const TokenizeArguments& arguments) {
  ASSIGN_OR_RETURN(const std::string content, read_file(arguments.chat));
  ASSIGN_OR_RETURN(const nlohmann::json root, parse_json(content, arguments.chat));
  const JsonPlace place{&root, ""};
  const auto read = [&]() -> Result<std::vector<ChatMessage>> {
    std::vector<ChatMessage> messages;
    RETURN_IF_ERROR(place.must_be_array());
    for (size_t m = 0; m < root.size(); ++m) {
      const JsonPlace one = place.element(m);
      RETURN_IF_ERROR(one.must_be_object({"role", "content"}));
      ChatMessage message;
      ASSIGN_OR_RETURN(message.role, one.optional("role").text());
      ASSIGN_OR_RETURN(message.content, one.optional("content").text());
      messages.push_back(std::move(message));
    }
    return messages;
  };
  const Result<std::vector<ChatMessage>> messages = read();
  if (!messages.ok()) return in_file(arguments.chat, messages.error());
  ASSIGN_OR_RETURN(const ChatTemplate chat, read_chat_template(arguments.tokenizer));
  Result<std::string> text = chat_text(chat, *messages, today());
  if (!text.ok()) return in_file(arguments.chat, text.error());
  return text;
}

Status print_tokens(const TokenizeArguments& arguments, const Tokenizer& tokenizer) {
  std::string text = arguments.text;
  const bool chats = !arguments.chat.empty();
  if (chats) {
    ASSIGN_OR_RETURN(text, read_conversation(arguments));
  } else if (!arguments.has_text) {
    ASSIGN_OR_RETURN(text, read_file(arguments.file));
  }
  const double begin = process_seconds();
  Result<std::vector<TokenId>> encoded =
      encode(tokenizer, text, arguments.plain || chats ? Around::without : Around::with);
  const double seconds = process_seconds() - begin;
  if (!encoded.ok()) {
    if (!arguments.has_text) encoded.error().where.file = chats ? arguments.chat : arguments.file;
    return std::move(encoded).error();
  }
  const std::vector<TokenId>& tokens = *encoded;
  if (arguments.json) {
    nlohmann::json pieces = nlohmann::json::array();
    for (const TokenId token : tokens)
      pieces.push_back(spelling_of_bytes(tokenizer.vocabulary[static_cast<size_t>(token)].bytes));
    nlohmann::json all = {{"ids", tokens}, {"pieces", std::move(pieces)}, {"encode_processor_seconds", seconds}};
    if (chats) all["text"] = text;
    fmt::print("{}\n", all.dump());
    return ok_status();
  }
  Table table({{"token", Align::right}, {"text"}});
  for (const TokenId token : tokens) table.add({fmt::format("{}", token), piece_text(tokenizer, token)});
  std::fputs(table.to_string().c_str(), stdout);
  fmt::print("\n{} of {} bytes\n", counted(static_cast<int64_t>(tokens.size()), "token"), text.size());
  return ok_status();
}

Status tokenize(const TokenizeArguments& arguments) {
  const int said = (arguments.has_text ? 1 : 0) + (arguments.file.empty() ? 0 : 1) + (arguments.chat.empty() ? 0 : 1) +
                   (arguments.decodes ? 1 : 0);
  if (said != 1) return invalid_input("tokenize: it takes one of --text, --file, --chat and --decode");
  ASSIGN_OR_RETURN(const Tokenizer tokenizer, read_tokenizer(arguments.tokenizer));
  if (!arguments.decodes) return print_tokens(arguments, tokenizer);
  const SpecialTokens special = arguments.skip_special ? SpecialTokens::skipped : SpecialTokens::shown;
  ASSIGN_OR_RETURN(const std::string text, decode(tokenizer, arguments.ids, special));
  if (arguments.json) {
    fmt::print("{}\n", nlohmann::json{{"text", text}}.dump());
  } else {
    fmt::print("{}\n", text);
  }
  return ok_status();
}

}  // namespace

void add_tokenize_command(CLI::App& app, int& code) {
  CLI::App* command =
      app.add_subcommand("tokenize",
                         "Turn text into the tokens of a language model, or tokens into text (docs/text.md)\n"
                         "  nlsim tokenize tokenizer.json --text 'Hello world'\n"
                         "  nlsim tokenize model.gguf --file book.txt\n"
                         "  nlsim tokenize tokenizer.json --decode 9906,1917\n"
                         "  nlsim tokenize model.gguf --chat messages.json");
  const auto arguments = std::make_shared<TokenizeArguments>();
  command
      ->add_option("FILE", arguments->tokenizer,
                   "The model's tokenizer.json, or a GGUF file, which has its tokenizer in it")
      ->required();
  CLI::Option* text = command->add_option("--text", arguments->text, "Text to encode");
  command->add_option("--file", arguments->file, "File with text to encode")->type_name("PATH");
  command
      ->add_option("--chat", arguments->chat,
                   "File with a conversation to encode by the model's own chat template: [{\"role\": \"user\", "
                   "\"content\": \"…\"}, …]")
      ->type_name("PATH");
  CLI::Option* ids =
      command->add_option("--decode", arguments->ids, "Tokens to decode, with commas between")->delimiter(',');
  ids->type_name("ID,…");
  command->add_flag("--plain", arguments->plain, "Without the tokens that the model adds around a text");
  command->add_flag("--skip-special", arguments->skip_special, "Decode without special tokens");
  command->add_flag(
      "--json", arguments->json,
      "JSON: ids, pieces as the file spells them, processor time of encoding, of a conversation its text; "
      "or the text");
  command->callback([arguments, text, ids, &code] {
    arguments->has_text = text->count() > 0;
    arguments->decodes = ids->count() > 0;
    if (const Status status = tokenize(*arguments); !status.ok()) code = report(status.error());
  });
}

}  // namespace nlsplit::inline tools
