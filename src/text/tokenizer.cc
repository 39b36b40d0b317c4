#include "text/tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace nlsplit::inline text {
namespace {

// What is encoded in one piece: a word, or its part up to a space where another one may begin.
size_t part_of(std::string_view word, const Tokenizer& tokenizer) {
  const bool each_space = tokenizer.marks && tokenizer.marks->cuts;
  if (!each_space && !tokenizer.bpe.parts_at_spaces) return word.size();
  for (size_t at = 1; at < word.size(); ++at) {
    if (word[at] == ' ' && (each_space || word[at - 1] != ' ')) return at;
  }
  return word.size();
}

Status encode_words(const Tokenizer& tokenizer, std::string_view text, bool is_first, BpeEncoder& encoder,
                    std::vector<TokenId>& tokens) {
  std::string spaced;
  if (tokenizer.marks) {
    const SpaceMarks::Front front = tokenizer.marks->front;
    const bool wanted = front == SpaceMarks::Front::piece || (front == SpaceMarks::Front::text && is_first);
    spaced = with_spaces_for_marks(text);
    if (wanted && !spaced.starts_with(' ')) spaced.insert(0, " ");
    text = spaced;
  }
  ASSIGN_OR_RETURN(const Words words, tokenizer.cutter.cut(text));
  size_t begin = 0;
  for (const size_t end : words.ends) {
    while (begin < end) {
      const std::string_view word = std::string_view(words.bytes).substr(begin, end - begin);
      const std::string_view part = word.substr(0, part_of(word, tokenizer));
      if (const auto byte = encoder.encode(part, tokens))
        return invalid_input(fmt::format("the vocabulary has no token for the byte 0x{:02X}, which is in '{}'", *byte,
                                         part.substr(0, 100)));
      begin += part.size();
    }
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
    // Decoded as the tokens of the vocabulary are, which matters if all its characters are of their alphabet.
    if (!entry.in_words) {
      entry.bytes =
          parts.marks ? with_spaces_for_marks(token.content) : bytes_of_spelling(token.content).value_or(token.content);
    }
    if (token.normalized) token.content = normalized_by(token.content, parts.normal_steps);
    (token.normalized ? after : before).push_back(std::move(token));
  }
  made.added_before = AddedTokenFinder(std::move(before));
  made.added_after = AddedTokenFinder(std::move(after));
  made.vocabulary = std::move(parts.vocabulary);
  made.normal_steps = std::move(parts.normal_steps);
  made.marks = parts.marks;
  made.drops_first_space = parts.drops_first_space;
  made.before = std::move(parts.before);
  made.after = std::move(parts.after);
  made.ends = std::move(parts.ends);
  ASSIGN_OR_RETURN(made.bpe, make_bpe(made.vocabulary, parts.merges, parts.ignore_merges,
                                      made.marks ? Symbols::characters : Symbols::bytes));
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
  bool is_first = true;
  for (const TextPiece& piece : tokenizer.added_before.split(text)) {
    if (piece.id >= 0) {
      tokens.push_back(piece.id);
      is_first = false;
      continue;
    }
    const std::string normal = normalized_by(piece.text, tokenizer.normal_steps);
    for (const TextPiece& inner : tokenizer.added_after.split(normal)) {
      if (inner.id >= 0) {
        tokens.push_back(inner.id);
      } else {
        RETURN_IF_ERROR(encode_words(tokenizer, inner.text, is_first, encoder, tokens));
      }
      is_first = false;
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
