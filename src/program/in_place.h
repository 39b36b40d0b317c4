// Results that lie where an operand lay: a computation may overwrite what it reads if its kernel goes element by
// element (KernelInfo::in_place) and the operand is not read afterwards. The compiler uses it; verify allows no other.
#pragma once

#include <cstdint>

#include "program/program.h"

namespace nlsplit::inline program {

// Bit i: the kernel may write its result on operand i (KernelInfo::in_place). 0: not a computation, or none may be.
uint64_t in_place_reads(const Program& program, const Instr& instr);

// Whether its only result may lie on the bytes of buffer `held`: all that it reads of that buffer it reads whole, as
// one of the operands `allowed` by in_place_reads, and both have as many bytes.
bool may_overwrite(const DeviceProgram& device, const Instr& instr, uint64_t allowed, BufferId held);

}  // namespace nlsplit::inline program
