#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace nlsplit::inline text {
namespace {

std::string normalized_by(std::string_view text, const std::vector<NormalForm>& forms) {
  std::string made(text);
  // ASCII is all forms of itself.
  if (std::all_of(made.begin(), made.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; })) return made;
  for (const NormalForm form : forms) made = normalized(made, form);
  return made;
}

Status encode_words(const Tokenizer& tokenizer, std::string_view text, BpeEncoder& encoder,
                    std::vector<TokenId>& tokens) {
  ASSIGN_OR_RETURN(const Words words, tokenizer.cutter.cut(text));
  size_t begin = 0;
  for (const size_t end : words.ends) {
    const std::string_view word = std::string_view(words.bytes).substr(begin, end - begin);
    if (const auto byte = encoder.encode(word, tokens))
      return invalid_input(fmt::format("the vocabulary has no token for the byte 0x{:02X}, which is in '{}'", *byte,
                                       word.substr(0, 100)));
    begin = end;
  }
  return ok_status();
}

}  // namespace

Result<Tokenizer> make_tokenizer(TokenizerParts parts) {
  Tokenizer made;
  std::vector<AddedToken> before, after;
  for (AddedToken& token : parts.added) {
    VocabularyToken& entry = parts.vocabulary[static_cast<size_t>(token.id)];
    entry.kind = token.special ? TokenKind::special : TokenKind::added;
    if (token.normalized) token.content = normalized_by(token.content, parts.normal_forms);
    // Decoded as the tokens of the vocabulary are, which matters if all its characters are of their alphabet.
    if (!entry.in_words) entry.bytes = bytes_of_spelling(token.content).value_or(token.content);
    (token.normalized ? after : before).push_back(std::move(token));
  }
  made.added_before = AddedTokenFinder(std::move(before));
  made.added_after = AddedTokenFinder(std::move(after));
  made.vocabulary = std::move(parts.vocabulary);
  made.normal_forms = std::move(parts.normal_forms);
  made.before = std::move(parts.before);
  made.after = std::move(parts.after);
  made.ends = std::move(parts.ends);
  ASSIGN_OR_RETURN(made.bpe, make_bpe(made.vocabulary, parts.merges, parts.ignore_merges));
  ASSIGN_OR_RETURN(made.cutter, make_word_cutter(parts.cuts));
  return made;
}

Result<std::vector<TokenId>> encode(const Tokenizer& tokenizer, std::string_view text, Around around) {
  if (const size_t wrong = first_invalid_utf8(text); wrong < text.size())
    return invalid_input(
        fmt::format("byte {} of the text, 0x{:02X}, is no UTF-8", wrong + 1, static_cast<unsigned char>(text[wrong])));
  std::vector<TokenId> tokens;
  if (around == Around::with) tokens = tokenizer.before;
  BpeEncoder encoder(tokenizer.bpe);
  for (const TextPiece& piece : tokenizer.added_before.split(text)) {
    if (piece.id >= 0) {
      tokens.push_back(piece.id);
      continue;
    }
    const std::string normal = normalized_by(piece.text, tokenizer.normal_forms);
    for (const TextPiece& inner : tokenizer.added_after.split(normal)) {
      if (inner.id >= 0) {
        tokens.push_back(inner.id);
      } else {
        RETURN_IF_ERROR(encode_words(tokenizer, inner.text, encoder, tokens));
      }
    }
  }
  if (around == Around::with) tokens.insert(tokens.end(), tokenizer.after.begin(), tokenizer.after.end());
  return tokens;
}

Result<std::vector<TokenId>> encode_beginning(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> tokens = tokenizer.before;
  ASSIGN_OR_RETURN(const std::vector<TokenId> words, encode(tokenizer, text, Around::without));
  tokens.insert(tokens.end(), words.begin(), words.end());
  return tokens;
}

}  // namespace nlsplit::inline text
