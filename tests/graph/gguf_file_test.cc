// The GGUF reader: what is in a file, and what of it is refused.
#include "graph/gguf/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "graph/gguf_bytes.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

GgufBytes small_file() {
  GgufBytes file;
  file.text("general.architecture", "llama").integer("llama.block_count", 2).real("llama.rope.freq_base", 1e4f);
  file.tensor("a.weight", {32, 3}, 8, std::string(3 * 34, 'a')).tensor("b.weight", {5}, 0, std::string(20, 'b'));
  return file;
}

TEST(GgufFile, HasEveryKindOfValue) {
  GgufBytes bytes;
  bytes.value("u8", 0, little(uint8_t{200}))
      .value("i8", 1, little(int8_t{-3}))
      .value("u16", 2, little(uint16_t{60000}));
  bytes.value("i16", 3, little(int16_t{-7})).value("u32", 4, little(uint32_t{4000000000}));
  bytes.value("i32", 5, little(int32_t{-9})).value("f32", 6, little(0.5f)).value("yes", 7, "\x01");
  bytes.value("no", 7, std::string(1, '\0')).text("text", "Straße").value("u64", 10, little(~uint64_t{0}));
  bytes.value("i64", 11, little(int64_t{-11})).value("f64", 12, little(0.1));
  bytes.value("texts", 9, little(uint32_t{8}) + little(uint64_t{2}) + gguf_text("one") + gguf_text(""));
  bytes.value("whole", 9, little(uint32_t{5}) + little(uint64_t{2}) + little(int32_t{-1}) + little(int32_t{7}));
  bytes.value("reals", 9, little(uint32_t{6}) + little(uint64_t{1}) + little(1.5f));
  const GgufFile file = value_of(read_gguf(bytes.write("kinds.gguf")));
  EXPECT_EQ(file.integer("u8").value(), 200);
  EXPECT_EQ(file.integer("i8").value(), -3);
  EXPECT_EQ(file.integer("u16").value(), 60000);
  EXPECT_EQ(file.integer("i16").value(), -7);
  EXPECT_EQ(file.integer("u32").value(), 4000000000);
  EXPECT_EQ(file.integer("i32").value(), -9);
  EXPECT_EQ(file.integer("u64").value(), INT64_MAX) << "as much as there is";
  EXPECT_EQ(file.integer("i64").value(), -11);
  EXPECT_EQ(file.real("f32").value(), 0.5);
  EXPECT_EQ(file.real("f64").value(), 0.1);
  EXPECT_EQ(file.real("i16").value(), -7);
  EXPECT_TRUE(file.boolean("yes").value());
  EXPECT_FALSE(file.boolean("no").value());
  EXPECT_EQ(file.text("text").value(), "Straße");
  EXPECT_THAT(file.texts("texts").value(), ElementsAre("one", ""));
  EXPECT_THAT(file.numbers("whole").value(), ElementsAre(-1, 7));
  EXPECT_THAT(file.numbers("reals").value(), ElementsAre(1.5));
  EXPECT_EQ(file.metadata.size(), 16u);
  EXPECT_TRUE(file.tensors.empty());
}

TEST(GgufFile, NamesAKeyThatIsMissingOrOfAnotherKind) {
  const GgufFile file = value_of(read_gguf(small_file().write("small.gguf")));
  EXPECT_THAT(file.integer("llama.embedding_length").error().message,
              HasSubstr("small.gguf: llama.embedding_length: it is missing; it must be an integer"));
  EXPECT_THAT(file.integer("general.architecture").error().message,
              HasSubstr("general.architecture at offset 56: it is string; it must be an integer"));
  EXPECT_THAT(file.text("llama.block_count").error().message, HasSubstr("it is uint32; it must be a string"));
  EXPECT_THAT(file.integer("llama.rope.freq_base").error().message, HasSubstr("it is float32; it must be an integer"));
  EXPECT_THAT(file.boolean("llama.block_count").error().message, HasSubstr("it must be a bool"));
  EXPECT_THAT(file.texts("llama.block_count").error().message, HasSubstr("it must be an array of strings"));
  EXPECT_THAT(file.numbers("general.architecture").error().message, HasSubstr("it must be an array of numbers"));
  GgufBytes infinite;
  infinite.real("x", 1.0f / 0.0f);
  EXPECT_THAT(value_of(read_gguf(infinite.write("infinite.gguf"))).real("x").error().message, HasSubstr("it is inf"));
}

