// 64-bit content hashes (XXH3): ids of weights, fingerprints of Programs. Not cryptographic.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nlsplit {

uint64_t hash_bytes(const void* data, size_t size, uint64_t seed = 0);
inline uint64_t hash_text(std::string_view text, uint64_t seed = 0) {
  return hash_bytes(text.data(), text.size(), seed);
}
std::string hex16(uint64_t value);  // 16 digits, lower case

}  // namespace nlsplit
