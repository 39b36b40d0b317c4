// UTF-8, one character at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nlsplit::inline text {

// What begins at the front of a text. `size` bytes belong together: a character or, if it is none, its longest correct
// beginning (at least one byte), for which one U+FFFD stands, as Unicode recommends.
struct Utf8Step {
  char32_t character = 0xFFFD;
  size_t size = 0;
  bool valid = false;
  bool incomplete = false;  // the text ends within a character that is correct so far
};
Utf8Step utf8_step(std::string_view text);  // text is not empty

void append_utf8(std::string& text, char32_t character);

// Where the first byte is that belongs to no character; the size of the text if it is all UTF-8.
size_t first_invalid_utf8(std::string_view text);

}  // namespace nlsplit::inline text
