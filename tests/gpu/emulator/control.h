// What the emulated backend lets tests say and ask, beside the interface that it has as a backend.
//
//   const auto seed = reinterpret_cast<EmulatedSeed>(dlsym(handle, "emulated_gpu_seed"));
#pragma once

#include <cstddef>
#include <cstdint>

namespace nlsplit::testing {

using EmulatedSeed = void (*)(uint64_t seed);  // other orders of what is not ordered
using EmulatedShow = void (*)(int gpus);       // how many the machine seems to have, of four
using EmulatedLeft = size_t (*)();             // allocations, streams, descriptors, … not given back

// For other libraries of CUDA that are stood in for (exec/fake_nccl). Texts say what is wrong; nullptr: nothing.
using EmulatedCurrent = int (*)();  // the GPU of the calling thread
// Puts work on a stream that waits for something outside: `attempt` is called until it says yes, then `done`.
using EmulatedBegin = const char* (*)(void* stream, bool (*attempt)(void* work), void (*done)(void* work), void* work);
// Within `attempt`: a GPU's memory to the host and back. False: that memory is not there; the emulator keeps the fault.
using EmulatedRead = bool (*)(int gpu, const void* from, size_t bytes, void* to_host);
using EmulatedWrite = bool (*)(int gpu, void* to, size_t bytes, const void* from_host);

}  // namespace nlsplit::testing
