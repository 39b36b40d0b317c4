// Products of matrices by cuBLASLt, for the kernels that are made of them.
//
//   Multiplication m;
//   RETURN_IF_REFUSED(m.prepare(device, {.batch = 8, .m = 64, .n = 196, .k = 256, …}, workspace));
//   RETURN_IF_REFUSED(m.run(device, a, b, d, nullptr, 0, at));
#pragma once

#include <cstdint>

#include "exec/cuda/module/module.h"

namespace nlsplit::cuda {

// D = alpha A B + beta D, row-major, `batch` times.
struct MatrixProduct {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  int64_t a_stride = 0, b_stride = 0;               // elements, from one of the batch to the next; 0: the same for all
  bool transposed_a = false, transposed_b = false;  // A lies as k × m, B as n × k
  DType factors = DType::f32, result = DType::f32;  // f32, f16, bf16; the result is of the factors' type or f32
  bool tf32 = false;                                // of f32 factors: multiply in TF32
  float alpha = 1;
  bool bias = false;  // add a vector along the columns, of the result's type
  bool relu = false;  // last
};

class Multiplication {
 public:
  Multiplication() = default;
  Multiplication(const Multiplication&) = delete;
  Multiplication& operator=(const Multiplication&) = delete;
  ~Multiplication();

  // workspace: bytes that each run will have, at a multiple of 256.
  Answer prepare(Device& device, const MatrixProduct& product, uint64_t workspace);
  Answer run(Device& device, const void* a, const void* b, void* d, const void* bias, float beta, void* workspace);

 private:
  cublasLtMatmulDesc_t what_ = nullptr;
  cublasLtMatrixLayout_t left_ = nullptr, right_ = nullptr, result_ = nullptr;  // Bᵀ, Aᵀ, Dᵀ
  cublasLtMatmulAlgo_t aligned_{};    // where all operands begin at a multiple of `whole_buffers`
  cublasLtMatmulAlgo_t unaligned_{};  // where some are parts of buffers
  float alpha_ = 1;
  uint64_t workspace_ = 0;
};

}  // namespace nlsplit::cuda
