// Content hashes (XXH3): 64 bits name weights and Programs, 128 bits are the checksums of weights. Not cryptographic.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nlsplit::inline base {

uint64_t hash_bytes(const void* data, size_t size, uint64_t seed = 0);
inline uint64_t hash_text(std::string_view text, uint64_t seed = 0) {
  return hash_bytes(text.data(), text.size(), seed);
}
std::string hex16(uint64_t value);  // 16 digits, lower case

struct Checksum {
  uint64_t high = 0, low = 0;
  friend bool operator==(const Checksum&, const Checksum&) = default;
};
Checksum checksum_of(std::string_view bytes);
std::string to_string(const Checksum& checksum);  // 32 digits, lower case, as `xxh128sum` prints it

}  // namespace nlsplit::inline base
