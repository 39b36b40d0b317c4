// The CPU in place of a GPU: the same interface on host memory, computed by this CPU's own kernels. So a scenario with
// GPUs runs, and its results can be checked, where there are none; its times say nothing about a GPU, and its last bits
// are the CPU's.
//
//   const Backend& cpu = stand_in_backend();
#pragma once

#include "exec/cuda/backend.h"

namespace nlsplit::cuda {

// One device, whose memory is apart from the host's: what was not copied is not there. All is done when it is begun.
const Backend& stand_in_backend();

}  // namespace nlsplit::cuda
