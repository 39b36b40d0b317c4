// What the emulated backend lets tests say and ask, beside the interface that it has as a backend.
//
//   const auto seed = reinterpret_cast<EmulatedSeed>(dlsym(handle, "emulated_gpu_seed"));
#pragma once

#include <cstddef>
#include <cstdint>

namespace nlsplit::testing {

using EmulatedSeed = void (*)(uint64_t seed);  // other orders of what is not ordered
using EmulatedLeft = size_t (*)();             // allocations, streams, descriptors, … not given back

}  // namespace nlsplit::testing
