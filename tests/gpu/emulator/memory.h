// The memory of the emulated GPUs, and what is known about each byte of it: whose it is, whether anything was written
// there, and which thread of the running kernel touched it last. Much of the time the host cannot touch it.
//
//   void* at = allocate(0, 4096);                                    // of GPU 0, full of NaN, nothing of it written
//   if (!check_read(0, at, 64, "cudaMemcpyAsync reads")) …           // what libraries do; a fault is reported
//   access(at, 4, true);                                             // what a kernel does
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace nlsplit::emulator {

inline constexpr int gpus = 4;

void* allocate(int gpu, size_t bytes);  // nullptr: there is no room
bool release(int gpu, void* memory);    // false: it is not the beginning of an allocation
size_t allocations();
bool is_device(const void* at);
bool overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes);

// While one lives, the host can touch the memory of GPUs; often also behind it, until it is locked again.
class Opened {
 public:
  Opened();
  ~Opened();
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
};
void lock_memory();

// What works on whole ranges, not on behalf of a kernel's thread. False, and a fault: it is not allocated on this GPU,
// or for check_read also: never written. `what`: "cudaMemcpyAsync reads".
bool check_room(int gpu, const void* at, size_t bytes, const std::string& what);
bool check_read(int gpu, const void* at, size_t bytes, const std::string& what);
void mark_written(void* at, size_t bytes);
void mark_as(void* at, const void* like, size_t bytes);  // written where the other is
void poison(void* at, size_t bytes);                     // NaN, and not written

// ---- for the kernel that runs, of one GPU

void begin_kernel(int gpu);
void end_kernel();
void begin_block();  // what is shared is as good as never written
void begin_phase();  // behind a barrier

// An access of thread `thread` of the running block; one that is wrong ends the kernel.
void access(const void* at, size_t bytes, bool write, int thread);

}  // namespace nlsplit::emulator
