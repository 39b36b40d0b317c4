// Looks like a library of kernels of this program's level, but for one thing.
#include "kernels/module/kernel_module.h"

extern "C" const nlsplit::KernelModule* nlsplit_kernel_module() {
  static const nlsplit::KernelModule module = [] {
    nlsplit::KernelModule it;
#if defined(WRONG_version)
    ++it.interface;
#elif defined(WRONG_size)
    ++it.desc_bytes;
#elif defined(WRONG_level)
    it.level = "of_nobody";
#elif defined(WRONG_list)
#if defined(__aarch64__)
    it.level = "neon";  // and no kernel
#else
    it.level = "v2";
#endif
#else
#error "what is wrong with it?"
#endif
    return it;
  }();
  return &module;
}
