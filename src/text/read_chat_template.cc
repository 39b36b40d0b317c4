#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "graph/gguf/gguf_file.h"
#include "text/chat_template.h"
#include "text/config_files.h"

namespace nlsplit::inline text {
namespace {

constexpr std::string_view template_key = "tokenizer.chat_template";

Error no_template(const std::string& where) {
  return invalid_input(
      fmt::format("{}: there is no chat template: this may be no model for conversations. Give the text as the model "
                  "wants to see it (`--prompt`, /v1/completions)",
                  where));
}

// Empty: the file does not say.
Result<std::string> special_text(const GgufFile& file, std::string_view which) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", which);
  if (file.find(key) == nullptr) return std::string();
  ASSIGN_OR_RETURN(const int64_t id, file.integer(key));
  ASSIGN_OR_RETURN(const auto tokens, file.texts("tokenizer.ggml.tokens"));
  if (id < 0 || id >= std::ssize(tokens)) return file.error(key, fmt::format("there is no token {}", id));
  return std::string(tokens[static_cast<size_t>(id)]);
}

Result<ChatTemplate> of_gguf(const std::string& path) {
  ASSIGN_OR_RETURN(const GgufFile file, read_gguf(path));
  const std::string where = fmt::format("{}: {}", path, template_key);
  if (file.find(template_key) == nullptr) return no_template(where);
  ASSIGN_OR_RETURN(const std::string_view source, file.text(template_key));
  ASSIGN_OR_RETURN(std::string bos, special_text(file, "bos"));
  ASSIGN_OR_RETURN(std::string eos, special_text(file, "eos"));
  return recognise_chat_template(std::string(source), std::move(bos), std::move(eos), where);
}

// "…" or [{"name": "default", "template": "…"}, …]; empty: there is none.
Result<std::string> source_in(const JsonPlace& place) {
  if (place.is_null()) return std::string();
  if (!place.value->is_array()) return place.text();
  for (size_t at = 0; at < place.value->size(); ++at) {
    const JsonPlace one = place.element(at);
    ASSIGN_OR_RETURN(const std::string name, one.optional("name").text());
    if (name == "default") return one.optional("template").text();
  }
  return place.wrong("none of these is called \"default\"");
}

Result<ChatTemplate> of_folder(const std::string& tokenizer_json) {
  const std::string path = beside(tokenizer_json, "tokenizer_config.json");
  const std::string alone = beside(tokenizer_json, "chat_template.jinja");
  ASSIGN_OR_RETURN(const nlohmann::json root, read_config(path));
  const JsonPlace config{&root, ""};
  const auto in_config = [&](Result<std::string> read) -> Result<std::string> {
    if (!read.ok()) return in_file(path, read.error());
    return read;
  };
  ASSIGN_OR_RETURN(std::string bos, in_config(token_text(config.optional("bos_token"))));
  ASSIGN_OR_RETURN(std::string eos, in_config(token_text(config.optional("eos_token"))));
  std::error_code ignored;
  if (std::filesystem::exists(alone, ignored)) {
    ASSIGN_OR_RETURN(std::string source, read_file(alone));
    return recognise_chat_template(std::move(source), std::move(bos), std::move(eos), alone);
  }
  ASSIGN_OR_RETURN(std::string source, in_config(source_in(config.optional("chat_template"))));
  if (source.empty()) return no_template(path);
  return recognise_chat_template(std::move(source), std::move(bos), std::move(eos), path + ": /chat_template");
}

}  // namespace

Result<ChatTemplate> read_chat_template(const std::string& tokenizer_path) {
  return tokenizer_path.ends_with(".gguf") ? of_gguf(tokenizer_path) : of_folder(tokenizer_path);
}

}  // namespace nlsplit::inline text
