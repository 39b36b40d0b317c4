// Cuts text into the words that are encoded one by one; files of tokenizers call this "pre_tokenizer". The patterns are
// regular expressions of these files; ICU's engine matches them with ICU's tables of characters.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline text {

// What happens with what a pattern finds.
enum class Found {
  word,     // it is a word, and what lies between is one too
  removed,  // what lies between is a word
  kept,     // it is a word, what lies between is removed
  end,      // it ends the word before it
};

// Cuts each word of the step before.
struct CutStep {
  bool space_in_front = false;  // instead of cutting: words that begin with no space get one
  std::string pattern;
  bool literal = false;  // the pattern is a text, no regular expression
  Found found = Found::word;
};

// All words one after the other.
struct Words {
  std::string bytes;
  std::vector<size_t> ends;
};

class WordCutter {
 public:
  WordCutter();  // the whole text is a word
  WordCutter(WordCutter&&) noexcept;
  WordCutter& operator=(WordCutter&&) noexcept;
  ~WordCutter();

  Result<Words> cut(std::string_view text) const;  // the text is UTF-8

 private:
  friend Result<WordCutter> make_word_cutter(const std::vector<CutStep>& steps);
  struct Step;
  std::vector<Step> steps_;
};

// Errors: a pattern that is wrong, or that Oniguruma, for which these files are written, may read in another way.
Result<WordCutter> make_word_cutter(const std::vector<CutStep>& steps);

}  // namespace nlsplit::inline text
