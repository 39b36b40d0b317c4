// CUDA's language for g++: a kernel that is compiled with this header before everything else (-include) runs on the
// CPU, the threads of a block as fibers of one thread. -fsanitize=thread,alignment makes g++ report accesses to memory
// (hooks.cc looks at them); their run time libraries are not linked.
#pragma once

// Blocks run one after the other. CUDA's headers leave what is there alone.
#define __shared__ static

#include <cuda_runtime_api.h>
#include <math.h>

#include <bit>

#include "gpu/emulator/launch.h"

namespace nlsplit::emulator {

// What is asked of the thread that runs whenever it is read.
template <auto which, auto axis>
struct Coordinate {
  operator unsigned() const { return here().*which.*axis; }
};
template <auto which>
struct Coordinates {
  Coordinate<which, &uint3::x> x;
  Coordinate<which, &uint3::y> y;
  Coordinate<which, &uint3::z> z;
};

}  // namespace nlsplit::emulator

inline constexpr nlsplit::emulator::Coordinates<&nlsplit::emulator::Place::thread> threadIdx;
inline constexpr nlsplit::emulator::Coordinates<&nlsplit::emulator::Place::block> blockIdx;
inline constexpr nlsplit::emulator::Coordinates<&nlsplit::emulator::Place::threads> blockDim;
inline constexpr nlsplit::emulator::Coordinates<&nlsplit::emulator::Place::blocks> gridDim;
inline constexpr int warpSize = nlsplit::emulator::warp_lanes;

inline void __syncthreads() { ::nlsplit::emulator::barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  ::nlsplit::emulator::exchange(mask, 0, ::nlsplit::emulator::own_lane());
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize) {
  using namespace nlsplit::emulator;
  return shuffle(mask, value, own_lane() / width * width + lane % width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int other, int width = warpSize) {
  using namespace nlsplit::emulator;
  return shuffle(mask, value, within(own_lane() ^ other, width));
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = warpSize) {
  using namespace nlsplit::emulator;
  return shuffle(mask, value, within(own_lane() + static_cast<int>(by), width));
}
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
