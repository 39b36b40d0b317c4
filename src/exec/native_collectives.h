// Collectives that a transport's own ones run (program/collective.h), before the first execution.
#pragma once

#include "exec/collectives.h"
#include "program/program.h"

namespace nlsplit::inline exec {

// All ranks call it, each with the device that it runs. Errors, the same on all ranks: the transport has no collectives
// of its own, or not these; the device computes in a memory that they do not reach.
Status join_native_groups(const Program& program, Transport& transport, const Waiting& waiting);

}  // namespace nlsplit::inline exec
