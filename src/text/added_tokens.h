// Tokens that are found in a text before it is cut into words: marks of a chat, the end of a text, and what was added
// to a finished vocabulary.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/number_table.h"
#include "text/vocabulary.h"

namespace nlsplit::inline text {

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool special = false;
  bool normalized = false;                           // looked for after the text was normalized, not before
  bool strips_before = false, strips_after = false;  // takes the white space on that side along
};

// A piece of a text: an added token, or (-1) what lies between.
struct TextPiece {
  std::string_view text;
  TokenId id = -1;
};

class AddedTokenFinder {
 public:
  explicit AddedTokenFinder(std::vector<AddedToken> tokens = {});

  // The leftmost, of several the longest, then on behind it. Pieces are never empty.
  std::vector<TextPiece> split(std::string_view text) const;

 private:
  std::vector<AddedToken> tokens_;
  NumberTable<uint32_t> next_;  // of a node and a byte: the node behind it; node 0 is the start
  std::vector<int> token_at_;   // by node: what ends there, -1 nothing
  int longest_at(std::string_view text) const;
};

}  // namespace nlsplit::inline text
