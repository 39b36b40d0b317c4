#include "program/program.h"

#include <algorithm>

#include "graph/memory.h"

namespace nlsplit::inline program {

std::string_view name_of(BufferKind kind) {
  switch (kind) {
    case BufferKind::input:
      return "input";
    case BufferKind::output:
      return "output";
    case BufferKind::weight:
      return "weight";
    case BufferKind::state:
      return "state";
    case BufferKind::stash:
      return "stash";
    case BufferKind::scratch:
      return "scratch";
    case BufferKind::comm:
      return "comm";
    case BufferKind::view:
      return "view";
  }
  CHECK(false, "unknown buffer kind");
}

std::string_view name_of(Opcode opcode) {
  switch (opcode) {
    case Opcode::compute:
      return "compute";
    case Opcode::reduce:
      return "reduce";
    case Opcode::copy:
      return "copy";
    case Opcode::pack:
      return "pack";
    case Opcode::unpack:
      return "unpack";
    case Opcode::send:
      return "send";
    case Opcode::recv:
      return "recv";
  }
  CHECK(false, "unknown opcode");
}

int64_t Buffer::stride() const { return (bytes.value() + arena_alignment - 1) / arena_alignment * arena_alignment; }

int64_t Buffer::extent() const { return (instances - 1) * stride() + bytes.value(); }

const Collective* native_of(const Segment& segment, const Instr& instr) {
  if (instr.collective < 0) return nullptr;
  const Collective& collective = segment.collectives[static_cast<size_t>(instr.collective)];
  return collective.native ? &collective : nullptr;
}

bool has_native(const DeviceProgram& device) {
  const auto is_native = [](const Collective& collective) { return collective.native.has_value(); };
  return std::ranges::any_of(
      device.segments, [&](const Segment& segment) { return std::ranges::any_of(segment.collectives, is_native); });
}

Bytes bytes_of(const DeviceProgram& device, const Operand& operand) {
  const Buffer& buffer = device.buffer(operand.buffer);
  if (!operand.whole()) return bytes(size_of(buffer.type.dtype, operand.end - operand.begin));
  return size_of(buffer.type);
}

TensorType type_of(const DeviceProgram& device, const Operand& operand) {
  const Buffer& buffer = device.buffer(operand.buffer);
  if (operand.whole()) return buffer.type;
  return {buffer.type.dtype, {operand.end - operand.begin}};
}

int instance_of(const DeviceProgram& device, const Slot& slot, BufferId buffer) {
  const BufferId root = device.root(buffer);
  for (const InstanceUse& use : slot.instances) {
    if (use.buffer == root) return use.instance;
  }
  return 0;
}

int64_t address_of(const DeviceProgram& device, const Slot& slot, const Operand& operand) {
  const Buffer& buffer = device.buffer(operand.buffer);
  const Buffer& root = device.buffer(device.root(operand.buffer));
  return root.offset + instance_of(device, slot, operand.buffer) * root.stride() +
         size_of(buffer.type.dtype, operand.begin);
}

int intern_desc(Program& program, const ComputeDesc& desc) {
  const auto found = std::find(program.descs.begin(), program.descs.end(), desc);
  if (found != program.descs.end()) return static_cast<int>(found - program.descs.begin());
  program.descs.push_back(desc);
  return static_cast<int>(program.descs.size()) - 1;
}

std::vector<int> number_descs_by_use(Program& program) {
  std::vector<int> before, now(program.descs.size(), -1);
  std::vector<ComputeDesc> descs;
  for (DeviceProgram& device : program.devices) {
    for (Segment& segment : device.segments) {
      for (Instr& instr : segment.instrs) {
        if (instr.opcode != Opcode::compute) continue;
        int& number = now[static_cast<size_t>(instr.desc)];
        if (number < 0) {
          number = static_cast<int>(descs.size());
          before.push_back(instr.desc);
          descs.push_back(program.descs[static_cast<size_t>(instr.desc)]);
        }
        instr.desc = number;
      }
    }
  }
  program.descs = std::move(descs);
  return before;
}

}  // namespace nlsplit::inline program
