// The one function a library of kernels exports.
#include <array>

#include "exec/kernels/run.h"

extern "C" __attribute__((visibility("default"))) const nlsplit::KernelEntry* nlsplit_kernels(size_t* count) {
  using namespace nlsplit;
  static const std::array entries = {
      conv_depthwise, conv_1x1, conv_direct, conv_plain, gemm_packed, gemm_plain,   matmul_packed,
      matmul_plain,   binary,   sum,         unary,      max_pool,    average_pool, global_average_pool,
      batch_norm,     lrn,      softmax,     concat,     transpose,   reduce_mean,  pad,
  };
  *count = entries.size();
  return entries.data();
}
