#include "text/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/json_place.h"
#include "text/byte_alphabet.h"
#include "text/normalize.h"
#include "text/patterns.h"

namespace nlsplit::inline text {
namespace {

using nlohmann::json;

Result<std::string> type_of(const JsonPlace& place) {
  if (!place.value->is_object()) return place.wrong(fmt::format("{} is not an object", place.excerpt()));
  return place.optional("type").text();
}

Result<TokenId> token_id(const JsonPlace& place) {
  const Result<int64_t> id = place.integer();
  if (id.ok() && *id >= 0 && *id < most_tokens) return static_cast<TokenId>(*id);
  return place.wrong(fmt::format("{} is not a token ID from 0 to {}", place.excerpt(), most_tokens - 1));
}

Error not_known(const JsonPlace& place, std::string_view what, std::string_view type) {
  return place.optional("type").not_supported(fmt::format("the {} \"{}\" is not supported", what, type));
}

// {"String": "…"}, for what is searched as a text and not as a pattern.
Result<std::string> plain_text(const JsonPlace& place) {
  RETURN_IF_ERROR(place.must_be_object({"String", "Regex"}));
  if (!place.optional("Regex").is_null()) return place.not_supported("only a String is supported here");
  ASSIGN_OR_RETURN(std::string text, place.optional("String").text());
  if (text.empty()) return place.wrong("the pattern is empty");
  return text;
}

// Steps that make a text longer multiply: a few dozen would fill any memory. Real ones make at most three bytes of one,
// and put one character in front.
Status check_growth(const JsonPlace& place, const std::vector<NormalStep>& steps) {
  constexpr double most_times = 64, bytes_in_front = 16;
  double times = 1;
  for (const NormalStep& step : steps) {
    const auto to = static_cast<double>(step.to.size());
    if (!step.from.empty())
      times *= std::max(1.0, to / static_cast<double>(step.from.size()));
    else if (!step.form)
      times *= 1 + to / bytes_in_front;
  }
  if (times <= most_times) return ok_status();
  return place.not_supported(fmt::format("its steps could make a text {:.3g} times as long", times));
}

Status read_normalizer(const JsonPlace& place, std::vector<NormalStep>& steps) {
  if (place.is_null()) return ok_status();
  ASSIGN_OR_RETURN(const std::string type, type_of(place));
  if (type == "Sequence") {
    RETURN_IF_ERROR(place.must_be_object({"type", "normalizers"}));
    const JsonPlace list = place.optional("normalizers");
    RETURN_IF_ERROR(list.must_be_array());
    for (size_t at = 0; at < list.value->size(); ++at) {
      const JsonPlace one = list.element(at);
      if (one.value->is_object() && one.optional("type").value->is_string() && *one.optional("type").value == type)
        return not_known(one, "normalizer within a Sequence", type);
      RETURN_IF_ERROR(read_normalizer(one, steps));
    }
    return ok_status();
  }
  NormalStep step;
  if (type == "Replace") {
    RETURN_IF_ERROR(place.must_be_object({"type", "pattern", "content"}));
    ASSIGN_OR_RETURN(step.from, plain_text(place.optional("pattern")));
    ASSIGN_OR_RETURN(step.to, place.optional("content").text());
    steps.push_back(std::move(step));
    return ok_status();
  }
  if (type == "Prepend") {
    RETURN_IF_ERROR(place.must_be_object({"type", "prepend"}));
    ASSIGN_OR_RETURN(step.to, place.optional("prepend").text());
    steps.push_back(std::move(step));
    return ok_status();
  }
  RETURN_IF_ERROR(place.must_be_object({"type"}));
  static const std::map<std::string, NormalForm, std::less<>> known = {
      {"NFC", NormalForm::nfc}, {"NFD", NormalForm::nfd}, {"NFKC", NormalForm::nfkc}, {"NFKD", NormalForm::nfkd}};
  const auto found = known.find(type);
  if (found == known.end()) return not_known(place, "normalizer", type);
  step.form = found->second;
  steps.push_back(std::move(step));
  return ok_status();
}

Status read_split(const JsonPlace& place, std::vector<CutStep>& cuts) {
  RETURN_IF_ERROR(place.must_be_object({"type", "pattern", "behavior", "invert"}));
  CutStep step;
  const JsonPlace pattern = place.optional("pattern");
  RETURN_IF_ERROR(pattern.must_be_object({"Regex", "String"}));
  const JsonPlace text = pattern.optional("String"), expression = pattern.optional("Regex");
  step.literal = !text.is_null();
  if (step.literal && !expression.is_null()) return pattern.wrong("there are two patterns");
  ASSIGN_OR_RETURN(step.pattern, (step.literal ? text : expression).text());
  if (step.pattern.empty()) return pattern.wrong("the pattern is empty");
  const JsonPlace behavior = place.optional("behavior");
  ASSIGN_OR_RETURN(const std::string name, behavior.text());
  ASSIGN_OR_RETURN(const bool inverted, place.optional("invert").flag(false));
  if (name != "Isolated" && name != "Removed" && (name != "MergedWithPrevious" || inverted))
    return behavior.not_supported(
        fmt::format("the behavior \"{}\"{} is not supported", name, inverted ? ", inverted," : ""));
  step.found = name == "Isolated"  ? Found::word
               : name != "Removed" ? Found::end
               : inverted          ? Found::kept
                                   : Found::removed;
  cuts.push_back(std::move(step));
  return ok_status();
}

// Metaspace: spaces are marked, and where there is none in front one comes there.
Result<SpaceMarks> read_metaspace(const JsonPlace& place) {
  RETURN_IF_ERROR(
      place.must_be_object({"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"}));
  SpaceMarks marks;
  ASSIGN_OR_RETURN(const std::string mark, place.optional("replacement").text());
  if (mark != space_mark)
    return place.optional("replacement").not_supported(fmt::format("the mark \"{}\" is not supported", mark));
  ASSIGN_OR_RETURN(marks.cuts, place.optional("split").flag(true));
  const JsonPlace scheme = place.optional("prepend_scheme");
  ASSIGN_OR_RETURN(const bool prefix, place.optional("add_prefix_space").flag(true));
  std::string name = prefix ? "always" : "never";
  if (!scheme.is_null()) {
    ASSIGN_OR_RETURN(name, scheme.text());
  }
  static const std::map<std::string, SpaceMarks::Front, std::less<>> known = {
      {"always", SpaceMarks::Front::piece}, {"first", SpaceMarks::Front::text}, {"never", SpaceMarks::Front::none}};
  const auto found = known.find(name);
  if (found == known.end()) return scheme.not_supported(fmt::format("the scheme \"{}\" is not supported", name));
  marks.front = found->second;
  return marks;
}

// Words that are made of characters: Metaspace, steps that cut the text further, or nothing.
Status read_cuts_of_characters(const JsonPlace& place, TokenizerParts& parts) {
  const bool marked = std::ranges::any_of(parts.normal_steps, [](const NormalStep& step) {
    return !step.form && step.from == " " && step.to == space_mark;
  });
  parts.marks = SpaceMarks{};
  if (place.is_null()) {
    return marked ? ok_status()
                  : Status(place.not_supported("byte_fallback is supported where spaces become \"\u2581\""));
  }
  ASSIGN_OR_RETURN(const std::string type, type_of(place));
  if (type == "Metaspace") {
    ASSIGN_OR_RETURN(parts.marks, read_metaspace(place));
    return ok_status();
  }
  if (type != "Split" || !marked) return not_known(place, "pre-tokenizer of a vocabulary with byte_fallback", type);
  const size_t before = parts.cuts.size();
  RETURN_IF_ERROR(read_split(place, parts.cuts));
  // All spaces are marks by now, so a pattern that is a space finds none (Gemma's).
  if (parts.cuts.back().literal && parts.cuts.back().pattern == " ") {
    parts.cuts.resize(before);
    return ok_status();
  }
  return not_known(place, "pre-tokenizer of a vocabulary with byte_fallback", type);
}

Status read_pre_tokenizer(const JsonPlace& place, std::vector<CutStep>& cuts, bool& byte_level) {
  ASSIGN_OR_RETURN(const std::string type, type_of(place));
  // What comes behind the change to the alphabet of bytes would see that alphabet.
  if (byte_level) return not_known(place, "pre-tokenizer after ByteLevel", type);
  if (type == "Split") return read_split(place, cuts);
  if (type == "Digits") {
    RETURN_IF_ERROR(place.must_be_object({"type", "individual_digits"}));
    ASSIGN_OR_RETURN(const bool single, place.optional("individual_digits").flag(false));
    cuts.push_back({.pattern = single ? "\\p{N}" : "\\p{N}+"});
    return ok_status();
  }
  if (type == "ByteLevel") {
    RETURN_IF_ERROR(place.must_be_object({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
    ASSIGN_OR_RETURN(const bool space, place.optional("add_prefix_space").flag(true));
    ASSIGN_OR_RETURN(const bool cut, place.optional("use_regex").flag(true));
    if (space) cuts.push_back({.space_in_front = true, .pattern = {}});
    if (cut) cuts.push_back({.pattern = std::string(gpt2_pattern)});
    byte_level = true;
    return ok_status();
  }
  return not_known(place, "pre-tokenizer", type);
}

Status read_pre_tokenizers(const JsonPlace& place, std::vector<CutStep>& cuts) {
  bool byte_level = false;
  if (!place.is_null()) {
    ASSIGN_OR_RETURN(const std::string type, type_of(place));
    if (type == "Sequence") {
      RETURN_IF_ERROR(place.must_be_object({"type", "pretokenizers"}));
      const JsonPlace list = place.optional("pretokenizers");
      RETURN_IF_ERROR(list.must_be_array());
      for (size_t at = 0; at < list.value->size(); ++at)
        RETURN_IF_ERROR(read_pre_tokenizer(list.element(at), cuts, byte_level));
    } else {
      RETURN_IF_ERROR(read_pre_tokenizer(place, cuts, byte_level));
    }
  }
  if (!byte_level)
    return place.not_supported(
        "only vocabularies of bytes are supported, and there is neither ByteLevel nor byte_fallback");
  return ok_status();
}

Status read_template(const JsonPlace& place, TokenizerParts& parts) {
  // `pair` and the numbers of the types are for pairs of texts, which nobody here encodes.
  RETURN_IF_ERROR(place.must_be_object({"type", "single", "pair", "special_tokens"}));
  const JsonPlace single = place.optional("single");
  RETURN_IF_ERROR(single.must_be_array());
  bool text_seen = false;
  for (size_t at = 0; at < single.value->size(); ++at) {
    const JsonPlace piece = single.element(at);
    RETURN_IF_ERROR(piece.must_be_object({"SpecialToken", "Sequence"}));
    if (!piece.optional("Sequence").is_null()) {
      const JsonPlace name = piece.optional("Sequence").optional("id");
      if (text_seen || !piece.optional("SpecialToken").is_null() || *name.value != "A")
        return piece.wrong("a template of one text has the Sequence \"A\" once");
      text_seen = true;
      continue;
    }
    ASSIGN_OR_RETURN(const std::string name, piece.optional("SpecialToken").optional("id").text());
    const JsonPlace ids = place.optional("special_tokens").optional(name.c_str()).optional("ids");
    RETURN_IF_ERROR(ids.must_be_array());
    for (size_t id = 0; id < ids.value->size(); ++id) {
      ASSIGN_OR_RETURN(const TokenId token, token_id(ids.element(id)));
      const auto index = static_cast<size_t>(token);
      if (index >= parts.vocabulary.size() || parts.vocabulary[index].kind == TokenKind::absent)
        return ids.wrong(fmt::format("there is no token {}", token));
      (text_seen ? parts.after : parts.before).push_back(token);
    }
  }
  return text_seen ? ok_status() : Status(single.wrong("the template has no Sequence \"A\""));
}

Status read_post_processor(const JsonPlace& place, TokenizerParts& parts) {
  if (place.is_null()) return ok_status();
  ASSIGN_OR_RETURN(const std::string type, type_of(place));
  if (type == "ByteLevel") return ok_status();  // changes offsets alone
  if (type == "TemplateProcessing") return read_template(place, parts);
  if (type != "Sequence") return not_known(place, "post-processor", type);
  RETURN_IF_ERROR(place.must_be_object({"type", "processors"}));
  const JsonPlace list = place.optional("processors");
  RETURN_IF_ERROR(list.must_be_array());
  bool template_seen = false;
  for (size_t at = 0; at < list.value->size(); ++at) {
    const JsonPlace one = list.element(at);
    ASSIGN_OR_RETURN(const std::string inner, type_of(one));
    if (inner == "ByteLevel") continue;
    if (inner != "TemplateProcessing" || template_seen) return not_known(one, "further post-processor", inner);
    template_seen = true;
    RETURN_IF_ERROR(read_template(one, parts));
  }
  return ok_status();
}

// A key of /model that only other kinds of vocabularies use.
Status must_be_unset(const JsonPlace& model, const char* key) {
  const JsonPlace place = model.optional(key);
  const bool unset =
      place.is_null() || *place.value == "" || *place.value == false || (place.value->is_number() && *place.value == 0);
  return unset ? ok_status() : Status(place.not_supported(fmt::format("{} is not supported", place.excerpt())));
}

using Numbers = std::map<std::string, TokenId, std::less<>>;

Result<std::pair<std::string, std::string>> merge_texts(const JsonPlace& place) {
  const json& value = *place.value;
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string())
    return std::pair(value[0].get<std::string>(), value[1].get<std::string>());
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
      return std::pair(text.substr(0, space), text.substr(space + 1));
  }
  return place.wrong(fmt::format("{} is not a pair of tokens", place.excerpt()));
}

VocabularyToken token_of(const std::string& spelled, bool byte_fallback) {
  if (!byte_fallback) {
    const std::optional<std::string> bytes = bytes_of_spelling(spelled);
    return {bytes.value_or(spelled), TokenKind::ordinary, bytes.has_value() && !bytes->empty()};
  }
  if (const std::optional<char> byte = fallback_byte(spelled))
    return {std::string(1, *byte), TokenKind::ordinary, false, true};
  // A space of its own would be the same as its mark; texts have none by the time that words are made.
  const bool in_words = !spelled.empty() && spelled.find(' ') == std::string::npos;
  return {with_spaces_for_marks(spelled), TokenKind::ordinary, in_words};
}

Status read_vocabulary(const JsonPlace& place, bool byte_fallback, Vocabulary& vocabulary, Numbers& numbers) {
  RETURN_IF_ERROR(place.value->is_object() ? ok_status() : Status(place.wrong("there is no vocabulary")));
  for (const auto& [spelled, number] : place.value->items()) {
    const JsonPlace entry{&number, fmt::format("{}/{}", place.path, spelled)};
    ASSIGN_OR_RETURN(const TokenId id, token_id(entry));
    if (static_cast<size_t>(id) >= vocabulary.size()) vocabulary.resize(static_cast<size_t>(id) + 1);
    VocabularyToken& token = vocabulary[static_cast<size_t>(id)];
    if (token.kind != TokenKind::absent) return entry.wrong(fmt::format("another token has the number {} too", id));
    token = token_of(spelled, byte_fallback);
    numbers.emplace(spelled, id);
  }
  return ok_status();
}

Status read_merges(const JsonPlace& place, const Numbers& numbers, std::vector<Merge>& merges) {
  RETURN_IF_ERROR(place.must_be_array());
  for (size_t at = 0; at < place.value->size(); ++at) {
    const JsonPlace entry{&(*place.value)[at], fmt::format("{}/{}", place.path, at)};
    ASSIGN_OR_RETURN(const auto texts, merge_texts(entry));
    const auto number_of = [&](const std::string& token) -> Result<TokenId> {
      const auto found = numbers.find(token);
      if (found == numbers.end()) return entry.wrong(fmt::format("the vocabulary has no token \"{}\"", token));
      return found->second;
    };
    Merge merge;
    ASSIGN_OR_RETURN(merge.left, number_of(texts.first));
    ASSIGN_OR_RETURN(merge.right, number_of(texts.second));
    ASSIGN_OR_RETURN(merge.whole, number_of(texts.first + texts.second));
    merge.rank = static_cast<int32_t>(at);
    merges.push_back(merge);
  }
  return ok_status();
}

Status read_model(const JsonPlace& place, TokenizerParts& parts, Numbers& numbers, bool& byte_fallback) {
  RETURN_IF_ERROR(
      place.must_be_object({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                            "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  if (!place.optional("type").is_null()) {
    ASSIGN_OR_RETURN(const std::string type, type_of(place));
    if (type != "BPE") return not_known(place, "model", type);
  }
  // `unk_token` and `fuse_unk` are for bytes without a token, which encode() refuses.
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    RETURN_IF_ERROR(must_be_unset(place, key));
  ASSIGN_OR_RETURN(byte_fallback, place.optional("byte_fallback").flag(false));
  ASSIGN_OR_RETURN(parts.ignore_merges, place.optional("ignore_merges").flag(false));
  RETURN_IF_ERROR(read_vocabulary(place.optional("vocab"), byte_fallback, parts.vocabulary, numbers));
  return read_merges(place.optional("merges"), numbers, parts.merges);
}

Status read_added_token(const JsonPlace& place, const Numbers& numbers, std::set<std::string>& seen,
                        TokenizerParts& parts) {
  RETURN_IF_ERROR(place.must_be_object({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
  AddedToken token;
  ASSIGN_OR_RETURN(token.id, token_id(place.optional("id")));
  ASSIGN_OR_RETURN(token.content, place.optional("content").text());
  ASSIGN_OR_RETURN(token.special, place.optional("special").flag(false));
  ASSIGN_OR_RETURN(token.normalized, place.optional("normalized").flag(!token.special));
  ASSIGN_OR_RETURN(token.strips_before, place.optional("lstrip").flag(false));
  ASSIGN_OR_RETURN(token.strips_after, place.optional("rstrip").flag(false));
  ASSIGN_OR_RETURN(const bool single_word, place.optional("single_word").flag(false));
  if (single_word) return place.optional("single_word").not_supported("tokens that are single words are not supported");
  if (token.content.empty()) return place.optional("content").wrong("the token is empty");
  if (!seen.insert(token.content).second)
    return place.wrong(fmt::format("the token \"{}\" is listed before", token.content));
  const auto index = static_cast<size_t>(token.id);
  if (index >= parts.vocabulary.size()) parts.vocabulary.resize(index + 1);
  VocabularyToken& entry = parts.vocabulary[index];
  const auto known = numbers.find(token.content);
  if (known != numbers.end() ? known->second != token.id : entry.kind != TokenKind::absent)
    return place.wrong(fmt::format("\"{}\" and its number {} contradict the vocabulary", token.content, token.id));
  if (known == numbers.end()) entry = {token.content, TokenKind::added, false};
  parts.added.push_back(std::move(token));
  return ok_status();
}

Status read_decoder(const JsonPlace& place) {
  if (place.is_null()) return place.not_supported("there is no decoder; byte-level vocabularies have ByteLevel");
  ASSIGN_OR_RETURN(const std::string type, type_of(place));
  return type == "ByteLevel" ? ok_status() : Status(not_known(place, "decoder", type));
}

// Of vocabularies with byte_fallback: marks become spaces, bytes characters, and a space in front may be dropped.
Status read_decoder_of_characters(const JsonPlace& place, bool& drops_first_space) {
  if (place.is_null()) return place.not_supported("there is no decoder");
  ASSIGN_OR_RETURN(const std::string type, type_of(place));
  if (type != "Sequence") return not_known(place, "decoder of a vocabulary with byte_fallback", type);
  RETURN_IF_ERROR(place.must_be_object({"type", "decoders"}));
  const JsonPlace list = place.optional("decoders");
  RETURN_IF_ERROR(list.must_be_array());
  constexpr std::array<std::string_view, 4> order = {"Replace", "ByteFallback", "Fuse", "Strip"};
  if (list.value->size() < 3 || list.value->size() > order.size())
    return list.not_supported("the decoders of byte_fallback are Replace, ByteFallback, Fuse, and Strip or nothing");
  for (size_t at = 0; at < list.value->size(); ++at) {
    const JsonPlace one = list.element(at);
    ASSIGN_OR_RETURN(const std::string name, type_of(one));
    if (name != order[at]) return not_known(one, fmt::format("decoder in place of {}", order[at]), name);
    if (name == "Replace") {
      RETURN_IF_ERROR(one.must_be_object({"type", "pattern", "content"}));
      ASSIGN_OR_RETURN(const std::string from, plain_text(one.optional("pattern")));
      ASSIGN_OR_RETURN(const std::string to, one.optional("content").text());
      if (from != space_mark || to != " ") return one.not_supported("what is replaced is \"\u2581\" by a space");
    } else if (name == "Strip") {
      RETURN_IF_ERROR(one.must_be_object({"type", "content", "start", "stop"}));
      ASSIGN_OR_RETURN(const std::string what, one.optional("content").text());
      ASSIGN_OR_RETURN(const int64_t start, one.optional("start").integer());
      ASSIGN_OR_RETURN(const int64_t stop, one.optional("stop").integer());
      if (what != " " || start < 0 || start > 1 || stop != 0)
        return one.not_supported("what is stripped is one space in front");
      drops_first_space = start == 1;
    } else {
      RETURN_IF_ERROR(one.must_be_object({"type"}));
    }
  }
  return ok_status();
}

Result<Tokenizer> read_root(const JsonPlace& root) {
  RETURN_IF_ERROR(root.must_be_object({"version", "truncation", "padding", "added_tokens", "normalizer",
                                       "pre_tokenizer", "post_processor", "decoder", "model"}));
  const JsonPlace version = root.optional("version");
  if (!version.is_null() && *version.value != "1.0")
    return version.not_supported(fmt::format("the version {} is not known", version.excerpt()));
  for (const char* key : {"truncation", "padding"}) {
    if (!root.optional(key).is_null()) return root.optional(key).not_supported(fmt::format("{} is not supported", key));
  }
  TokenizerParts parts;
  Numbers numbers;
  bool byte_fallback = false;
  RETURN_IF_ERROR(read_model(root.optional("model"), parts, numbers, byte_fallback));
  const JsonPlace added = root.optional("added_tokens");
  if (!added.is_null()) {
    RETURN_IF_ERROR(added.must_be_array());
    std::set<std::string> seen;
    for (size_t at = 0; at < added.value->size(); ++at)
      RETURN_IF_ERROR(read_added_token(added.element(at), numbers, seen, parts));
  }
  RETURN_IF_ERROR(read_normalizer(root.optional("normalizer"), parts.normal_steps));
  RETURN_IF_ERROR(check_growth(root.optional("normalizer"), parts.normal_steps));
  const JsonPlace cuts = root.optional("pre_tokenizer"), decoder = root.optional("decoder");
  RETURN_IF_ERROR(byte_fallback ? read_cuts_of_characters(cuts, parts) : read_pre_tokenizers(cuts, parts.cuts));
  RETURN_IF_ERROR(read_post_processor(root.optional("post_processor"), parts));
  RETURN_IF_ERROR(byte_fallback ? read_decoder_of_characters(decoder, parts.drops_first_space) : read_decoder(decoder));
  return make_tokenizer(std::move(parts));
}

}  // namespace

Result<Tokenizer> parse_tokenizer_json(const std::string& content, const std::string& path) {
  ASSIGN_OR_RETURN(const json root, parse_json(content, path));
  Result<Tokenizer> tokenizer = read_root({&root, ""});
  if (!tokenizer.ok()) return in_file(path, std::move(tokenizer).error());
  return tokenizer;
}

Result<Tokenizer> read_tokenizer_json(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string content, read_file(path));
  return parse_tokenizer_json(content, path);
}

}  // namespace nlsplit::inline text
