#include "text/tokenizer_gguf.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_map>

#include "base/text_reader.h"
#include "graph/gguf/gguf_file.h"
#include "text/byte_alphabet.h"
#include "text/patterns.h"

namespace nlsplit::inline text {
namespace {

constexpr std::string_view model_key = "tokenizer.ggml.model", tokens_key = "tokenizer.ggml.tokens",
                           kinds_key = "tokenizer.ggml.token_type", merges_key = "tokenizer.ggml.merges",
                           cuts_key = "tokenizer.ggml.pre";
// Of tokenizer.ggml.token_type, in the order of their numbers, from 1 on (llama.h, llama_token_type).
enum class GgufTokenKind : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

std::string shown(std::string_view text) { return quote(std::string(text.substr(0, 80))); }

Status read_tokens(const GgufFile& file, TokenizerParts& parts) {
  ASSIGN_OR_RETURN(const std::vector<std::string_view> tokens, file.texts(tokens_key));
  ASSIGN_OR_RETURN(const std::vector<double> kinds, file.numbers(kinds_key));
  if (tokens.size() > static_cast<size_t>(most_tokens))
    return file.error(tokens_key, fmt::format("{} tokens; at most {} are read", tokens.size(), most_tokens));
  if (kinds.size() != tokens.size())
    return file.error(kinds_key, fmt::format("{} kinds of {} tokens", kinds.size(), tokens.size()));
  for (size_t t = 0; t < tokens.size(); ++t) {
    const auto kind = static_cast<GgufTokenKind>(kinds[t] >= 1 && kinds[t] <= 6 ? kinds[t] : 0);
    const auto id = static_cast<TokenId>(t);
    switch (kind) {
      case GgufTokenKind::normal: {
        const std::optional<std::string> bytes = bytes_of_spelling(tokens[t]);
        parts.vocabulary.push_back(
            {bytes.value_or(std::string(tokens[t])), TokenKind::ordinary, bytes.has_value() && !bytes->empty()});
        break;
      }
      case GgufTokenKind::control:
      case GgufTokenKind::user_defined:
        if (tokens[t].empty()) return file.error(tokens_key, fmt::format("token {} is empty", t));
        parts.vocabulary.push_back({std::string(tokens[t]), TokenKind::added, false});
        parts.added.push_back({.content = std::string(tokens[t]), .id = id, .special = kind == GgufTokenKind::control});
        break;
      case GgufTokenKind::unknown:
      case GgufTokenKind::unused:
        parts.vocabulary.push_back({std::string(tokens[t]), TokenKind::ordinary, false});
        break;
      default:
        return file.error(kinds_key,
                          fmt::format("token {} is of kind {}, which byte-level vocabularies have not", t, kinds[t]));
    }
  }
  return ok_status();
}

Status read_merges(const GgufFile& file, TokenizerParts& parts) {
  ASSIGN_OR_RETURN(const std::vector<std::string_view> tokens, file.texts(tokens_key));
  ASSIGN_OR_RETURN(const std::vector<std::string_view> merges, file.texts(merges_key));
  std::unordered_map<std::string_view, TokenId> numbers;
  for (size_t t = 0; t < tokens.size(); ++t) numbers.emplace(tokens[t], static_cast<TokenId>(t));
  const auto number_of = [&](std::string_view token, size_t merge) -> Result<TokenId> {
    const auto found = numbers.find(token);
    if (found != numbers.end()) return found->second;
    return file.error(merges_key, fmt::format("merge {}: there is no token {}", merge, shown(token)));
  };
  for (size_t m = 0; m < merges.size(); ++m) {
    const size_t space = merges[m].find(' ');
    if (space == std::string_view::npos || merges[m].find(' ', space + 1) != std::string_view::npos)
      return file.error(merges_key, fmt::format("merge {}: {} is no pair of tokens", m, shown(merges[m])));
    const std::string_view left = merges[m].substr(0, space), right = merges[m].substr(space + 1);
    Merge merge;
    ASSIGN_OR_RETURN(merge.left, number_of(left, m));
    ASSIGN_OR_RETURN(merge.right, number_of(right, m));
    ASSIGN_OR_RETURN(merge.whole, number_of(std::string(left) + std::string(right), m));
    parts.merges.push_back(merge);
  }
  return ok_status();
}

Result<TokenId> read_token(const GgufFile& file, const std::string& key, const Vocabulary& vocabulary) {
  ASSIGN_OR_RETURN(const int64_t token, file.integer(key));
  if (token < 0 || token >= static_cast<int64_t>(vocabulary.size()))
    return file.error(key, fmt::format("there is no token {}", token));
  return static_cast<TokenId>(token);
}

// The token around each text that the file asks for: "bos" in front, "eos" behind.
Status read_around(const GgufFile& file, std::string_view which, bool otherwise, const Vocabulary& vocabulary,
                   std::vector<TokenId>& around) {
  const std::string asked = fmt::format("tokenizer.ggml.add_{}_token", which);
  const std::string id = fmt::format("tokenizer.ggml.{}_token_id", which);
  bool wanted = otherwise && file.find(id) != nullptr;
  if (file.find(asked) != nullptr) {
    ASSIGN_OR_RETURN(wanted, file.boolean(asked));
  }
  if (!wanted) return ok_status();
  ASSIGN_OR_RETURN(const TokenId token, read_token(file, id, vocabulary));
  around.push_back(token);
  return ok_status();
}

// The end of the text, of a turn, of a message.
Status read_ends(const GgufFile& file, const Vocabulary& vocabulary, std::vector<TokenId>& ends) {
  for (const std::string_view which : {"eos", "eot", "eom"}) {
    const std::string id = fmt::format("tokenizer.ggml.{}_token_id", which);
    if (file.find(id) == nullptr) continue;
    ASSIGN_OR_RETURN(const TokenId token, read_token(file, id, vocabulary));
    ends.push_back(token);
  }
  return ok_status();
}

}  // namespace

Result<Tokenizer> read_tokenizer_gguf(const std::string& path) {
  ASSIGN_OR_RETURN(const GgufFile file, read_gguf(path));
  ASSIGN_OR_RETURN(const std::string_view model, file.text(model_key));
  if (model != "gpt2") {
    return unsupported(
        file.error(model_key, fmt::format("the tokenizer is {}; byte-level ones (gpt2) are read", shown(model)))
            .message);
  }
  ASSIGN_OR_RETURN(const std::string_view name, file.text(cuts_key));
  std::optional<NamedCuts> named = named_cuts(name);
  if (!named) {
    return unsupported(file.error(cuts_key, fmt::format("{} is not known; those that are: {}", shown(name),
                                                        fmt::join(names_of_cuts(), ", ")))
                           .message);
  }
  TokenizerParts parts;
  parts.ignore_merges = named->ignore_merges;
  parts.normal_forms = std::move(named->normal_forms);
  parts.cuts = std::move(named->cuts);
  RETURN_IF_ERROR(read_tokens(file, parts));
  RETURN_IF_ERROR(read_merges(file, parts));
  RETURN_IF_ERROR(read_around(file, "bos", named->begins, parts.vocabulary, parts.before));
  RETURN_IF_ERROR(read_around(file, "eos", false, parts.vocabulary, parts.after));
  RETURN_IF_ERROR(read_ends(file, parts.vocabulary, parts.ends));
  return make_tokenizer(std::move(parts));
}

}  // namespace nlsplit::inline text
