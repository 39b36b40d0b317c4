// Gemm and MatMul by cuBLASLt, and what other kernels multiply. It counts columns first, so a row-major D = A B is
// asked for as Dᵀ = Bᵀ Aᵀ: the same bytes. Its bias, one value a row of Dᵀ, is then one a column of D.
#include "exec/cuda/module/product.h"

#include <fmt/format.h>

#include <cstdint>
#include <memory>

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

Answer choose(Device& device, cublasLtMatmulDesc_t what, cublasLtMatrixLayout_t left, cublasLtMatrixLayout_t right,
              cublasLtMatrixLayout_t result, uint64_t workspace, uint32_t alignment, cublasLtMatmulAlgo_t& chosen) {
  Preference preference;
  RETURN_IF_REFUSED(cublasLtMatmulPreferenceCreate(&preference.made));
  RETURN_IF_REFUSED(cublasLtMatmulPreferenceSetAttribute(preference.made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                         &workspace, sizeof(workspace)));
  for (const auto operand : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                             CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    RETURN_IF_REFUSED(cublasLtMatmulPreferenceSetAttribute(preference.made, operand, &alignment, sizeof(alignment)));
  }
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  RETURN_IF_REFUSED(cublasLtMatmulAlgoGetHeuristic(device.products, what, left, right, result, result, preference.made,
                                                   1, &found, &count));
  if (count == 0) return refuse("cuBLASLt has no algorithm for it");
  chosen = found.algo;
  return nullptr;
}

bool is_aligned(const void* at) { return reinterpret_cast<uintptr_t>(at) % whole_buffers == 0; }

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

struct Prepared {
  Multiplication product;
  float beta = 0;
  bool has_bias = false;      // input 2 as cuBLASLt's bias
  bool adds_operand = false;  // input 2, broadcast, times beta
  size_t steps_within = 0;    // of the epilogue, done by cuBLASLt
};

Answer run(Device& device, const KernelCall& call, Prepared& p) {
  if (p.adds_operand) RETURN_IF_REFUSED(spread_operand(device, call, p.beta));
  RETURN_IF_REFUSED(p.product.run(device, call.inputs[0], call.inputs[1], call.outputs[0],
                                  p.has_bias ? call.inputs[2] : nullptr, p.adds_operand ? 1.0f : 0.0f, call.workspace));
  return run_epilogue(device, call, output(call), {}, p.steps_within);
}

Answer prepare_product(Device& device, const ComputeDesc& desc, uint64_t workspace, Run& run_it) {
  auto p = std::make_shared<Prepared>();  // std::function must be copyable
  MatrixProduct what;
  what.factors = what.result = desc.outputs[0].dtype;
  what.tf32 = desc.kernel.level.precision == Precision::tf32;
  const bool gemm = desc.op == Op::Gemm;
  if (gemm) {
    const Product one = product_of(desc);
    what.m = one.m;
    what.n = one.n;
    what.k = one.k;
    what.transposed_a = attr_int(desc.attrs, "transA") != 0;
    what.transposed_b = attr_int(desc.attrs, "transB") != 0;
    what.alpha = static_cast<float>(attr_float(desc.attrs, "alpha"));
    p->beta = static_cast<float>(attr_float(desc.attrs, "beta"));
  } else {
    const std::optional<BatchedProduct> batched = batched_product_of(desc);
    if (!batched) return refuse("its batches lie at no fixed distance");
    what.batch = batched->batch;
    what.m = batched->m;
    what.n = batched->n;
    what.k = batched->k;
    what.a_stride = batched->a_stride;
    what.b_stride = batched->b_stride;
    p->beta = 1;
  }
  if (desc.own_inputs() > 2) {
    p->has_bias = !gemm || is_row(desc, what.n, p->beta);
    p->adds_operand = !p->has_bias && p->beta != 0;
  }
  what.bias = p->has_bias;
  what.relu = !desc.epilogue.empty() && desc.epilogue[0].op == Op::Relu;
  p->steps_within = what.relu ? 1 : 0;
  RETURN_IF_REFUSED(p->product.prepare(device, what, workspace));
  run_it = [p](Device& where, const KernelCall& call) { return run(where, call, *p); };
  return nullptr;
}

}  // namespace

Multiplication::~Multiplication() {
  if (what_ != nullptr) static_cast<void>(cublasLtMatmulDescDestroy(what_));
  for (cublasLtMatrixLayout_t layout : {left_, right_, result_}) {
    if (layout != nullptr) static_cast<void>(cublasLtMatrixLayoutDestroy(layout));
  }
}

Answer Multiplication::prepare(Device& device, const MatrixProduct& p, uint64_t workspace) {
  alpha_ = p.alpha;
  workspace_ = workspace;
  // Of halves the factors are exact in either level.
  const bool tf32 = p.tf32 && p.factors == DType::f32;
  RETURN_IF_REFUSED(
      cublasLtMatmulDescCreate(&what_, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  RETURN_IF_REFUSED(set(what_, CUBLASLT_MATMUL_DESC_TRANSA, p.transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N));
  RETURN_IF_REFUSED(set(what_, CUBLASLT_MATMUL_DESC_TRANSB, p.transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N));
  const cudaDataType_t factors = data_type_of(p.factors);
  RETURN_IF_REFUSED(
      layout(&left_, factors, p.transposed_b ? p.n : p.k, p.transposed_b ? p.k : p.n, p.batch, p.b_stride));
  RETURN_IF_REFUSED(
      layout(&right_, factors, p.transposed_a ? p.k : p.m, p.transposed_a ? p.m : p.k, p.batch, p.a_stride));
  RETURN_IF_REFUSED(layout(&result_, data_type_of(p.result), p.m, p.n, p.batch, p.m * p.n));
  const cublasLtEpilogue_t epilogue = p.bias   ? (p.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
                                      : p.relu ? CUBLASLT_EPILOGUE_RELU
                                               : CUBLASLT_EPILOGUE_DEFAULT;
  RETURN_IF_REFUSED(set(what_, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
  RETURN_IF_REFUSED(choose(device, what_, left_, right_, result_, workspace_, whole_buffers, aligned_));
  const auto any = static_cast<uint32_t>(size_of(p.factors));
  return choose(device, what_, left_, right_, result_, workspace_, any, unaligned_);
}

Answer Multiplication::run(Device& device, const void* a, const void* b, void* d, const void* bias, float beta,
                           void* workspace) {
  if (bias != nullptr) RETURN_IF_REFUSED(set(what_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
  const bool aligned = is_aligned(a) && is_aligned(b) && is_aligned(d) && (bias == nullptr || is_aligned(bias));
  return answer(cublasLtMatmul(device.products, what_, &alpha_, b, left_, a, right_, &beta, d, result_, d, result_,
                               aligned ? &aligned_ : &unaligned_, workspace, workspace_, device.compute()));
}

const Prepare code::gemm_cublaslt = prepare_product;
const Prepare code::matmul_cublaslt = prepare_product;

}  // namespace nlsplit::cuda
