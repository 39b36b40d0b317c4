// All backends. To add one: a file here with its class (exec/backend.h), a DeviceKind (cost/cluster.h), and a row in
// backends.cc.
#pragma once

#include <memory>
#include <span>

#include "exec/backend.h"

namespace nlsplit::inline exec {

struct BackendRow {
  DeviceKind kind;
  Result<std::unique_ptr<Backend>> (*open)(const BackendContext& context);
};

std::span<const BackendRow> all_backends();

// Of the device's kind. Allocates its memory and makes its computations ready. Errors: too little memory, no code for
// this CPU, no GPU, a computation that its libraries refuse.
Result<std::unique_ptr<Backend>> open_backend(const BackendContext& context);

}  // namespace nlsplit::inline exec
