#include "text/tokenizer_gguf.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_map>

#include "base/text_reader.h"
#include "graph/gguf/gguf_file.h"
#include "text/byte_alphabet.h"
#include "text/merges_by_score.h"
#include "text/normalize.h"
#include "text/patterns.h"
#include "text/utf8.h"

namespace nlsplit::inline text {
namespace {

constexpr std::string_view model_key = "tokenizer.ggml.model", tokens_key = "tokenizer.ggml.tokens",
                           kinds_key = "tokenizer.ggml.token_type", merges_key = "tokenizer.ggml.merges",
                           cuts_key = "tokenizer.ggml.pre", scores_key = "tokenizer.ggml.scores",
                           front_key = "tokenizer.ggml.add_space_prefix";
// Of tokenizer.ggml.token_type, in the order of their numbers, from 1 on (llama.h, llama_token_type).
enum class GgufTokenKind : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

std::string shown(std::string_view text) { return quote(std::string(text.substr(0, 80))); }

struct ListedTokens {
  std::vector<std::string_view> texts;
  std::vector<double> numbers_of_kinds;

  GgufTokenKind kind(size_t t) const {
    const double number = numbers_of_kinds[t];
    return static_cast<GgufTokenKind>(number >= 1 && number <= 6 ? number : 0);
  }
};

Result<ListedTokens> read_list(const GgufFile& file) {
  ListedTokens list;
  ASSIGN_OR_RETURN(list.texts, file.texts(tokens_key));
  ASSIGN_OR_RETURN(list.numbers_of_kinds, file.numbers(kinds_key));
  if (list.texts.size() > static_cast<size_t>(most_tokens))
    return file.error(tokens_key, fmt::format("{} tokens; at most {} are read", list.texts.size(), most_tokens));
  if (list.numbers_of_kinds.size() != list.texts.size())
    return file.error(kinds_key, fmt::format("{} kinds of {} tokens", list.numbers_of_kinds.size(), list.texts.size()));
  return list;
}

Status read_byte_level_tokens(const GgufFile& file, TokenizerParts& parts) {
  ASSIGN_OR_RETURN(const ListedTokens list, read_list(file));
  const std::vector<std::string_view>& tokens = list.texts;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const GgufTokenKind kind = list.kind(t);
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
        return file.error(kinds_key, fmt::format("token {} is of kind {}, which byte-level vocabularies have not", t,
                                                 list.numbers_of_kinds[t]));
    }
  }
  return ok_status();
}

Status read_scored_tokens(const GgufFile& file, TokenizerParts& parts) {
  ASSIGN_OR_RETURN(const ListedTokens list, read_list(file));
  // Phi-3's marks of a conversation take the white space behind them along (its tokenizer.json: "rstrip"), which a GGUF
  // file cannot say.
  const Result<std::string_view> family = file.text("general.architecture");
  const bool marks_take_space = family.ok() && *family == "phi3";
  for (size_t t = 0; t < list.texts.size(); ++t) {
    const std::string_view text = list.texts[t];
    const GgufTokenKind kind = list.kind(t);
    switch (kind) {
      case GgufTokenKind::normal: {
        const bool sound = first_invalid_utf8(text) == text.size() && text.find(' ') == std::string_view::npos;
        parts.vocabulary.push_back({with_spaces_for_marks(text), TokenKind::ordinary, sound && !text.empty()});
        break;
      }
      case GgufTokenKind::byte: {
        const std::optional<char> byte = fallback_byte(text);
        if (!byte) return file.error(tokens_key, fmt::format("token {}, {}, stands for no byte", t, shown(text)));
        parts.vocabulary.push_back({std::string(1, *byte), TokenKind::ordinary, false, true});
        break;
      }
      case GgufTokenKind::unknown:
      case GgufTokenKind::control:
      case GgufTokenKind::user_defined:
        if (text.empty()) return file.error(tokens_key, fmt::format("token {} is empty", t));
        parts.vocabulary.push_back({std::string(text), TokenKind::added, false});
        parts.added.push_back(
            {.content = std::string(text),
             .id = static_cast<TokenId>(t),
             .special = kind != GgufTokenKind::user_defined,
             .strips_after = marks_take_space && text != "<unk>" && text != "<s>" && text != "<|endoftext|>"});
        break;
      case GgufTokenKind::unused:
        parts.vocabulary.push_back({std::string(text), TokenKind::ordinary, false});
        break;
      default:
        return file.error(kinds_key,
                          fmt::format("token {} is of kind {}, which is not known", t, list.numbers_of_kinds[t]));
    }
  }
  return ok_status();
}

