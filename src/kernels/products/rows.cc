// Gemm and MatMul: what their kernels accept and need.
#include "kernels/rows.h"

namespace nlsplit::inline kernels {
namespace {

std::string refuse_gemm_packed(const ComputeDesc& desc) {
  return desc.is_weight(1) ? "" : "it packs its right operand at load, and this one is not constant";
}

std::string refuse_matmul_packed(const ComputeDesc& desc) {
  if (std::string why = refuse_gemm_packed(desc); !why.empty()) return why;
  return desc.inputs[1].shape.size() == 2 ? "" : "the right operand is not a matrix";
}

Bytes scratch_product(const ComputeDesc& desc, Isa, int workers) {
  return floats(saturating_product(workers, product_scratch_floats(product_of(desc), false)));
}

Bytes scratch_product_packed(const ComputeDesc& desc, Isa, int workers) {
  return floats(saturating_product(workers, product_scratch_floats(product_of(desc), true)));
}

Bytes packed_product(const ComputeDesc& desc, size_t i, Isa isa) {
  const Product p = product_of(desc);
  return i == 1 ? floats(vector_panels(p.k, p.n, isa)) : bytes(0);
}

}  // namespace

const KernelInfo rows::gemm_packed = {.what = "matrix product, the right operand packed into vector panels at load",
                                      .ops = computes<Op::Gemm>,
                                      .refuses = refuse_gemm_packed,
                                      .workspace = scratch_product_packed,
                                      .packed_bytes = packed_product,
                                      .exact_axes = exact::batch | exact::channels};

const KernelInfo rows::gemm = {.what = "matrix product of plain operands, packed block by block",
                               .ops = computes<Op::Gemm>,
                               .workspace = scratch_product,
                               .standing = last_resort,
                               .exact_axes = exact::batch | exact::channels};

const KernelInfo rows::matmul_packed = {
    .what = "product with one matrix for the whole batch, packed into vector panels at load",
    .ops = computes<Op::MatMul>,
    .refuses = refuse_matmul_packed,
    .workspace = scratch_product_packed,
    .packed_bytes = packed_product,
    .exact_axes = exact::all};

const KernelInfo rows::matmul = {.what = "batched matrix product of plain operands, packed block by block",
                                 .ops = computes<Op::MatMul>,
                                 .refuses = refuse_many_axes,
                                 .workspace = scratch_product,
                                 .standing = last_resort,
                                 .exact_axes = exact::all};

}  // namespace nlsplit::inline kernels
