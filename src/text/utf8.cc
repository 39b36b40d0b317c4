#include "text/utf8.h"

#include <algorithm>

namespace nlsplit::inline text {

Utf8Step utf8_step(std::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {first, 1, true, false};
  const size_t size = first >= 0xC2 && first <= 0xDF   ? 2
                      : first >= 0xE0 && first <= 0xEF ? 3
                      : first >= 0xF0 && first <= 0xF4 ? 4
                                                       : 1;
  if (size == 1) return {0xFFFD, 1, false, false};
  char32_t character = first & (0x7Fu >> size);
  for (size_t at = 1; at < size; ++at) {
    if (at == text.size()) return {0xFFFD, at, false, true};
    // The second byte keeps out what has a shorter form, surrogates, and what lies above U+10FFFF.
    const unsigned low = at > 1 ? 0x80u : first == 0xE0 ? 0xA0u : first == 0xF0 ? 0x90u : 0x80u;
    const unsigned high = at > 1 ? 0xBFu : first == 0xED ? 0x9Fu : first == 0xF4 ? 0x8Fu : 0xBFu;
    if (byte(at) < low || byte(at) > high) return {0xFFFD, at, false, false};
    character = character << 6 | (byte(at) & 0x3Fu);
  }
  return {character, size, true, false};
}

void append_utf8(std::string& text, char32_t character) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (character < 0x80) return add(character);
  if (character < 0x800) {
    add(0xC0 | character >> 6);
  } else if (character < 0x10000) {
    add(0xE0 | character >> 12);
    add(0x80 | (character >> 6 & 0x3F));
  } else {
    add(0xF0 | character >> 18);
    add(0x80 | (character >> 12 & 0x3F));
    add(0x80 | (character >> 6 & 0x3F));
  }
  add(0x80 | (character & 0x3F));
}

size_t first_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (!step.valid) return at;
    at += step.size;
  }
  return text.size();
}

}  // namespace nlsplit::inline text
