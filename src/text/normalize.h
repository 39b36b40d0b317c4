// What is done to a text before it is cut into words, one step after the other; files of tokenizers call this
// "normalizer".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/characters.h"

namespace nlsplit::inline text {

struct NormalStep {
  std::optional<NormalForm> form;
  std::string from, to;  // without a form: `to` instead of each `from`; in front of the text if `from` is empty
};

std::string normalized_by(std::string_view text, const std::vector<NormalStep>& steps);  // the text is UTF-8

// SentencePiece's mark of a space, U+2581.
inline constexpr std::string_view space_mark = "\xE2\x96\x81";
std::string with_spaces_for_marks(std::string_view text);

}  // namespace nlsplit::inline text
