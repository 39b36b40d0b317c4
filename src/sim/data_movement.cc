#include "sim/data_movement.h"

#include "graph/operators/operator.h"

namespace nlsplit {

ComputeDesc movement_desc(const DeviceProgram& device, const Instr& instr) {
  CHECK(instr.opcode != Opcode::compute && !is_transfer(instr.opcode),
        "only instructions that move data within a device");
  ComputeDesc desc;
  desc.kernel = name_of(instr.opcode);
  desc.op = instr.opcode == Opcode::reduce ? Op::Sum : Op::Identity;
  // A pack writes what it takes out of the whole, an unpack reads what it puts in.
  const TensorType moved = type_of(device, instr.opcode == Opcode::unpack ? instr.reads[0] : instr.writes[0]);
  desc.inputs.assign(instr.opcode == Opcode::reduce ? instr.reads.size() : 1, moved);
  desc.outputs = {moved};
  return desc;
}

}  // namespace nlsplit
