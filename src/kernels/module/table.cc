// What a library of kernels exports: the code of all kernels, in the catalogue's order.
#include <array>

#include "kernels/module/kernel_module.h"
#include "kernels/module/run.h"

#define NLS_TEXT_OF(name) #name
#define NLS_TEXT(name) NLS_TEXT_OF(name)

namespace nlsplit::inline kernels {
namespace {

const std::array table = {
#define NLS_KERNEL(name) code::name,
#include "kernels/kernels.def"
};
const char* const names[] = {
#define NLS_KERNEL(name) #name,
#include "kernels/kernels.def"
};

}  // namespace

const KernelCode& code_of(KernelName kernel) { return table[catalogue_index(kernel)]; }

}  // namespace nlsplit::inline kernels

extern "C" __attribute__((visibility("default"))) const nlsplit::KernelModule* nlsplit_kernel_module() {
  using namespace nlsplit;
  static const KernelModule module = [] {
    KernelModule it;
    it.level = NLS_TEXT(NLSPLIT_LEVEL);
    it.names = names;
    it.code = table.data();
    it.count = table.size();
    it.use_dot_products = [](bool bytes, bool pairs) {
      use_dot_product(bytes);
      use_pair_instruction(pairs);
    };
    return it;
  }();
  return &module;
}
