// Inside free_dependencies(): what it says of the slots of a device.
#pragma once

#include <vector>

#include "program/dependencies.h"

namespace nlsplit::inline program {

// [buffer]: scratch that no message touches, and of which every segment reads only what it has written before.
std::vector<bool> own_scratch(const DeviceProgram& device);

// In the Program's order, without `after`. Error: it recomputes.
Result<std::vector<FreeSlot>> free_slots(const DeviceProgram& device);

// Adds to what memory asks for that fixed slots keep their place. Error: slots that are not fixed wait for each other.
Status keep_places(const Program& program, Dependencies& deps);

}  // namespace nlsplit::inline program
