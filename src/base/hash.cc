#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace nlsplit {

uint64_t hash_bytes(const void* data, size_t size, uint64_t seed) { return XXH3_64bits_withSeed(data, size, seed); }

std::string hex16(uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace nlsplit
