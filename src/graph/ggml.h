// Weights as ggml stores them, in blocks of elements that share scales, and the numbers they stand for
// (https://github.com/ggml-org/ggml, ggml-common.h and ggml-quants.c).
//
//   const std::optional<GgmlType> type = ggml_type(12);       // Q4_K
//   std::string f32 = dequantized(GgmlType::Q4_K, raw);       // whole blocks
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "graph/graph.h"

namespace nlsplit::inline graph {

// By the numbers files have.
enum class GgmlType : uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q8_0 = 8,
  Q4_K = 12,
  Q6_K = 14,
  BF16 = 30
};

std::optional<GgmlType> ggml_type(uint32_t number);  // none: not one of these
std::string ggml_name(uint32_t number);              // of all that there are: "Q4_K"; "type 99" of what is none
std::string ggml_types();                            // "F32, F16, …"
DType dtype_of(GgmlType type);                       // the same elements in a graph
std::optional<GgmlType> ggml_type_of(DType type);    // none: ggml has none that are read here
int64_t block_of(GgmlType type);                     // elements that are stored together
int64_t bytes_of_block(GgmlType type);

// Row-major f32 bytes, with ggml's own roundings: at most one an element, since the products of scales and steps fit
// into a float (but for Q6_K, where the last product is the one that is rounded). `raw`: whole blocks.
std::string dequantized(GgmlType type, std::string_view raw);
void dequantize(GgmlType type, std::string_view raw, float* to);  // the same

}  // namespace nlsplit::inline graph
