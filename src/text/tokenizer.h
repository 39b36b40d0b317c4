// Text to tokens: added tokens are found, the text between is normalized and cut into words, each word is encoded by
// byte pairs. The same tokens, for the same file, as the packages `tokenizers` and `sentencepiece` of PyPI
// (docs/text.md says where not).
//
//   ASSIGN_OR_RETURN(const Tokenizer tokenizer, read_tokenizer_json("tokenizer.json"));
//   ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, encode(tokenizer, "Hello"));
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalize.h"
#include "text/vocabulary.h"
#include "text/words.h"

namespace nlsplit::inline text {

// Of vocabularies in SentencePiece's way: words are made of characters, and U+2581 is a space, in tokens and in texts.
struct SpaceMarks {
  enum class Front { none, text, piece };
  Front front = Front::none;  // what begins with a space: the text; each piece between added tokens
  bool cuts = false;          // each space begins a word
};

// What files say, in whatever format.
struct TokenizerParts {
  Vocabulary vocabulary;
  std::vector<Merge> merges;
  bool ignore_merges = false;  // a word that is a token is that token
  std::vector<AddedToken> added;
  std::vector<NormalStep> normal_steps;
  std::vector<CutStep> cuts;
  std::optional<SpaceMarks> marks;     // none: words are made of bytes
  bool drops_first_space = false;      // of what tokens are decoded to
  std::vector<TokenId> before, after;  // what is put around each text
  std::vector<TokenId> ends;           // a model that gives one of these has said all; none: the file does not say
};

struct Tokenizer {
  Vocabulary vocabulary;  // its texts are what `bpe` points to: it is not changed
  Bpe bpe;
  AddedTokenFinder added_before, added_after;  // the text is normalized
  std::vector<NormalStep> normal_steps;
  WordCutter cutter;
  std::optional<SpaceMarks> marks;
  bool drops_first_space = false;
  std::vector<TokenId> before, after, ends;
};

Result<Tokenizer> make_tokenizer(TokenizerParts parts);

enum class Around { with, without };  // the tokens that are put around a text

// Errors: the text is no UTF-8 (the byte is named), or has a byte that no token stands for.
Result<std::vector<TokenId>> encode(const Tokenizer& tokenizer, std::string_view text, Around around = Around::with);
// Of a text that a model goes on from: with what is put in front, without what is put behind, which would end it.
Result<std::vector<TokenId>> encode_beginning(const Tokenizer& tokenizer, std::string_view text);

}  // namespace nlsplit::inline text
