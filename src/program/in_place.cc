#include "program/in_place.h"

namespace nlsplit::inline program {

uint64_t in_place_reads(const Program& program, const Instr& instr) {
  if (instr.opcode != Opcode::compute) return 0;
  return in_place_inputs(program.descs[static_cast<size_t>(instr.desc)]);
}

bool may_overwrite(const DeviceProgram& device, const Instr& instr, uint64_t allowed, BufferId held) {
  if (allowed == 0 || instr.writes.size() != 1 || !instr.writes[0].whole()) return false;
  const BufferId result = device.root(instr.writes[0].buffer);
  if (result == held || device.buffer(result).bytes != device.buffer(held).bytes) return false;
  if (instr.workspace.buffer.valid() && device.root(instr.workspace.buffer) == held) return false;
  bool reads = false;
  for (size_t i = 0; i < instr.reads.size(); ++i) {
    const Operand& read = instr.reads[i];
    if (!read.buffer.valid() || device.root(read.buffer) != held) continue;
    if (!read.whole() || i >= 64 || (allowed >> i & 1) == 0) return false;
    reads = true;
  }
  return reads;
}

}  // namespace nlsplit::inline program
