// InstructionChecker: what an instruction reads and writes is what its operands have.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "graph/memory.h"
#include "kernels/without_kernel.h"
#include "program/scalars.h"
#include "program/text.h"
#include "program/verify_parts.h"

namespace nlsplit::inline program {
namespace {

// The bytes of an operand within an instance of its buffer.
struct OperandBytes {
  BufferId root;
  int64_t begin, end;
  friend bool operator==(const OperandBytes&, const OperandBytes&) = default;
};

OperandBytes operand_bytes(const DeviceProgram& device, const Operand& operand) {
  const int64_t begin = size_of(device.buffer(operand.buffer).type.dtype, operand.begin);
  return {device.root(operand.buffer), begin, begin + bytes_of(device, operand).value()};
}

bool share_bytes(const OperandBytes& a, const OperandBytes& b) {
  return a.root == b.root && a.begin < b.end && b.begin < a.end;
}

// A weight's gradient may lie in a buffer of all gradients of a stage, and a weight in one of several weights: then it
// is a slice, flat but of the same size.
bool is_or_holds(const TensorType& given, const Operand& operand, const TensorType& wanted) {
  return given == wanted || (!operand.whole() && given.dtype == wanted.dtype && given.block == wanted.block &&
                             element_count(given.shape) == element_count(wanted.shape));
}

Status check_operands(const DeviceProgram& device, std::string_view what, std::span<const Operand> operands,
                      std::span<const TensorType> types) {
  if (operands.size() != types.size())
    return invalid_input(fmt::format("{} {}s where there must be {}", operands.size(), what, types.size()));
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].buffer.valid()) return invalid_input(fmt::format("{} {} is left out", what, i));
    const TensorType given = type_of(device, operands[i]);
    if (!is_or_holds(given, operands[i], types[i]))
      return invalid_input(fmt::format("{} {} is {}, not {}", what, i, to_string(given), to_string(types[i])));
  }
  return ok_status();
}

// No kernel, so no level, packing or workspace.
Status check_without_kernel(const DeviceProgram& device, const Instr& instr, const ComputeDesc& desc) {
  if (instr.workspace.buffer.valid()) return invalid_input("it has no kernel that needs a workspace");
  RETURN_IF_ERROR(verify_without_kernel(desc));
  RETURN_IF_ERROR(check_operands(device, "operand", instr.reads, desc.inputs));
  return check_operands(device, "result", instr.writes, desc.outputs);
}

// A sum may be one of its terms, but not shifted against it.
Status check_sum_in_place(const DeviceProgram& device, const Instr& instr) {
  const OperandBytes to = operand_bytes(device, instr.writes[0]);
  for (const Operand& read : instr.reads) {
    const OperandBytes from = operand_bytes(device, read);
    if (share_bytes(from, to) && from != to) return invalid_input("reduce writes a part of what it reads");
  }
  return ok_status();
}

// Kernels write their results apart from each other and from what they read, but for the operands in whose place a
// result may lie.
Status check_results_apart(const DeviceProgram& device, const Instr& instr, uint64_t in_place) {
  for (size_t i = 0; i < instr.writes.size(); ++i) {
    const OperandBytes to = operand_bytes(device, instr.writes[i]);
    for (size_t j = 0; j < i; ++j) {
      if (share_bytes(to, operand_bytes(device, instr.writes[j])))
        return invalid_input(fmt::format("results {} and {} share bytes", j, i));
    }
    for (size_t j = 0; j < instr.reads.size(); ++j) {
      const OperandBytes from = operand_bytes(device, instr.reads[j]);
      if (!share_bytes(from, to)) continue;
      const bool allowed = j < 64 && (in_place >> j & 1) != 0 && from == to;
      if (!allowed) return invalid_input(fmt::format("result {} lies where operand {} does", i, j));
    }
  }
  return ok_status();
}

Status check_workspace(const DeviceProgram& device, const Instr& instr, Bytes needed) {
  const BufferId room = instr.workspace.buffer;
  const Bytes given = room.valid() ? device.buffer(room).bytes : bytes(0);
  if (room.valid()) {
    const Buffer& buffer = device.buffer(room);
    if (!instr.workspace.whole()) return invalid_input("a workspace is a whole buffer, not a slice of one");
    if (buffer.kind != BufferKind::scratch)
      return invalid_input(fmt::format("a workspace is a buffer of kind scratch, and {} is of kind {}", buffer.name,
                                       name_of(buffer.kind)));
    for (const std::vector<Operand>* operands : {&instr.reads, &instr.writes}) {
      for (const Operand& operand : *operands) {
        if (device.root(operand.buffer) == room)
          return invalid_input(fmt::format("{} is its workspace and an operand", buffer.name));
      }
    }
  }
  if (given >= needed) return ok_status();
  return invalid_input(fmt::format("it needs {} B of workspace and has {} B", needed.value(), given.value()));
}

