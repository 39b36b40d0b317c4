// Runs the blocks of a kernel, one after the other, and their threads as fibers that change places at barriers and
// shuffles. In which order blocks and threads begin is drawn, so that nothing works because of one.
//
//   run_kernel(gpu, blocks, 256, random, call);
#pragma once

#include <cstddef>
#include <vector>

#include "base/random.h"
#include "gpu/emulator/launch.h"

namespace nlsplit::emulator {

struct Call {
  void (*thread)(const void* arguments);
  std::vector<std::byte> arguments;
};

// Faults are reported and end the kernel.
void run_kernel(int gpu, const Blocks& blocks, int threads, Random& random, const Call& call);

int running_thread();           // of its block; -1: no kernel runs
bool is_local(const void* at);  // on the fibers' stacks, or an argument

}  // namespace nlsplit::emulator
