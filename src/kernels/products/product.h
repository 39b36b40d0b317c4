// out = left × right for row-major `out`: the one matrix product under Gemm, MatMul and 1x1 convolutions.
// left's elements are the scalars of the register tiles, right's rows their vectors (kernels/products/microkernel.h),
// each taken in place, packed beforehand (kernels/layout.h has the forms), or packed block by block into the workspace,
// by whoever knows where it lies.
#pragma once

#include <cstdint>

#include "kernels/functions/epilogue.h"

namespace nlsplit::inline kernels {

struct Left {
  const float* data;
  int64_t row_stride = 0, k_stride = 0;  // plain
  bool packed = false;                   // scalar panels
};

// Packs rows k0 … k0 + k of columns [column, column + columns), at most a panel's, as that panel's rows into `to`. May
// write beyond the panel: less than widest_vector floats, which are written or not read afterwards.
struct PanelPacker {
  void (*pack)(const PanelPacker& self, int64_t column, int64_t columns, int64_t k0, int64_t k, float* to);
};

struct Right {
  const float* data;
  int64_t k_stride = 0, column_stride = 0;  // plain
  bool packed = false;                      // vector panels
  const PanelPacker* packer = nullptr;      // of a matrix that lies nowhere as such
};

// What becomes of a finished sum before it is stored: sum + row_bias[row] + column_bias[column], then the epilogue's
// head.
struct Finish {
  const float* row_bias = nullptr;
  const float* column_bias = nullptr;
  EpilogueHead head;  // its operand begins where `out` does
};

// workspace: product_left_floats, rounded up to widest_vector, unless left is packed or a single row of neighbouring
// elements; then product_right_floats unless right is packed, and widest_vector if it has a packer. A product of a
// piece of the rows has the workspace of all of them: `room_rows` is how many these are (fewer rows would take longer
// blocks of k, and more floats); 0: m.
void product(int64_t m, int64_t n, int64_t k, const Left& left, const Right& right, float* out, const Finish& finish,
             float* workspace, int64_t room_rows = 0);

// The same for columns [begin, end) alone; both are multiples of product_columns_step, but for the end of all of them.
// The bits are those of the whole: an element is one chain over k.
inline constexpr int64_t product_columns_step = 32;
void product_columns(int64_t begin, int64_t end, int64_t m, int64_t n, int64_t k, const Left& left, const Right& right,
                     float* out, const Finish& finish, float* workspace, int64_t room_rows = 0);

// The packed forms as a whole.
void pack_left(const Left& left, int64_t m, int64_t k, float* packed);
void pack_right(const Right& right, int64_t k, int64_t n, float* packed);

// A tensor of products: where its matrix number i begins, repeated along the batch axes it lacks or has once.
int64_t matrix_offset(const Shape& shape, const Shape& out, size_t out_batch_axes, size_t matrix_axes, int64_t i);

}  // namespace nlsplit::inline kernels
