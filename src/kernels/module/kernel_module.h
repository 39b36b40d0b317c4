// What a library of kernels is loaded by: one function, which says whether the library and the program that loads it
// were built to work together.
#pragma once

#include <cstdint>

#include "kernels/module/kernel.h"

namespace nlsplit::inline kernels {

// Raised with every change of what both sides use: the types of kernel.h, ComputeDesc and what is in it, the
// catalogue's packed forms and workspaces. The sizes beside it notice when that was forgotten.
inline constexpr uint32_t kernel_interface = 5;

struct KernelModule {
  uint32_t interface = kernel_interface;  // stays first in every version
  uint32_t desc_bytes = sizeof(ComputeDesc), call_bytes = sizeof(KernelCall), code_bytes = sizeof(KernelCode);
  const char* level = "";  // "v3"
  // The CPUs' kernels in the catalogue's order.
  const char* const* names = nullptr;
  const KernelCode* code = nullptr;
  size_t count = 0;
  // Whether kernels may use the dot products of bytes and those of pairs of bfloat16 that this CPU has (kernels/cpu.h);
  // not at first. They sum as the instructions of the level do, so no bits depend on it.
  void (*use_dot_products)(bool bytes, bool pairs) = nullptr;
};

}  // namespace nlsplit::inline kernels

extern "C" const nlsplit::KernelModule* nlsplit_kernel_module();
