// A Program of one collective alone: to time it, or to run it.
#pragma once

#include <span>

#include "compile/collective_rounds.h"
#include "cost/cluster.h"
#include "program/program.h"

namespace nlsplit::inline compiler {

// Device m of the Program is member m. Its values are f32 and begin as zeros, in the state `value_D` of device D; an
// all-to-all leaves its result in `result_D`, all others in the value. collective.group is set. native: it is the
// transport's own.
Program collective_program(Collective collective, std::span<const DeviceId> members, const Cluster& cluster,
                           bool native = false);

}  // namespace nlsplit::inline compiler
