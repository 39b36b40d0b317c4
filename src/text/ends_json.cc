#include "text/ends_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/config_files.h"

namespace nlsplit::inline text {
namespace {

Status add_end(const JsonPlace& place, const Vocabulary& vocabulary, std::vector<TokenId>& ends) {
  const Result<int64_t> id = place.integer();
  if (!id.ok() || *id < 0 || *id >= std::ssize(vocabulary))
    return place.wrong(fmt::format("{} is not a token ID from 0 to {}", place.excerpt(), std::ssize(vocabulary) - 1));
  ends.push_back(static_cast<TokenId>(*id));
  return ok_status();
}

// true: the file has the key.
Result<bool> add_ids(const std::string& path, const Vocabulary& vocabulary, std::vector<TokenId>& ends) {
  ASSIGN_OR_RETURN(const nlohmann::json root, read_config(path));
  const JsonPlace place = JsonPlace{&root, ""}.optional("eos_token_id");
  if (place.is_null()) return false;
  const size_t count = place.value->is_array() ? place.value->size() : 1;
  for (size_t at = 0; at < count; ++at) {
    const Status added = add_end(place.value->is_array() ? place.element(at) : place, vocabulary, ends);
    if (!added.ok()) return in_file(path, added.error());
  }
  return true;
}

}  // namespace

Result<std::vector<TokenId>> read_ends_beside(const std::string& tokenizer_json, const Vocabulary& vocabulary) {
  std::vector<TokenId> ends;
  ASSIGN_OR_RETURN(const bool said, add_ids(beside(tokenizer_json, "generation_config.json"), vocabulary, ends));
  if (!said) {
    ASSIGN_OR_RETURN([[maybe_unused]] const bool by_model,
                     add_ids(beside(tokenizer_json, "config.json"), vocabulary, ends));
  }
  const std::string path = beside(tokenizer_json, "tokenizer_config.json");
  ASSIGN_OR_RETURN(const nlohmann::json root, read_config(path));
  const JsonPlace place = JsonPlace{&root, ""}.optional("eos_token");
  const Result<std::string> end = token_text(place);
  if (!end.ok()) return in_file(path, end.error());
  if (!end->empty()) {
    const auto found = std::ranges::find_if(vocabulary, [&](const VocabularyToken& token) {
      return token.kind != TokenKind::absent && token.bytes == *end;
    });
    if (found == vocabulary.end())
      return in_file(path, place.wrong(fmt::format("{} is not a token of the vocabulary", place.excerpt())));
    ends.push_back(static_cast<TokenId>(found - vocabulary.begin()));
  }
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

}  // namespace nlsplit::inline text
