// Looks like a library of kernels of this program's level, but for one thing.
#include "exec/kernels/kernel_module.h"

extern "C" const nlsplit::KernelModule* nlsplit_kernel_module() {
  static const nlsplit::KernelModule module = [] {
    nlsplit::KernelModule it;
    it.level = "of_nobody";
#if defined(WRONG_version)
    ++it.interface;
#elif defined(WRONG_size)
    ++it.desc_bytes;
#elif !defined(WRONG_level)
#error "what is wrong with it?"
#endif
    return it;
  }();
  return &module;
}
