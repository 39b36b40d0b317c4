// What the instructions do to an arena, all but send and recv. The Program must be verified (program/verify.h).
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "kernels/module/kernel.h"
#include "program/program.h"

namespace nlsplit::inline exec {

// The code of each of Program::descs that a device runs; nullptr for others.
using KernelTable = std::vector<const KernelCode*>;

// Error: a scalar whose value is out of its buffer's range (program/scalars.h).
Status execute(const Program& program, const DeviceProgram& device, const KernelTable& kernels, const Slot& slot,
               const Instr& instr, std::byte* arena, const Crew& crew);

// The bytes of one instance of a buffer that is not a view.
std::byte* instance_data(const Buffer& buffer, int instance, std::byte* arena);

// The initial bytes of a weight or state buffer: `raw`, row-major, packed if its kernel wants that; zero if there are
// none. Error: raw has another size than the buffer's type, or no instruction says how it is packed.
Status place_content(const Program& program, const DeviceProgram& device, const KernelTable& kernels,
                     const Buffer& buffer, std::string_view raw, std::byte* arena);

}  // namespace nlsplit::inline exec
