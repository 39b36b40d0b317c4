// Instructions that move or convert data within a device.
//
// What copy, pack, unpack and reduce are called in a CostTable. They have no kernel in the catalogue, so each gets a
// desc of its own: `copy Identity(f32[64]) -> f32[64]`, `reduce Sum(f32[64], f32[64]) -> f32[64]`. A roofline counts
// their traffic and additions; a profile must hold a measurement under that signature.
#pragma once

#include "kernels/catalogue.h"
#include "program/program.h"

namespace nlsplit::inline program {

// instr.opcode is copy, pack, unpack or reduce. The desc of pack and unpack has the shape of the part that moves, not
// that of the whole tensor.
ComputeDesc movement_desc(const DeviceProgram& device, const Instr& instr);

// A reduce of so many operands.
ComputeDesc sum_desc(size_t operands, const TensorType& type);

// Converts the elements of `from` to the type of `to` (ONNX's Cast), by a kernel of the device's level. Adds the desc
// to the Program. Label and workspace are the caller's.
Instr cast_instr(Program& program, const DeviceProgram& device, const Operand& from, const Operand& to);

}  // namespace nlsplit::inline program
