#include "gpu/emulator/control.h"

#include <cstring>

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

__attribute__((visibility("default"))) void emulated_gpu_show(int gpus) {
  const std::lock_guard lock(nlsplit::emulator::mutex());
  nlsplit::emulator::show_gpus(gpus);
}

__attribute__((visibility("default"))) int emulated_gpu_current() { return nlsplit::emulator::current_gpu(); }

__attribute__((visibility("default"))) const char* emulated_gpu_begin(void* stream, bool (*attempt)(void*),
                                                                      void (*done)(void*), void* work) {
  const std::lock_guard lock(nlsplit::emulator::mutex());
  const cudaError_t status = nlsplit::emulator::enqueue_until(static_cast<cudaStream_t>(stream), [=] {
    if (!attempt(work)) return false;
    done(work);
    return true;
  });
  if (status == cudaSuccess) return nullptr;
  const char* why = nlsplit::emulator::last_refusal();
  return why != nullptr ? why : "the emulated GPU has a fault";
}

__attribute__((visibility("default"))) bool emulated_gpu_read(int gpu, const void* from, size_t bytes, void* to_host) {
  if (!nlsplit::emulator::check_room(gpu, from, bytes, "a message reads")) return false;
  std::memcpy(to_host, from, bytes);
  return true;
}

__attribute__((visibility("default"))) bool emulated_gpu_write(int gpu, void* to, size_t bytes, const void* from_host) {
  if (!nlsplit::emulator::check_room(gpu, to, bytes, "a message writes")) return false;
  std::memcpy(to, from_host, bytes);
  nlsplit::emulator::mark_written(to, bytes);
  return true;
}
}
