#include "graph/onnx/onnx_types.h"

namespace nlsplit::inline graph {
namespace {

struct TypeNumber {
  DType type;
  int32_t number;
};
constexpr TypeNumber type_numbers[] = {{DType::f32, 1},  {DType::u8, 2},   {DType::i8, 3},   {DType::u16, 4},
                                       {DType::i16, 5},  {DType::i32, 6},  {DType::i64, 7},  {DType::boolean, 9},
                                       {DType::f16, 10}, {DType::f64, 11}, {DType::u32, 12}, {DType::u64, 13},
                                       {DType::bf16, 16}};

}  // namespace

std::optional<DType> dtype_of_onnx(int64_t number) {
  for (const TypeNumber& row : type_numbers) {
    if (row.number == number) return row.type;
  }
  return std::nullopt;
}

int32_t onnx_type_of(DType type) {
  for (const TypeNumber& row : type_numbers) {
    if (row.type == type) return row.number;
  }
  CHECK(false, "every element type has its number");
}

}  // namespace nlsplit::inline graph
