#include "base/hash.h"

#include <gtest/gtest.h>

namespace nlsplit {
namespace {

// Fingerprints are kept in files, so they may never change. The value for no bytes is in the XXH3 specification.
TEST(Hash, IsXxh3) {
  EXPECT_EQ(hash_text(""), 0x2d06800538d394c2u);
  EXPECT_EQ(hash_bytes(nullptr, 0), 0x2d06800538d394c2u);
}

TEST(Hash, DependsOnContentAndSeed) {
  EXPECT_EQ(hash_text("conv1"), hash_bytes("conv1", 5));
  EXPECT_NE(hash_text("conv1"), hash_text("conv2"));
  EXPECT_NE(hash_text("conv1", 1), hash_text("conv1", 2));
}

TEST(Hash, HexHasSixteenDigits) {
  EXPECT_EQ(hex16(0), "0000000000000000");
  EXPECT_EQ(hex16(0xABCDEF), "0000000000abcdef");
  EXPECT_EQ(hex16(~uint64_t{0}), "ffffffffffffffff");
}

// Checksums stand in saved folders. The value for no bytes is in the XXH3 specification.
TEST(Checksum, IsXxh3Of128Bits) {
  EXPECT_EQ(to_string(checksum_of("")), "99aa06d3014798d86001c324468d497f");
  std::string bytes(1000, 'w');
  const Checksum before = checksum_of(bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); bit += 37) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(checksum_of(bytes), before) << bit;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  }
}

}  // namespace
}  // namespace nlsplit
