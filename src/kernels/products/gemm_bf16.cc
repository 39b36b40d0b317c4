// Gemm and MatMul of bfloat16, the right operand packed at load.
#include "kernels/functions/bf16_epilogue.h"
#include "kernels/products/pair_product.h"

namespace nlsplit::inline kernels {
namespace {

struct ProductEnding {
  const Bf16Epilogue& epilogue;
  const uint16_t* bias;  // of all columns; nullptr: none
  int64_t n;

  Bf16Tile tile_of(const PairSums& sums) const {
    return {sums.values, sums.rows, sums.floats, sums.columns, sums.row * n + sums.column, n};
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

void run_product_bf16(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Product p = product_of(desc);
  const Bf16Epilogue epilogue(call);
  const auto* bias = desc.own_inputs() > 2 ? static_cast<const uint16_t*>(call.inputs[2]) : nullptr;
  const PairLeft left{.halves = static_cast<const uint16_t*>(call.inputs[0]), .k = p.k};
  shared_pair_product(call, p, left, input(call, 1), workspace(call), ProductEnding{epilogue, bias, p.n});
}

void pack_gemm_bf16(const ComputeDesc& desc, size_t, const void* raw, void* packed) {
  const Product p = product_of(desc);
  const auto* b = static_cast<const uint16_t*>(raw);
  const bool turned = desc.op == Op::Gemm && attr_int(desc.attrs, "transB") != 0;
  pack_pair_panels(turned ? PairRight{b, 1, p.k} : PairRight{b, p.n, 1}, p.k, p.n, static_cast<float*>(packed));
}

}  // namespace

const KernelCode code::gemm_bf16 = {run_product_bf16, pack_gemm_bf16};
const KernelCode code::matmul_bf16 = {run_product_bf16, pack_gemm_bf16};

}  // namespace nlsplit::inline kernels
