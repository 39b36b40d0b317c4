// Gemm and MatMul of bfloat16, with the right operand packed at load or plain.
#include "kernels/functions/bf16_epilogue.h"
#include "kernels/products/pair_product.h"
#include "kernels/products/product.h"

namespace nlsplit::inline kernels {
namespace {

struct ProductEnding {
  const Bf16Epilogue& epilogue;
  const uint16_t* bias;  // of all columns; nullptr: none
  int64_t n;
  int64_t begin = 0;  // of the result's elements: where this product's are

  Bf16Tile tile_of(const PairSums& sums) const {
    return {sums.values, sums.rows, sums.floats, sums.columns, begin + sums.row * n + sums.column, n};
  }
  void fetch_ahead(const PairSums& sums) const { epilogue.fetch_ahead(tile_of(sums)); }
  void operator()(const PairSums& sums) const {
    Bf16Tile tile = tile_of(sums);
    alignas(64) float row[tile_vectors * width];
    if (bias != nullptr) {
      for (int64_t c = 0; c < sums.columns; c += width)
        store(row + c, load_bf16_part(bias + sums.column + c, std::min<int64_t>(width, sums.columns - c)));
      tile.bias = row;
    }
    epilogue.apply(tile);
  }
};

const uint16_t* halves(const KernelCall& call, size_t i) { return static_cast<const uint16_t*>(call.inputs[i]); }
const uint16_t* bias_of(const KernelCall& call) { return call.desc->own_inputs() > 2 ? halves(call, 2) : nullptr; }

PairLeft left_of(const ComputeDesc& desc, const uint16_t* a, const Product& p) {
  const bool turned = desc.op == Op::Gemm && attr_int(desc.attrs, "transA") != 0;
  return {a, p.k, turned ? p.m : 0};
}

PairRight right_of(const ComputeDesc& desc, const uint16_t* b, const Product& p) {
  const bool turned = desc.op == Op::Gemm && attr_int(desc.attrs, "transB") != 0;
  return turned ? PairRight{b, 1, p.k} : PairRight{b, p.n, 1};
}

void run_product_bf16(const KernelCall& call) {
  const Product p = product_of(*call.desc);
  const Bf16Epilogue epilogue(call);
  shared_pair_product(call, p, left_of(*call.desc, halves(call, 0), p), input(call, 1), workspace(call),
                      ProductEnding{epilogue, bias_of(call), p.n});
}

void pack_gemm_bf16(const ComputeDesc& desc, size_t, const void* raw, void* packed) {
  const Product p = product_of(desc);
  pack_pair_panels(right_of(desc, static_cast<const uint16_t*>(raw), p), p.k, p.n, static_cast<float*>(packed));
}

// By all workers, panel by panel.
void pack_together(const KernelCall& call, const PairRight& right, const Product& p, float* packed) {
  constexpr int64_t panel = tile_vectors * width;
  parallel_for_workers(call, (p.n + panel - 1) / panel, [&](int64_t i, int) {
    const int64_t column = i * panel;
    const PairRight part{right.data + column * right.column_stride, right.k_stride, right.column_stride};
    pack_pair_panels(part, p.k, std::min(panel, p.n - column), packed + column * pairs_of(p.k));
  });
}

void run_product_bf16_plain(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Product p = product_of(desc);
  const Bf16Epilogue epilogue(call);
  const int64_t own = pair_scratch_floats(p, level);
  float* const panels = workspace(call) + std::max(call.crew.workers, 1) * own;
  if (p.batch == 1) {
    pack_together(call, right_of(desc, halves(call, 1), p), p, panels);
    return shared_pair_product(call, p, left_of(desc, halves(call, 0), p), panels, workspace(call),
                               ProductEnding{epilogue, bias_of(call), p.n});
  }
  const Shape &a = desc.inputs[0].shape, &b = desc.inputs[1].shape, &result = desc.outputs[0].shape;
  const size_t batch_axes = b.size() <= 2 ? 0 : result.size() - 2;
  parallel_for_workers(call, p.batch, [&](int64_t i, int worker) {
    float* const packed = panels + worker * pair_panel_floats(p, level);
    pack_pair_panels({halves(call, 1) + matrix_offset(b, result, batch_axes, 2, i), p.n, 1}, p.k, p.n, packed);
    pair_product(p, 0, p.m, 0, p.n, PairLeft{halves(call, 0) + matrix_offset(a, result, batch_axes, 2, i), p.k}, packed,
                 workspace(call) + worker * own, ProductEnding{epilogue, bias_of(call), p.n, i * p.m * p.n});
  });
}

}  // namespace

const KernelCode code::gemm_bf16 = {run_product_bf16, pack_gemm_bf16};
const KernelCode code::matmul_bf16 = {run_product_bf16, pack_gemm_bf16};
const KernelCode code::gemm_bf16_plain = {run_product_bf16_plain};
const KernelCode code::matmul_bf16_plain = {run_product_bf16_plain};

}  // namespace nlsplit::inline kernels
