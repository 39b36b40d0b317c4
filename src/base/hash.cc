#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace nlsplit::inline base {

uint64_t hash_bytes(const void* data, size_t size, uint64_t seed) { return XXH3_64bits_withSeed(data, size, seed); }

std::string hex16(uint64_t value) { return fmt::format("{:016x}", value); }

Checksum checksum_of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

std::string to_string(const Checksum& checksum) { return hex16(checksum.high) + hex16(checksum.low); }

}  // namespace nlsplit::inline base
