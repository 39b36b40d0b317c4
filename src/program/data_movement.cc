#include "program/data_movement.h"

#include "graph/operators/operator.h"

namespace nlsplit::inline program {

ComputeDesc movement_desc(const DeviceProgram& device, const Instr& instr) {
  CHECK(instr.opcode != Opcode::compute && !is_transfer(instr.opcode),
        "only instructions that move data within a device");
  // A pack writes what it takes out of the whole, an unpack reads what it puts in.
  const TensorType moved = type_of(device, instr.opcode == Opcode::unpack ? instr.reads[0] : instr.writes[0]);
  if (instr.opcode == Opcode::reduce) return sum_desc(instr.reads.size(), moved);
  ComputeDesc desc;
  desc.kernel = instr.opcode == Opcode::copy   ? KernelName::copy
                : instr.opcode == Opcode::pack ? KernelName::pack
                                               : KernelName::unpack;
  desc.op = Op::Identity;
  desc.inputs = {moved};
  desc.outputs = {moved};
  return desc;
}

ComputeDesc sum_desc(size_t operands, const TensorType& type) {
  ComputeDesc desc;
  desc.kernel = KernelName::reduce;
  desc.op = Op::Sum;
  desc.inputs.assign(operands, type);
  desc.outputs = {type};
  return desc;
}

Instr cast_instr(Program& program, const DeviceProgram& device, const Operand& from, const Operand& to) {
  ComputeDesc desc;
  desc.op = Op::Cast;
  desc.inputs = {type_of(device, from)};
  desc.outputs = {type_of(device, to)};
  desc.attrs = {{"to", std::string(name_of(desc.outputs[0].dtype))}};
  desc.kernel = choose_kernel(desc, device.level).value();
  Instr instr;
  instr.opcode = Opcode::compute;
  instr.desc = intern_desc(program, desc);
  instr.reads = {from};
  instr.writes = {to};
  return instr;
}

}  // namespace nlsplit::inline program