Status check_movement(const DeviceProgram& device, const Instr& instr) {
  const auto type = [&](const Operand& operand) { return type_of(device, operand); };
  switch (instr.opcode) {
    case Opcode::compute:
    case Opcode::send:
    case Opcode::recv:
      return ok_status();
    case Opcode::reduce:
      for (const Operand& read : instr.reads) {
        const DType dtype = type(read).dtype;
        if (!is_real(dtype) || dtype == DType::f64 || dtype != type(instr.writes[0]).dtype)
          return invalid_input("reduce needs operands of its result's type: f32, f16 or bf16");
        if (type(read).block != type(instr.writes[0]).block ||
            stored_elements(type(read)) != stored_elements(type(instr.writes[0]))) {
          return invalid_input("reduce needs operands with as many elements as its result, in its layout");
        }
      }
      return check_sum_in_place(device, instr);
    case Opcode::copy:
      if (bytes_of(device, instr.reads[0]) != bytes_of(device, instr.writes[0]))
        return invalid_input("copy between different sizes");
      if (type(instr.reads[0]).block != type(instr.writes[0]).block)
        return invalid_input("copy between different layouts");
      return ok_status();
    case Opcode::pack:
    case Opcode::unpack: {
      const bool packs = instr.opcode == Opcode::pack;
      const TensorType whole = type(packs ? instr.reads[0] : instr.writes[0]);
      if (whole.block != 0) return invalid_input(fmt::format("a part of {}, which is not row-major", to_string(whole)));
      if (is_scaled(whole.dtype))
        return invalid_input(fmt::format("a part of {}, whose elements share scales", to_string(whole)));
      TensorType part = whole;
      if (instr.axis < 0 || static_cast<size_t>(instr.axis) >= whole.shape.size()) return invalid_input("no such axis");
      int64_t& extent = part.shape[static_cast<size_t>(instr.axis)];
      if (instr.begin < 0 || instr.end > extent || instr.begin >= instr.end)
        return invalid_input("begin and end leave the axis");
      extent = instr.end - instr.begin;
      if (size_of(part) != bytes_of(device, packs ? instr.writes[0] : instr.reads[0])) {
        return invalid_input(fmt::format("the part is {}, another size than its buffer", to_string(part)));
      }
      return ok_status();
    }
  }
  CHECK(false, "unknown opcode");
}

// Only the kernel that a weight is packed for knows its bytes.
Status check_unpacked(const DeviceProgram& device, const Instr& instr) {
  for (const Operand& read : instr.reads) {
    if (!read.buffer.valid()) continue;
    const Buffer& buffer = device.buffer(device.root(read.buffer));
    if (!buffer.packed_for.empty())
      return invalid_input(fmt::format("reads {}, which is packed for {}", buffer.name, to_string(buffer.packed_for)));
  }
  return ok_status();
}

Status check_kept(const DeviceProgram& device, const Instr& instr) {
  for (const Operand& write : instr.writes) {
    const BufferKind kind = device.buffer(device.root(write.buffer)).kind;
    if (kind == BufferKind::weight || kind == BufferKind::input)
      return invalid_input(fmt::format("writes a buffer of kind {}", name_of(kind)));
  }
  return ok_status();
}

}  // namespace

