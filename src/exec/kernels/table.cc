// What a library of kernels exports.
#include <array>

#include "exec/kernels/kernel_module.h"
#include "exec/kernels/run.h"

#define NLS_TEXT_OF(name) #name
#define NLS_TEXT(name) NLS_TEXT_OF(name)

extern "C" const nlsplit::KernelEntry* nlsplit_kernels(size_t* count) {
  using namespace nlsplit;
  static const std::array entries = {
      conv_depthwise_blocked,
      conv_winograd,
      conv_blocked,
      conv_stem,
      conv_depthwise,
      conv_1x1,
      conv_direct,
      conv_plain,
      conv_transpose_packed,
      conv_transpose_plain,
      gemm_packed,
      gemm_plain,
      matmul_packed,
      matmul_plain,
      binary,
      sum,
      unary,
      max_pool_blocked,
      max_pool,
      average_pool_blocked,
      average_pool,
      global_average_pool_blocked,
      global_average_pool,
      batch_norm_blocked,
      batch_norm,
      layer_norm,
      instance_norm,
      lrn_blocked,
      lrn,
      softmax,
      cached_attention,
      attention,
      concat_blocked,
      concat,
      slice_blocked,
      slice,
      transpose,
      reduce_mean,
      pad,
      gather,
      recurrent_packed,
      recurrent_plain,
      reorder,
      cast,
      update,
      scatter_in_place,
      widened_halves,
      reference_loops,
  };
  *count = entries.size();
  return entries.data();
}

extern "C" __attribute__((visibility("default"))) const nlsplit::KernelModule* nlsplit_kernel_module() {
  using namespace nlsplit;
  static const KernelModule module = [] {
    KernelModule it;
    it.level = NLS_TEXT(NLSPLIT_LEVEL);
    it.entries = nlsplit_kernels(&it.count);
    return it;
  }();
  return &module;
}
