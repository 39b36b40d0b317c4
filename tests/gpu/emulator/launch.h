// Launches of kernels, and what a thread of one calls.
//
//   emulator::launch(kernel, 4, 256, stream, a, b);      // what kernel<<<4, 256, 0, stream>>>(a, b) is
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <tuple>
#include <type_traits>

namespace nlsplit::emulator {

inline constexpr int warp_lanes = 32;

struct Place {
  uint3 thread, block;
  uint3 threads, blocks;  // how many
};
const Place& here();  // of the thread that runs

// Until all threads of the block are here.
void barrier();
// Until all lanes of the mask are here, each with a value; that of `lane` of the warp.
uint64_t exchange(uint32_t mask, uint64_t value, int lane);

// How many, and the line that asked for them: faults name it.
struct Blocks {
  Blocks(unsigned count, std::source_location line = std::source_location::current()) : count(count), line(line) {}
  unsigned count;
  std::source_location line;
  const char* name = nullptr;  // of a kernel that no line launches
};

// thread(arguments) is what one thread does; the arguments are copied.
cudaError_t begin(const Blocks& blocks, int threads, cudaStream_t stream, void (*thread)(const void* arguments),
                  const void* arguments, size_t bytes);

template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), const Blocks& blocks, int threads, cudaStream_t stream,
                   const Arguments&... arguments) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "CUDA copies arguments byte by byte");
  using All = std::tuple<void (*)(Parameters...), Parameters...>;
  const All all(kernel, arguments...);
  const auto thread = [](const void* at) {
    std::apply([](auto* called, const Parameters&... values) { called(values...); }, *static_cast<const All*>(at));
  };
  return begin(blocks, threads, stream, thread, &all, sizeof(all));
}

template <class T>
T shuffle(uint32_t mask, T value, int lane) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = exchange(mask, bits, lane);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
inline int own_lane() { return static_cast<int>(here().thread.x % warp_lanes); }
// The lane meant, if it is of the own group of `width`, else the own.
inline int within(int lane, int width) { return lane >= 0 && lane / width == own_lane() / width ? lane : own_lane(); }

}  // namespace nlsplit::emulator
