#include "gpu/emulator/control.h"

#include "gpu/emulator/memory.h"
#include "gpu/emulator/runtime.h"

extern "C" {
__attribute__((visibility("default"))) void emulated_gpu_seed(uint64_t seed) {
  const std::lock_guard lock(nlsplit::emulator::mutex());
  nlsplit::emulator::draws() = nlsplit::Random(seed);
}

__attribute__((visibility("default"))) size_t emulated_gpu_left() {
  const std::lock_guard lock(nlsplit::emulator::mutex());
  return nlsplit::emulator::allocations() + nlsplit::emulator::objects();
}
}
