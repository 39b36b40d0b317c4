// Reads a text line by line and token by token, and knows where it is: errors come with file:line:column and the line.
//
//   TextReader in(text, "mine.nls");
//   while (in.next_line()) {
//     if (in.accept("device")) { ASSIGN_OR_RETURN(std::string_view name, in.word("a device name")); … }
//   }
//
// Blank lines and "#" comments are skipped by next_line(); a "#" inside a quoted string is not a comment.
// A token is a word (letters, digits, and any of _ . / : % + - @ $), a quoted string, or one other character.
// Columns count bytes. At the end of the text an error has the last line's number and no column.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nlsplit::inline base {

class TextReader {
 public:
  // The text must outlive the reader; `file` is for messages only.
  TextReader(std::string_view text, std::string file);

  bool next_line();                  // moves to the next line with something on it; false at the end
  void push_back_line();             // the next next_line() gives this line again
  int indent() const;                // leading spaces of the current line
  bool at_end_of_line();             // nothing but white space is left
  std::string_view peek();           // the next token, empty at the end of the line
  std::string_view comment() const;  // the current line's comment without "# ", empty if none

  bool accept(std::string_view token);  // takes the next token if it is this one
  Status expect(std::string_view token);
  Result<std::string_view> word(std::string_view what);  // any word token; `what` is for the message
  Result<std::string> quoted(std::string_view what);     // "text" with \" \\ \n escapes
  Result<int64_t> integer(std::string_view what);        // a decimal integer, maybe negative
  Result<uint64_t> hex(std::string_view what);           // 1 to 16 hexadecimal digits
  Result<double> number(std::string_view what);          // also inf and -inf (what shortest() writes), never nan
  Status end_of_line();                                  // error if anything is left

  Error error(std::string message) const;  // at the last token taken or looked at

 private:
  void skip_space();
  size_t token_end(size_t from) const;

  std::string_view text_;
  std::string file_;
  size_t next_start_ = 0;  // where the next line begins
  std::string_view line_;  // the current line without its comment
  std::string_view comment_;
  int number_ = 0;
  size_t at_ = 0;        // position in line_
  size_t token_at_ = 0;  // where the last token began
  bool pushed_back_ = false;
};

// "text" with the escapes TextReader::quoted reads.
std::string quote(std::string_view text);

// The shortest decimal text that reads back to the same double.
std::string shortest(double value);

// Edit distance at most 2: for "did you mean" hints. Empty if nothing is near.
template <class Range>
std::string nearest(std::string_view word, const Range& candidates);
size_t edit_distance(std::string_view a, std::string_view b);

template <class Range>
std::string nearest(std::string_view word, const Range& candidates) {
  std::string best;
  size_t best_distance = 3;
  for (const auto& candidate : candidates) {
    const std::string_view other(candidate);
    const size_t longer = std::max(word.size(), other.size()), shorter = std::min(word.size(), other.size());
    if (longer - shorter >= best_distance) continue;  // what a file calls a word may be long
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance && distance < word.size()) {
      best_distance = distance;
      best = std::string(candidate);
    }
  }
  return best;
}

}  // namespace nlsplit::inline base
