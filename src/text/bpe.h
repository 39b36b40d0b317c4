// Byte-pair encoding of one word: the neighbours whose merge has the lowest rank are joined, the leftmost first, until
// no neighbours have a merge (Sennrich, Haddow, Birch, "Neural machine translation of rare words with subword units",
// ACL 2016).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "text/number_table.h"
#include "text/vocabulary.h"

namespace nlsplit::inline text {

// What a word is before the first merge. Of characters: one that has no token is its bytes.
enum class Symbols { bytes, characters };

struct Bpe {
  struct Ranked {
    int32_t rank = 0;
    TokenId whole = 0;
  };

  Symbols symbols = Symbols::bytes;
  std::array<TokenId, 256> byte_token{};  // -1: the vocabulary has no token of this byte
  NumberTable<TokenId> character_token;   // of 0 and a character
  // No token has a space behind anything else: a word is encoded in parts that begin with its spaces.
  bool parts_at_spaces = false;
  NumberTable<Ranked> merges;
  // Words that are one token, by their bytes. Whoever asks here first need not merge what ends as one token anyway.
  std::unordered_map<std::string_view, TokenId> whole_words;
};

// `vocabulary` must outlive the result. With `ignore_merges` a word that is a token is that token, whatever its merges
// would make of it.
Result<Bpe> make_bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges, bool ignore_merges,
                     Symbols symbols);

// Buffers that one encoding after the other uses.
class BpeEncoder {
 public:
  explicit BpeEncoder(const Bpe& bpe) : bpe_(&bpe) {}

  // Appends the tokens of a word. Answers the byte that no token stands for, if there is one.
  std::optional<unsigned char> encode(std::string_view word, std::vector<TokenId>& tokens);
  std::optional<unsigned char> merge(std::string_view word, std::vector<TokenId>& tokens);  // without whole_words

 private:
  struct Symbol {
    TokenId token = -1;
    int32_t before = -1, after = -1;  // neighbours; a symbol that was joined to the one before it has token -1
  };
  struct Candidate {
    int32_t rank, left;
    TokenId whole;
  };

  std::optional<unsigned char> add_symbols(std::string_view word);
  void offer(int32_t left);

  const Bpe* bpe_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace nlsplit::inline text
