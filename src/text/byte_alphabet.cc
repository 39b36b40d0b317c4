#include "text/byte_alphabet.h"

#include <array>
#include <charconv>
#include <cstdint>

#include "text/utf8.h"

namespace nlsplit::inline text {
namespace {

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int, 512> byte{};  // by character, -1: none
};

Alphabet make_alphabet() {
  Alphabet made;
  made.byte.fill(-1);
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    made.character[byte] = printable ? byte : next++;
    made.byte[made.character[byte]] = static_cast<int>(byte);
  }
  return made;
}

const Alphabet alphabet = make_alphabet();

}  // namespace

std::optional<std::string> bytes_of_spelling(std::string_view spelled) {
  std::string bytes;
  for (size_t at = 0; at < spelled.size();) {
    const Utf8Step step = utf8_step(spelled.substr(at));
    if (!step.valid || step.character >= alphabet.byte.size() || alphabet.byte[step.character] < 0) return std::nullopt;
    bytes += static_cast<char>(alphabet.byte[step.character]);
    at += step.size;
  }
  return bytes;
}

std::string spelling_of_bytes(std::string_view bytes) {
  std::string spelled;
  for (const char byte : bytes) append_utf8(spelled, alphabet.character[static_cast<unsigned char>(byte)]);
  return spelled;
}

std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(static_cast<unsigned char>(byte));
}

}  // namespace nlsplit::inline text
