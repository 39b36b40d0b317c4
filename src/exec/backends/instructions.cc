#include "exec/backends/instructions.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "exec/sum.h"
#include "program/scalars.h"

namespace nlsplit::inline exec {
namespace {

Status compute(const Program& program, const DeviceProgram& device, const KernelTable& kernels, const Slot& slot,
               const Instr& instr, std::byte* arena, const Crew& crew) {
  constexpr size_t usual = 8;  // operands of nearly every kernel; more than that only Concat and Sum have
  const void* few_inputs[usual];
  void* few_outputs[usual];
  std::vector<const void*> many_inputs;
  std::vector<void*> many_outputs;
  const void** inputs = few_inputs;
  void** outputs = few_outputs;
  if (instr.reads.size() > usual) {
    many_inputs.resize(instr.reads.size());
    inputs = many_inputs.data();
  }
  if (instr.writes.size() > usual) {
    many_outputs.resize(instr.writes.size());
    outputs = many_outputs.data();
  }
  const auto address = [&](const Operand& operand) -> std::byte* {
    return operand.buffer.valid() ? arena + address_of(device, slot, operand) : nullptr;
  };
  for (size_t i = 0; i < instr.reads.size(); ++i) inputs[i] = address(instr.reads[i]);
  for (size_t i = 0; i < instr.writes.size(); ++i) outputs[i] = address(instr.writes[i]);
  const auto desc = static_cast<size_t>(instr.desc);
  RETURN_IF_ERROR(check_values(device, instr, program.descs[desc], inputs));
  kernels[desc]->run({&program.descs[desc], inputs, outputs, address(instr.workspace), crew});
  return ok_status();
}

void reduce(const DeviceProgram& device, const Slot& slot, const Instr& instr, std::byte* arena) {
  std::vector<const void*> terms;
  for (const Operand& read : instr.reads) terms.push_back(arena + address_of(device, slot, read));
  const TensorType type = type_of(device, instr.writes[0]);
  add_terms(type.dtype, arena + address_of(device, slot, instr.writes[0]), terms.data(), terms.size(),
            stored_elements(type));
}

// Between a tensor and its part [begin, end) along an axis: one run of bytes for each index of the axes before it.
void move_part(const DeviceProgram& device, const Slot& slot, const Instr& instr, std::byte* arena) {
  const bool packs = instr.opcode == Opcode::pack;
  const Operand& whole = packs ? instr.reads[0] : instr.writes[0];
  const Operand& part = packs ? instr.writes[0] : instr.reads[0];
  const TensorType type = type_of(device, whole);
  const auto axis = static_cast<size_t>(instr.axis);
  int64_t before = 1, inner = size_of(type.dtype);
  for (size_t i = 0; i < axis; ++i) before *= type.shape[i];
  for (size_t i = axis + 1; i < type.shape.size(); ++i) inner *= type.shape[i];
  const auto run = static_cast<size_t>((instr.end - instr.begin) * inner);
  std::byte* in_whole = arena + address_of(device, slot, whole) + instr.begin * inner;
  std::byte* in_part = arena + address_of(device, slot, part);
  for (int64_t i = 0; i < before; ++i) {
    std::memmove(packs ? in_part : in_whole, packs ? in_whole : in_part, run);
    in_whole += type.shape[axis] * inner;
    in_part += run;
  }
}

// The instruction that reads a packed buffer tells its kernel and shapes.
const Instr* reader_of_packed(const Program& program, const DeviceProgram& device, const Buffer& buffer) {
  const auto input = static_cast<size_t>(buffer.packed_input);
  for (const Segment& segment : device.segments) {
    for (const Instr& instr : segment.instrs) {
      if (instr.opcode != Opcode::compute || input >= instr.reads.size() || !instr.reads[input].buffer.valid())
        continue;
      if (program.descs[static_cast<size_t>(instr.desc)].kernel != buffer.packed_for) continue;
      if (&device.buffer(device.root(instr.reads[input].buffer)) == &buffer) return &instr;
    }
  }
  return nullptr;
}

}  // namespace

Status execute(const Program& program, const DeviceProgram& device, const KernelTable& kernels, const Slot& slot,
               const Instr& instr, std::byte* arena, const Crew& crew) {
  switch (instr.opcode) {
    case Opcode::compute:
      return compute(program, device, kernels, slot, instr, arena, crew);
    case Opcode::reduce:
      reduce(device, slot, instr, arena);
      return ok_status();
    case Opcode::copy:
      std::memmove(arena + address_of(device, slot, instr.writes[0]), arena + address_of(device, slot, instr.reads[0]),
                   static_cast<size_t>(bytes_of(device, instr.reads[0]).value()));
      return ok_status();
    case Opcode::pack:
    case Opcode::unpack:
      move_part(device, slot, instr, arena);
      return ok_status();
    case Opcode::send:
    case Opcode::recv:
      CHECK(false, "transfers are the transport's");
  }
  CHECK(false, "unknown opcode");
}

std::byte* instance_data(const Buffer& buffer, int instance, std::byte* arena) {
  return arena + buffer.offset + instance * buffer.stride();
}

Status place_content(const Program& program, const DeviceProgram& device, const KernelTable& kernels,
                     const Buffer& buffer, std::string_view raw, std::byte* arena) {
  for (int instance = 0; instance < buffer.instances; ++instance) {
    std::byte* to = instance_data(buffer, instance, arena);
    if (raw.empty()) {
      std::memset(to, 0, static_cast<size_t>(buffer.bytes.value()));
      continue;
    }
    if (static_cast<int64_t>(raw.size()) != size_of(buffer.type).value()) {
      return invalid_input(fmt::format("device {} buffer {} is {}, {} B, but its content {} has {} B", device.name,
                                       buffer.name, to_string(buffer.type), size_of(buffer.type).value(),
                                       hex16(buffer.content.value), raw.size()));
    }
    if (buffer.packed_for.empty()) {
      std::memcpy(to, raw.data(), raw.size());
      continue;
    }
    const Instr* reader = reader_of_packed(program, device, buffer);
    if (reader == nullptr) {
      return invalid_input(fmt::format("device {} buffer {} is packed for {}, which never reads it", device.name,
                                       buffer.name, to_string(buffer.packed_for)));
    }
    const auto desc = static_cast<size_t>(reader->desc);
    CHECK(kernels[desc]->pack != nullptr, "the catalogue says this kernel packs");
    kernels[desc]->pack(program.descs[desc], static_cast<size_t>(buffer.packed_input), raw.data(), to);
  }
  return ok_status();
}

}  // namespace nlsplit::inline exec
