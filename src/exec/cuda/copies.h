// Measures what copies between this machine's memory and a GPU take, as DeviceRun does them: begun by one thread, on a
// stream for each direction.
//
//   ASSIGN_OR_RETURN(const HostCopies copies, measure_copies(*chosen.backend, 0, {}));
#pragma once

#include <cstdint>

#include "base/result.h"
#include "cost/copies.h"
#include "exec/cuda/backend.h"

namespace nlsplit::inline exec {

struct CopySizes {
  int64_t smallest = 4 << 10, largest = 16 << 20;  // bytes; each four times the one before
  int repeats = 11;                                // of each, after one that warms up
};

// Seconds by the host's clock, from before a copy is begun until the host knows that it is done. Errors: the GPU's; or
// longer copies took no longer.
Result<HostCopies> measure_copies(const cuda::Backend& backend, int number, const CopySizes& sizes);

}  // namespace nlsplit::inline exec
