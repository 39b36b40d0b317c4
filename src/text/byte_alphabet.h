// The alphabet of byte-level vocabularies: each of the 256 bytes is spelled as a printable character, so that files can
// hold tokens that are no text of their own. Printable Latin-1 stands for itself, the others are U+0100 and on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nlsplit::inline text {

// "Ġa" is " a"; nothing if a character is none of the alphabet, or the text is no UTF-8.
std::optional<std::string> bytes_of_spelling(std::string_view spelled);
std::string spelling_of_bytes(std::string_view bytes);

// SentencePiece's spelling of a byte, for characters that have no token: "<0x0A>". Nothing if it is none.
std::optional<char> fallback_byte(std::string_view token);

}  // namespace nlsplit::inline text
