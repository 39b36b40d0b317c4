// Tokens and their numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nlsplit::inline text {

using TokenId = int32_t;

// No vocabulary in use has a tenth of this; numbers in files are held against it before anything is allocated.
inline constexpr TokenId most_tokens = 1 << 22;

enum class TokenKind : uint8_t {
  absent,    // the number is not used
  ordinary,  // words are made of it
  added,     // found in the text before it is cut into words
  special,   // added, and no part of the text that a user sees
};

struct VocabularyToken {
  std::string bytes;  // what it is decoded to
  TokenKind kind = TokenKind::absent;
  bool in_words = false;  // it may be a part of a word (a special token of the file's vocabulary may also be that)
  bool is_byte = false;   // one byte of a character that has no token of its own
};

using Vocabulary = std::vector<VocabularyToken>;  // by number

// Two neighbours in a word and what they become. Those of a lower rank go first.
struct Merge {
  TokenId left = 0, right = 0, whole = 0;
  int32_t rank = 0;
};

}  // namespace nlsplit::inline text