Status InstructionChecker::check_kernel(const DeviceProgram& device, const Instr& instr,
                                        std::vector<bool>& read_packed) {
  const ComputeDesc& desc = program_.descs[static_cast<size_t>(instr.desc)];
  const auto kernel = [&] { return to_string(desc.kernel); };
  if (!is_in_catalogue(desc.kernel.name))
    return invalid_input(fmt::format("\"{}\" is not a kernel of the catalogue", kernel()));
  if (desc.kernel.level != device.level)
    return invalid_input(fmt::format("kernel {} is not of the device's level {}", kernel(), name_of(device.level)));
  if (instr.reads.size() != desc.inputs.size() || instr.writes.size() != desc.outputs.size()) {
    return invalid_input("the operands do not fit the computation's description");
  }
  if (!known_[static_cast<size_t>(instr.desc)]) RETURN_IF_ERROR(verify(desc));  // before a kernel sees it
  known_[static_cast<size_t>(instr.desc)] = true;
  for (size_t i = 0; i < instr.reads.size(); ++i) {
    const Operand& operand = instr.reads[i];
    if (!operand.buffer.valid()) return invalid_input(fmt::format("operand {} is left out", i));
    if (!is_or_holds(type_of(device, operand), operand, desc.inputs[i]))
      return invalid_input(fmt::format("operand {} has another type", i));
    const BufferId root = device.root(operand.buffer);
    const Buffer& buffer = device.buffer(root);
    const Bytes packed = packed_bytes_of(desc, i);
    const KernelId wanted = packed.value() > 0 ? desc.kernel : KernelId();
    if (buffer.packed_for != wanted ||
        (!wanted.empty() && (buffer.packed_input != static_cast<int>(i) || buffer.bytes != packed))) {
      return invalid_input(fmt::format("operand {} ({}) is not packed as {} wants it", i, buffer.name, kernel()));
    }
    if (!wanted.empty()) read_packed[root.index()] = true;
  }
  for (size_t i = 0; i < instr.writes.size(); ++i) {
    if (!is_or_holds(type_of(device, instr.writes[i]), instr.writes[i], desc.outputs[i])) {
      return invalid_input(fmt::format("result {} is {}, but {} makes {}", i,
                                       to_string(type_of(device, instr.writes[i])), name_of(desc.op),
                                       to_string(desc.outputs[i])));
    }
    const OperandBytes place = operand_bytes(device, instr.writes[i]);
    const bool alone = element_count(desc.outputs[i].shape) == 1;  // a number: aligned as its type wants it
    const int64_t aligned = alone ? place.end - place.begin : arena_alignment;
    if (place.begin % aligned != 0)
      return invalid_input(fmt::format("result {} begins at no multiple of {} B", i, aligned));
  }
  if (info_of(desc.kernel.name).only_in_place &&
      operand_bytes(device, instr.writes[0]) != operand_bytes(device, instr.reads[0]))
    return invalid_input(
        fmt::format("{} changes its first operand where it lies, and its result lies elsewhere", kernel()));
  RETURN_IF_ERROR(check_results_apart(device, instr, in_place_inputs(desc)));
  return check_workspace(device, instr, workspace_of(desc, device.cores));
}

Status InstructionChecker::check_instr(const DeviceProgram& device, const Instr& instr,
                                       std::vector<bool>& read_packed) {
  if (instr.opcode != Opcode::compute) {
    RETURN_IF_ERROR(check_unpacked(device, instr));
    RETURN_IF_ERROR(check_movement(device, instr));
    return check_kept(device, instr);
  }
  const ComputeDesc& desc = program_.descs[static_cast<size_t>(instr.desc)];
  if (has_no_kernel(desc)) {
    RETURN_IF_ERROR(check_unpacked(device, instr));
    RETURN_IF_ERROR(check_without_kernel(device, instr, desc));
  } else {
    RETURN_IF_ERROR(check_kernel(device, instr, read_packed));
  }
  RETURN_IF_ERROR(check_maxima(device, instr, desc));
  return check_kept(device, instr);
}

Status InstructionChecker::check(size_t d) {
  const DeviceProgram& device = program_.devices[d];
  std::vector<bool> read_packed(device.buffers.size(), false);
  for (const Segment& segment : device.segments) {
    for (const Instr& instr : segment.instrs) {
      const Status status = check_instr(device, instr, read_packed);
      if (status.ok()) continue;
      return invalid_input(fmt::format("device {} segment {} `{}`: {}", device.name, segment.name,
                                       to_string(program_, device, instr), status.error().message));
    }
  }
  for (size_t b = 0; b < device.buffers.size(); ++b) {
    const Buffer& buffer = device.buffers[b];
    if (!buffer.packed_for.empty() && !read_packed[b])
      return invalid_input(fmt::format("device {} buffer {}: packed for {}, which never reads it", device.name,
                                       buffer.name, to_string(buffer.packed_for)));
  }
  return ok_status();
}

}  // namespace nlsplit::inline program
