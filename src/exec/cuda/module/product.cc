// Gemm and MatMul by cuBLASLt. It counts columns first, so a row-major D = A B is asked for as Dᵀ = Bᵀ Aᵀ: the same
// bytes. Its bias, one value a row of Dᵀ, is then one a column of D.
#include <fmt/format.h>

#include <cstdint>
#include <memory>

#include "exec/cuda/module/module.h"
#include "kernels/cuda/gpu.h"
#include "kernels/layout.h"

namespace nlsplit::cuda {
namespace {

// Bytes. Buffers begin at multiples of the arena's alignment; a part of one may begin at any element.
constexpr uint32_t whole_buffers = 64;

cudaDataType_t data_type_of(DType type) {
  switch (type) {
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;  // the catalogue lets nothing else here
  }
}

struct Multiplication {
  cublasLtMatmulDesc_t what = nullptr;
  cublasLtMatrixLayout_t left = nullptr, right = nullptr, result = nullptr;  // Bᵀ, Aᵀ, Dᵀ
  cublasLtMatmulAlgo_t aligned{};    // where all operands begin at a multiple of `whole_buffers`
  cublasLtMatmulAlgo_t unaligned{};  // where some are parts of buffers
  float alpha = 1, beta = 0;
  bool has_bias = false;      // input 2 as cuBLASLt's bias
  bool adds_operand = false;  // input 2, broadcast, times beta
  size_t steps_within = 0;    // of the epilogue, done by cuBLASLt
  uint64_t workspace = 0;

  Multiplication() = default;
  Multiplication(const Multiplication&) = delete;
  Multiplication& operator=(const Multiplication&) = delete;
  ~Multiplication() {
    if (what != nullptr) static_cast<void>(cublasLtMatmulDescDestroy(what));
    for (cublasLtMatrixLayout_t layout : {left, right, result}) {
      if (layout != nullptr) static_cast<void>(cublasLtMatrixLayoutDestroy(layout));
    }
  }
};

template <class T>
Answer set(cublasLtMatmulDesc_t what, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  return answer(cublasLtMatmulDescSetAttribute(what, attribute, &value, sizeof(value)));
}

// A row-major rows × columns matrix, as its transpose, `batch` times.
Answer layout(cublasLtMatrixLayout_t* made, cudaDataType_t type, int64_t rows, int64_t columns, int64_t batch,
              int64_t stride) {
  RETURN_IF_REFUSED(
      cublasLtMatrixLayoutCreate(made, type, static_cast<uint64_t>(columns), static_cast<uint64_t>(rows), columns));
  const auto count = static_cast<int32_t>(batch);
  RETURN_IF_REFUSED(cublasLtMatrixLayoutSetAttribute(*made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)));
  return answer(
      cublasLtMatrixLayoutSetAttribute(*made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)));
}

struct Preference {
  cublasLtMatmulPreference_t made = nullptr;
  ~Preference() {
    if (made != nullptr) static_cast<void>(cublasLtMatmulPreferenceDestroy(made));
  }
};

Answer choose(Device& device, const Multiplication& m, uint32_t alignment, cublasLtMatmulAlgo_t& chosen) {
  Preference preference;
  RETURN_IF_REFUSED(cublasLtMatmulPreferenceCreate(&preference.made));
  RETURN_IF_REFUSED(cublasLtMatmulPreferenceSetAttribute(preference.made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                         &m.workspace, sizeof(m.workspace)));
  for (const auto operand : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                             CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    RETURN_IF_REFUSED(cublasLtMatmulPreferenceSetAttribute(preference.made, operand, &alignment, sizeof(alignment)));
  }
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  RETURN_IF_REFUSED(cublasLtMatmulAlgoGetHeuristic(device.products, m.what, m.left, m.right, m.result, m.result,
                                                   preference.made, 1, &found, &count));
  if (count == 0) return refuse("cuBLASLt has no algorithm for it");
  chosen = found.algo;
  return nullptr;
}

// A vector along the columns, unscaled: what cuBLASLt adds by itself.
bool is_row(const ComputeDesc& desc, int64_t n, float beta) {
  const Shape& c = desc.inputs[2].shape;
  return beta == 1 && element_count(c) == n && !c.empty() && c.back() == n;
}

// D = beta * C, C repeated along the axes it lacks or has once.
Answer spread_operand(Device& device, const KernelCall& call, float beta) {
  const Shape &c = call.desc->inputs[2].shape, &out = call.desc->outputs[0].shape;
  Walk walk{};
  walk.axes = 2;
  int64_t stride = 1;
  for (size_t back = 0; back < 2; ++back) {
    const size_t axis = 1 - back;
    const int64_t extent = back < c.size() ? c[c.size() - 1 - back] : 1;
    walk.extent[axis] = out[axis];
    walk.stride[0][axis] = walk.stride[1][axis] = extent == 1 ? 0 : stride;
    stride *= extent;
  }
  Steps scale{};
  scale.count = 1;
  scale.step[0] = {Function::scale, beta, 0, nullptr};
  return answer(launch_broadcast(element_of(call), input(call, 2), input(call, 2), output(call), element_count(out),
                                 Function::same, walk, scale, device.compute()));
}

