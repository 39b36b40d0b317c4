// The CPU as a Backend: kernels of the device's instruction level, shared by its workers, in one arena. Execution is
// synchronous, and the transport reads and writes the arena itself.
#pragma once

#include <memory>

#include "exec/backend.h"

namespace nlsplit::inline exec {

Result<std::unique_ptr<Backend>> open_cpu(const BackendContext& context);

}  // namespace nlsplit::inline exec
