// Gemm, MatMul and Linear: what their kernels accept and need.
#include "kernels/rows.h"

#include <fmt/format.h>

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

bool all_floats_but_weights(const ComputeDesc& desc) {
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    if (i != 1 && desc.inputs[i].dtype != DType::f32) return false;
  }
  return desc.outputs[0].dtype == DType::f32;
}

std::string refuse_linear_blocks(const ComputeDesc& desc) {
  if (!is_scaled(desc.inputs[1].dtype)) return fmt::format("elements of {} share no scale", to_string(desc.inputs[1]));
  return all_floats_but_weights(desc) ? "" : "what is not weights is not f32";
}

std::string refuse_linear_bf16(const ComputeDesc& desc) {
  if (desc.inputs[1].dtype != DType::bf16) return fmt::format("{} is not bf16", to_string(desc.inputs[1]));
  return all_floats_but_weights(desc) ? "" : "what is not weights is not f32";
}

std::string refuse_linear(const ComputeDesc& desc) {
  const DType weights = desc.inputs[1].dtype;
  if (weights != DType::f32 && weights != DType::f16)
    return fmt::format("{} is not f32 or f16", to_string(desc.inputs[1]));
  return all_floats_but_weights(desc) ? "" : "what is not weights is not f32";
}

std::string refuse_experts(const ComputeDesc& desc) {
  for (const size_t i : {0, 2}) {
    if (desc.inputs[i].dtype != DType::f32) return fmt::format("{} is not f32", to_string(desc.inputs[i]));
  }
  for (size_t i = 3; i < 6; ++i) {
    const DType weights = desc.inputs[i].dtype;
    if (weights != DType::f32 && !is_half(weights) && !is_scaled(weights))
      return fmt::format("{} is not f32, f16, bf16 or blocks", to_string(desc.inputs[i]));
  }
  return {};
}

Bytes scratch_linear_blocks(const ComputeDesc& desc, Isa isa, int workers) {
  const Linear linear = linear_of(desc);
  const int64_t panels = linear.has_panels(isa) ? saturating_product(workers, linear_panel_bytes(linear.k)) : 0;
  return bytes(
      saturating_sum(saturating_product(linear.m, linear.x_bytes(isa, desc.inputs[1].dtype == DType::q6_k)), panels));
}

Bytes scratch_linear_bf16(const ComputeDesc& desc, Isa, int) {
  const Linear linear = linear_of(desc);
  return bytes(saturating_product(linear.m, linear.pair_bytes()));
}

Bytes scratch_experts(const ComputeDesc& desc, Isa isa, int workers) {
  const ExpertsSizes sizes = experts_of(desc);
  const auto part = [](int64_t bytes) { return saturating_round_up(bytes, ExpertsSizes::alignment); };
  int64_t linear = 0;
  for (size_t i = 3; i < 6; ++i) {
    const ComputeDesc one = linear_of_experts(desc, i, sizes.rows);
    if (is_scaled(desc.inputs[i].dtype))
      linear = std::max(linear, scratch_linear_blocks(one, isa, workers).value());
    else if (desc.inputs[i].dtype == DType::bf16)
      linear = std::max(linear, scratch_linear_bf16(one, isa, workers).value());
  }
  return bytes(saturating_sum(part(sizes.begin_bytes()), part(sizes.place_bytes()),
                              saturating_product(2, part(sizes.row_bytes())),
                              saturating_product(2, part(sizes.inner_bytes())), linear));
}

std::string refuse_other_halves(const ComputeDesc& desc) {
  return desc.outputs[0].dtype == DType::bf16 ? "" : fmt::format("{} is not bf16", to_string(desc.outputs[0]));
}

std::string refuse_product_bf16(const ComputeDesc& desc) {
  if (std::string why = refuse_other_halves(desc); !why.empty()) return why;
  return refuse_matmul_packed(desc);
}

std::string refuse_gemm_bf16_plain(const ComputeDesc& desc) {
  if (std::string why = refuse_other_halves(desc); !why.empty()) return why;
  if (attr_float(desc.attrs, "alpha") != 1) return "the product is scaled";
  if (desc.own_inputs() < 3) return {};
  const Shape& c = desc.inputs[2].shape;
  const bool is_row = !c.empty() && c.back() == product_of(desc).n && (c.size() < 2 || c[0] == 1);
  return is_row && attr_float(desc.attrs, "beta") == 1 ? "" : "what is added is not a row";
}

