// Blocks of ggml's types against PyPI's `gguf`: scripts/export/gguf_files.py made the file, which has for each type
// random blocks and, as a tensor of F32, what that package reads in them.
#include "graph/ggml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/elements.h"
#include "graph/gguf/gguf_file.h"
#include "testing/paths.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

TEST(Ggml, BlocksAreWhatGgufReadsInThem) {
  const GgufFile file = value_of(read_gguf(NLS_SOURCE_DIR "/tests/graph/gguf/blocks.gguf"));
  int types = 0;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.ends_with(".f32")) continue;
    const GgufTensor* expected = file.tensor(std::string(name) + ".f32");
    ASSERT_NE(expected, nullptr) << name;
    const std::string_view raw = file.mapped->bytes().substr(tensor.offset, tensor.bytes);
    const std::string values = dequantized(tensor.type, raw);
    ASSERT_EQ(values.size(), expected->bytes) << name;
    EXPECT_EQ(values, file.mapped->bytes().substr(expected->offset, expected->bytes)) << name;
    EXPECT_EQ(tensor.type, *ggml_type(static_cast<uint32_t>(tensor.type)));
    ++types;
  }
  EXPECT_EQ(types, 9);
}

// The element types of graphs that ggml has, too.
TEST(Ggml, GraphsReadTheSameInTheirOwn) {
  const GgufFile file = value_of(read_gguf(NLS_SOURCE_DIR "/tests/graph/gguf/blocks.gguf"));
  for (const auto& [name, type] :
       {std::pair("F16", DType::f16), {"BF16", DType::bf16}, {"Q8_0", DType::q8_0}, {"Q4_0", DType::q4_0}}) {
    const GgufTensor* tensor = file.tensor(name);
    ASSERT_NE(tensor, nullptr);
    const std::string_view raw = file.mapped->bytes().substr(tensor->offset, tensor->bytes);
    EXPECT_EQ(dequantized(tensor->type, raw), raw_of(DType::f32, std::span<const double>(reals_of(type, raw)))) << name;
    EXPECT_EQ(block_of(tensor->type), block_of(type));
    EXPECT_EQ(bytes_of_block(tensor->type), size_of(type, block_of(type)));
  }
}

TEST(Ggml, NamesTypesThatItDoesNotRead) {
  EXPECT_EQ(ggml_type(13), std::nullopt);
  EXPECT_EQ(ggml_name(13), "Q5_K");
  EXPECT_EQ(ggml_name(39), "MXFP4");
  EXPECT_EQ(ggml_name(5), "type 5");
  EXPECT_EQ(ggml_name(4000000000), "type 4000000000");
}

}  // namespace
}  // namespace nlsplit