TEST(GgufFile, TensorsLieOneBehindTheOther) {
  for (const uint64_t alignment : {32, 64}) {
    GgufBytes bytes;
    bytes.alignment = alignment;
    if (alignment != 32) bytes.integer("general.alignment", static_cast<uint32_t>(alignment));
    bytes.tensor("a.weight", {32, 3}, 8, std::string(3 * 34, 'a')).tensor("b.weight", {5}, 0, std::string(20, 'b'));
    bytes.tensor("c", {}, 1, "cc");
    const GgufFile file = value_of(read_gguf(bytes.write("tensors.gguf")));
    ASSERT_EQ(file.tensors.size(), 3u);
    const GgufTensor &a = *file.tensor("a.weight"), &b = *file.tensor("b.weight");
    EXPECT_EQ(a.type, GgmlType::Q8_0);
    EXPECT_THAT(a.shape, ElementsAre(3, 32)) << "row-major";
    EXPECT_EQ(a.bytes, 3u * 34);
    EXPECT_EQ(a.offset % alignment, 0u);
    EXPECT_EQ(file.mapped->bytes().substr(a.offset, a.bytes), std::string(3 * 34, 'a'));
    EXPECT_EQ(file.mapped->bytes().substr(b.offset, b.bytes), std::string(20, 'b'));
    EXPECT_EQ(file.tensor("c")->shape, Shape());
    EXPECT_EQ(file.tensor("d"), nullptr);
  }
}

TEST(GgufFile, MayBeCutOffAmongItsTensorsBytesButNotBefore) {
  const GgufBytes bytes = small_file();
  const std::string all = bytes.bytes();
  for (size_t size = 0; size <= all.size(); ++size) {
    const auto file = read_gguf(write_gguf("cut.gguf", all.substr(0, size)));
    ASSERT_EQ(file.ok(), size >= bytes.header().size()) << size;
    EXPECT_THAT(file.ok() ? "cut.gguf" : file.error().message, HasSubstr("cut.gguf"));
  }
}

struct BadGguf {
  std::string what;
  std::function<void(GgufBytes&)> break_it;
  std::string message;
};