bool is_aligned(const KernelCall& call) {
  const auto fits = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % whole_buffers == 0; };
  return fits(call.inputs[0]) && fits(call.inputs[1]) && fits(call.outputs[0]);
}

Answer run(Device& device, const KernelCall& call, const Multiplication& m) {
  if (m.adds_operand) RETURN_IF_REFUSED(spread_operand(device, call, m.beta));
  if (m.has_bias) RETURN_IF_REFUSED(set(m.what, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.inputs[2]));
  const float beta = m.adds_operand ? 1.0f : 0.0f;
  RETURN_IF_REFUSED(cublasLtMatmul(device.products, m.what, &m.alpha, call.inputs[1], m.left, call.inputs[0], m.right,
                                   &beta, call.outputs[0], m.result, call.outputs[0], m.result,
                                   is_aligned(call) ? &m.aligned : &m.unaligned, call.workspace, m.workspace,
                                   device.compute()));
  return run_epilogue(device, call, output(call), {}, m.steps_within);
}

Answer prepare_product(Device& device, const ComputeDesc& desc, uint64_t workspace, Run& run_it) {
  auto m = std::make_shared<Multiplication>();
  const bool gemm = desc.op == Op::Gemm;
  BatchedProduct p;
  if (gemm) {
    const Product one = product_of(desc);
    p = {1, one.m, one.n, one.k, 0, 0};
    m->alpha = static_cast<float>(attr_float(desc.attrs, "alpha"));
    m->beta = static_cast<float>(attr_float(desc.attrs, "beta"));
  } else {
    const std::optional<BatchedProduct> batched = batched_product_of(desc);
    if (!batched) return refuse("its batches lie at no fixed distance");
    p = *batched;
    m->beta = 1;
  }
  m->workspace = workspace;
  // Of halves the factors are exact in either level.
  const bool tf32 = desc.kernel.level.precision == Precision::tf32 && desc.outputs[0].dtype == DType::f32;
  RETURN_IF_REFUSED(
      cublasLtMatmulDescCreate(&m->what, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const bool trans_a = gemm && attr_int(desc.attrs, "transA") != 0,
             trans_b = gemm && attr_int(desc.attrs, "transB") != 0;
  const cublasOperation_t left = trans_b ? CUBLAS_OP_T : CUBLAS_OP_N, right = trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  RETURN_IF_REFUSED(set(m->what, CUBLASLT_MATMUL_DESC_TRANSA, left));
  RETURN_IF_REFUSED(set(m->what, CUBLASLT_MATMUL_DESC_TRANSB, right));
  const DType element = desc.outputs[0].dtype;
  const cudaDataType_t type = data_type_of(element);
  RETURN_IF_REFUSED(layout(&m->left, type, trans_b ? p.n : p.k, trans_b ? p.k : p.n, p.batch, p.b_stride));
  RETURN_IF_REFUSED(layout(&m->right, type, trans_a ? p.k : p.m, trans_a ? p.m : p.k, p.batch, p.a_stride));
  RETURN_IF_REFUSED(layout(&m->result, type, p.m, p.n, p.batch, p.m * p.n));
  if (desc.own_inputs() > 2) {
    m->has_bias = !gemm || is_row(desc, p.n, m->beta);
    m->adds_operand = !m->has_bias && m->beta != 0;
  }
  const bool relu = !desc.epilogue.empty() && desc.epilogue[0].op == Op::Relu;
  m->steps_within = relu ? 1 : 0;
  const cublasLtEpilogue_t epilogue = m->has_bias ? (relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
                                      : relu      ? CUBLASLT_EPILOGUE_RELU
                                                  : CUBLASLT_EPILOGUE_DEFAULT;
  RETURN_IF_REFUSED(set(m->what, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
  RETURN_IF_REFUSED(choose(device, *m, whole_buffers, m->aligned));
  RETURN_IF_REFUSED(choose(device, *m, static_cast<uint32_t>(size_of(element)), m->unaligned));
  run_it = [m](Device& where, const KernelCall& call) { return run(where, call, *m); };
  return nullptr;
}

}  // namespace

const Prepare code::gemm_cublaslt = prepare_product;
const Prepare code::matmul_cublaslt = prepare_product;

}  // namespace nlsplit::cuda
