// What g++ calls for each access to memory with -fsanitize=thread, and for one at an odd place with
// -fsanitize=alignment: kernels are compiled so, and nothing else is.
#include "gpu/emulator/hooks.h"

#include <cstdint>

#include "gpu/emulator/blocks.h"
#include "gpu/emulator/fault.h"
#include "gpu/emulator/memory.h"

namespace nlsplit::emulator {

void look(const void* at, size_t bytes, bool write, size_t alignment) {
  const int thread = running_thread();
  if (thread < 0 || is_local(at)) return;  // the host, or a thread's own
  if (reinterpret_cast<uintptr_t>(at) % alignment != 0) odd_place();
  access(at, bytes, write, thread);
}

void odd_place() {
  if (running_thread() >= 0) stop("accesses a value at an address where its type cannot lie");
}

void outside_table() {
  if (running_thread() >= 0) stop("reads outside a table");
}

}  // namespace nlsplit::emulator

using nlsplit::emulator::look;

extern "C" {

// Also of structs, whose members are then accessed one by one.
void __ubsan_handle_type_mismatch_v1(void*, uintptr_t) { nlsplit::emulator::odd_place(); }

void __tsan_init() {}
void __tsan_read_range(const void* at, size_t bytes) { look(at, bytes, false, 1); }
void __tsan_write_range(void* at, size_t bytes) { look(at, bytes, true, 1); }

#define NLS_LOOK(bytes)                                                            \
  void __tsan_read##bytes(const void* at) { look(at, bytes, false, bytes); }       \
  void __tsan_write##bytes(void* at) { look(at, bytes, true, bytes); }             \
  void __tsan_unaligned_read##bytes(const void* at) { look(at, bytes, false, 1); } \
  void __tsan_unaligned_write##bytes(void* at) { look(at, bytes, true, 1); }
NLS_LOOK(1)
NLS_LOOK(2)
NLS_LOOK(4)
NLS_LOOK(8)
NLS_LOOK(16)
#undef NLS_LOOK
}