TEST(GgufFile, SaysWhatIsWrongAndWhere) {
  const std::vector<BadGguf> cases = {
      {"magic", [](GgufBytes& f) { f.magic = "GGML"; }, "the first bytes at offset 0: they are \"GGML\", not \"GGUF\""},
      {"version", [](GgufBytes& f) { f.version = 1; }, "the version at offset 4: it is 1; 2 and 3 are read"},
      {"byte order", [](GgufBytes& f) { f.version = 3 << 24; }, "the file is big-endian"},
      {"tensors", [](GgufBytes& f) { f.tensors = uint64_t{1} << 60; },
       "the count of tensors at offset 8: 1152921504606846976 of them, but the file ends"},
      {"values", [](GgufBytes& f) { f.values = ~uint64_t{0}; },
       "the count of values at offset 16: 18446744073709551615 of them"},
      {"one tensor more", [](GgufBytes& f) { f.tensors += 1; }, "tensor"},
      {"one value more", [](GgufBytes& f) { f.values += 1; }, "the name of tensor 0"},
      {"long key", [](GgufBytes& f) { f.values_bytes.replace(0, 8, little(~uint64_t{0})); },
       "the key of value 0 at offset 32: 18446744073709551615 bytes"},
      {"key twice", [](GgufBytes& f) { f.integer("llama.block_count", 3); },
       "key \"llama.block_count\" at offset 138 stands twice"},
      {"kind", [](GgufBytes& f) { f.value("x", 13, ""); },
       "the value of \"x\" at offset 147: there is no kind 13 of values"},
      {"arrays", [](GgufBytes& f) { f.value("x", 9, little(uint32_t{9}) + little(uint64_t{1})); },
       "the value of \"x\" at offset 151: an array of arrays"},
      {"array", [](GgufBytes& f) { f.value("x", 9, little(uint32_t{6}) + little(uint64_t{1} << 62)); },
       "4611686018427387904 of them"},
      {"array of texts",
       [](GgufBytes& f) { f.value("x", 9, little(uint32_t{8}) + little(uint64_t{1}) + little(uint64_t{1} << 40)); },
       "1099511627776 bytes"},
      {"odd name", [](GgufBytes& f) { f.value("x\n\x01\"", 99, ""); }, R"(the value of "x??\"" at offset)"},
      {"extents",
       [](GgufBytes& f) {
         f.info("c", {1, 1, 1, 1, 1}, 0, 160);
       },
       "tensor \"c\" at offset 235: 5 extents; at most 4"},
      {"no extent",
       [](GgufBytes& f) {
         f.info("c", {32, 0}, 0, 160);
       },
       "an extent of 0"},
      {"large extent", [](GgufBytes& f) { f.info("c", {~uint64_t{0}}, 0, 160); }, "an extent of 18446744073709551615"},
      {"too many elements",
       [](GgufBytes& f) {
         f.info("c", {uint64_t{1} << 30, uint64_t{1} << 30}, 0, 160);
       },
       "tensor \"c\""},
      {"type", [](GgufBytes& f) { f.info("c", {256}, 13, 160); },
       "its elements are Q5_K; those that are read are F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q4_K, Q6_K"},
      {"no type", [](GgufBytes& f) { f.info("c", {256}, 4, 160); }, "its elements are type 4"},
      {"blocks",
       [](GgufBytes& f) {
         f.info("c", {16, 16}, 12, 160);
       },
       "rows of 16 elements are not whole blocks of Q4_K, which have 256"},
      {"overlap", [](GgufBytes& f) { f.info("c", {8}, 0, 128); },
       "its bytes are at 128 after the header; the tensors before it end at 160"},
      {"far away", [](GgufBytes& f) { f.info("c", {8}, 0, uint64_t{1} << 63); },
       "its bytes are at 9223372036854775808 after the header"},
      {"huge",
       [](GgufBytes& f) {
         for (uint64_t i = 0, at = 160; i < 300; ++i, at += uint64_t{1} << 42)
           f.info("t" + std::to_string(i), {uint64_t{1} << 40}, 0, at);
       },
       "there are more than 2^50 bytes up to its end"},
      {"tensor twice", [](GgufBytes& f) { f.info("a.weight", {8}, 0, 160); },
       "tensor \"a.weight\" at offset 258: its name stands twice"},
      {"alignment", [](GgufBytes& f) { f.integer("general.alignment", 24); },
       "general.alignment at offset 167: it is 24, which is not a power of two"},
      {"no alignment", [](GgufBytes& f) { f.integer("general.alignment", 0); }, "it is 0, which is not a power of two"},
      {"alignment's kind", [](GgufBytes& f) { f.text("general.alignment", "32"); },
       "it is string; it must be an integer"},
  };
  for (const BadGguf& bad : cases) {
    GgufBytes file = small_file();
    bad.break_it(file);
    const auto read = read_gguf(file.write("bad.gguf"));
    ASSERT_FALSE(read.ok()) << bad.what;
    EXPECT_THAT(read.error().message, HasSubstr(bad.message)) << bad.what;
    EXPECT_THAT(read.error().message, HasSubstr("bad.gguf")) << bad.what;
    EXPECT_EQ(exit_code(read.error()), 2) << bad.what;
  }
  EXPECT_THAT(read_gguf("/nowhere/x.gguf").error().message, HasSubstr("/nowhere/x.gguf"));
}

}  // namespace
}  // namespace nlsplit