std::string refuse_gemm_bf16(const ComputeDesc& desc) {
  if (std::string why = refuse_product_bf16(desc); !why.empty()) return why;
  if (attr_int(desc.attrs, "transA") != 0) return "the left operand is transposed";
  return refuse_gemm_bf16_plain(desc);
}

std::string refuse_matmul_bf16_plain(const ComputeDesc& desc) {
  if (std::string why = refuse_other_halves(desc); !why.empty()) return why;
  if (desc.inputs[0].shape.size() < 2 || desc.inputs[1].shape.size() < 2) return "an operand is a vector";
  return refuse_many_axes(desc);
}

Bytes scratch_product_bf16(const ComputeDesc& desc, Isa isa, int workers) {
  return floats(saturating_product(workers, pair_scratch_floats(product_of(desc), isa)));
}

// Each of several products is one worker's, with its own panels.
Bytes scratch_product_bf16_plain(const ComputeDesc& desc, Isa isa, int workers) {
  const Product p = product_of(desc);
  const int64_t panels = saturating_product(p.batch == 1 ? 1 : workers, pair_panel_floats(p, isa));
  return floats(saturating_sum(saturating_product(workers, pair_scratch_floats(p, isa)), panels));
}

Bytes packed_product_bf16(const ComputeDesc& desc, size_t i, Isa isa) {
  const Product p = product_of(desc);
  return i == 1 ? floats(vector_panels(pairs_of(p.k), p.n, isa)) : bytes(0);
}

}  // namespace

const KernelInfo rows::gemm_bf16 = {
    .what = "matrix product of bf16, pair by pair, the right operand packed into vector panels of pairs at load",
    .ops = computes<Op::Gemm>,
    .refuses = refuse_gemm_bf16,
    .workspace = scratch_product_bf16,
    .packed_bytes = packed_product_bf16,
    .halves = true,
    .exact_axes = exact::batch | exact::channels};

const KernelInfo rows::matmul_bf16 = {
    .what = "product of bf16 with one matrix for the whole batch, pair by pair, packed into vector panels at load",
    .ops = computes<Op::MatMul>,
    .refuses = refuse_product_bf16,
    .workspace = scratch_product_bf16,
    .packed_bytes = packed_product_bf16,
    .halves = true,
    .exact_axes = exact::all};

const KernelInfo rows::gemm_bf16_plain = {
    .what = "matrix product of plain operands of bf16, pair by pair, the right one packed each time",
    .ops = computes<Op::Gemm>,
    .refuses = refuse_gemm_bf16_plain,
    .workspace = scratch_product_bf16_plain,
    .halves = true,
    .exact_axes = exact::batch | exact::channels};

const KernelInfo rows::matmul_bf16_plain = {
    .what = "batched product of plain operands of bf16, pair by pair, the right one packed each time",
    .ops = computes<Op::MatMul>,
    .refuses = refuse_matmul_bf16_plain,
    .workspace = scratch_product_bf16_plain,
    .halves = true,
    .exact_axes = exact::all};

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

const KernelInfo rows::linear_blocks = {
    .what = "rows by rows of weights that share scales, which are read as they are; rows become blocks of bytes",
    .ops = computes<Op::Linear>,
    .refuses = refuse_linear_blocks,
    .workspace = scratch_linear_blocks,
    .any_type = true,
    .scaled = true,
    .exact_axes = exact::all};

const KernelInfo rows::linear_bf16 = {
    .what = "rows by rows of weights in bf16, which are read as they are, pair by pair; rows are rounded to bf16",
    .ops = computes<Op::Linear>,
    .refuses = refuse_linear_bf16,
    .workspace = scratch_linear_bf16,
    .any_type = true,
    .exact_axes = exact::all};

const KernelInfo rows::linear = {.what = "rows by rows of weights in f32 or f16, which are read as they are",
                                 .ops = computes<Op::Linear>,
                                 .refuses = refuse_linear,
                                 .any_type = true,
                                 .exact_axes = exact::all};

const KernelInfo rows::experts = {
    .what = "expert after expert, the rows that chose it by its weights in the kernels of Linear",
    .ops = computes<Op::Experts>,
    .refuses = refuse_experts,
    .workspace = scratch_experts,
    .any_type = true,
    .scaled = true,
    .exact_axes = exact::batch | exact::tokens};

}  // namespace nlsplit::inline kernels