Status read_scored(const GgufFile& file, TokenizerParts& parts) {
  RETURN_IF_ERROR(read_scored_tokens(file, parts));
  ASSIGN_OR_RETURN(const std::vector<double> scores, file.numbers(scores_key));
  if (scores.size() != parts.vocabulary.size())
    return file.error(scores_key, fmt::format("{} scores of {} tokens", scores.size(), parts.vocabulary.size()));
  Result<std::vector<Merge>> merges = merges_by_score(parts.vocabulary, scores);
  if (!merges.ok()) return file.error(scores_key, merges.error().message);
  parts.merges = std::move(merges).value();
  parts.marks = SpaceMarks{};
  bool in_front = true;
  if (file.find(front_key) != nullptr) {
    ASSIGN_OR_RETURN(in_front, file.boolean(front_key));
  }
  if (in_front) parts.normal_steps.push_back({.form = {}, .from = {}, .to = " "});
  parts.drops_first_space = in_front;
  constexpr std::string_view collapse_key = "tokenizer.ggml.remove_extra_whitespaces";
  if (file.find(collapse_key) != nullptr) {
    ASSIGN_OR_RETURN(const bool collapses, file.boolean(collapse_key));
    if (collapses)
      return unsupported(file.error(collapse_key, "texts that lose spaces in a row are not supported").message);
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
      return file.error(merges_key, fmt::format("merge {}: {} is not a pair of tokens", m, shown(merges[m])));
    const std::string_view left = merges[m].substr(0, space), right = merges[m].substr(space + 1);
    Merge merge;
    ASSIGN_OR_RETURN(merge.left, number_of(left, m));
    ASSIGN_OR_RETURN(merge.right, number_of(right, m));
    ASSIGN_OR_RETURN(merge.whole, number_of(std::string(left) + std::string(right), m));
    merge.rank = static_cast<int32_t>(m);
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

// Answers whether texts begin with the model's first token unless the file says otherwise.
Result<bool> read_byte_level(const GgufFile& file, TokenizerParts& parts) {
  ASSIGN_OR_RETURN(const std::string_view name, file.text(cuts_key));
  std::optional<NamedCuts> named = named_cuts(name);
  if (!named) {
    return unsupported(file.error(cuts_key, fmt::format("{} is not known; those that are: {}", shown(name),
                                                        fmt::join(names_of_cuts(), ", ")))
                           .message);
  }
  parts.ignore_merges = named->ignore_merges;
  parts.normal_steps = std::move(named->normal_steps);
  parts.cuts = std::move(named->cuts);
  RETURN_IF_ERROR(read_byte_level_tokens(file, parts));
  RETURN_IF_ERROR(read_merges(file, parts));
  return named->begins;
}

}  // namespace

Result<Tokenizer> read_tokenizer_gguf(const std::string& path) {
  ASSIGN_OR_RETURN(const GgufFile file, read_gguf(path));
  ASSIGN_OR_RETURN(const std::string_view model, file.text(model_key));
  if (model != "gpt2" && model != "llama") {
    return unsupported(
        file.error(model_key, fmt::format("the tokenizer is {}; byte-level ones (gpt2) and SentencePiece's by scores "
                                          "(llama) are read",
                                          shown(model)))
            .message);
  }
  TokenizerParts parts;
  bool begins = true;
  if (model == "llama") {
    RETURN_IF_ERROR(read_scored(file, parts));
  } else {
    ASSIGN_OR_RETURN(begins, read_byte_level(file, parts));
  }
  RETURN_IF_ERROR(read_around(file, "bos", begins, parts.vocabulary, parts.before));
  RETURN_IF_ERROR(read_around(file, "eos", false, parts.vocabulary, parts.after));
  RETURN_IF_ERROR(read_ends(file, parts.vocabulary, parts.ends));
  return make_tokenizer(std::move(parts));
}

}  // namespace nlsplit::inline text
