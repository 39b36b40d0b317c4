#include "program/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "kernels/gradient.h"
#include "program/text.h"

namespace nlsplit {
namespace {

// A weight's gradient may lie in a buffer of all gradients of a stage: then it is a slice, flat but of the same size.
Status check_operands(const DeviceProgram& device, std::string_view what, std::span<const Operand> operands,
                      std::span<const TensorType> types) {
  if (operands.size() != types.size())
    return invalid_input(fmt::format("{} {}s where there must be {}", operands.size(), what, types.size()));
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].buffer.valid()) return invalid_input(fmt::format("{} {} is left out", what, i));
    const TensorType given = type_of(device, operands[i]);
    const bool slice = !operands[i].whole() && given.dtype == types[i].dtype &&
                       element_count(given.shape) == element_count(types[i].shape);
    if (given != types[i] && !slice)
      return invalid_input(fmt::format("{} {} is {}, not {}", what, i, to_string(given), to_string(types[i])));
  }
  return ok_status();
}

// Gradients and updates: no kernel, so no level, packing or workspace.
Status check_training(const DeviceProgram& device, const Instr& instr, const ComputeDesc& desc) {
  RETURN_IF_ERROR(is_gradient(desc) ? verify_gradient(desc) : verify_update(desc));
  const GradientOperands of = is_gradient(desc) ? gradient_operands(desc) : GradientOperands{desc.inputs, desc.outputs};
  RETURN_IF_ERROR(check_operands(device, "operand", instr.reads, of.reads));
  return check_operands(device, "result", instr.writes, of.writes);
}

// known: [desc]: the kernel of a description that was verified before.
Status check_compute(const Program& program, const DeviceProgram& device, const Instr& instr,
                     std::vector<const KernelInfo*>& known) {
  const ComputeDesc& desc = program.descs[static_cast<size_t>(instr.desc)];
  if (has_no_kernel(desc)) return check_training(device, instr, desc);
  const KernelInfo*& seen = known[static_cast<size_t>(instr.desc)];
  const KernelInfo* kernel = seen != nullptr ? seen : find_kernel(desc.kernel);
  if (kernel == nullptr) return invalid_input(fmt::format("there is no kernel called {}", desc.kernel));
  if (isa_of(desc.kernel) != device.isa) {
    return invalid_input(fmt::format("kernel {} is not of the device's level {}", desc.kernel, name_of(device.isa)));
  }
  if (instr.reads.size() != desc.inputs.size() || instr.writes.size() != desc.outputs.size()) {
    return invalid_input("the operands do not fit the computation's description");
  }
  if (seen == nullptr) RETURN_IF_ERROR(verify(desc));  // before a kernel is asked anything about it
  seen = kernel;
  for (size_t i = 0; i < instr.reads.size(); ++i) {
    const Operand& operand = instr.reads[i];
    if (!operand.buffer.valid()) return invalid_input(fmt::format("operand {} is left out", i));
    if (type_of(device, operand) != desc.inputs[i]) return invalid_input(fmt::format("operand {} has another type", i));
    const Buffer& buffer = device.buffer(device.root(operand.buffer));
    const Bytes packed = kernel->packed_bytes == nullptr ? bytes(0) : kernel->packed_bytes(desc, i, device.isa);
    const std::string wanted = packed.value() > 0 ? desc.kernel : "";
    if (buffer.packed_for != wanted ||
        (!wanted.empty() && (buffer.packed_input != static_cast<int>(i) || buffer.bytes != packed))) {
      return invalid_input(fmt::format("operand {} ({}) is not packed as {} wants it", i, buffer.name, desc.kernel));
    }
  }
  for (size_t i = 0; i < instr.writes.size(); ++i) {
    if (type_of(device, instr.writes[i]) != desc.outputs[i]) {
      return invalid_input(fmt::format("result {} is {}, but {} makes {}", i,
                                       to_string(type_of(device, instr.writes[i])), name_of(desc.op),
                                       to_string(desc.outputs[i])));
    }
  }
  const Bytes needed = workspace_of(*kernel, desc, device.isa, device.cores);
  const Bytes given = instr.workspace.buffer.valid() ? device.buffer(instr.workspace.buffer).bytes : bytes(0);
  if (given < needed) {
    return invalid_input(
        fmt::format("kernel {} needs {} B of workspace and has {} B", desc.kernel, needed.value(), given.value()));
  }
  return ok_status();
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
      return ok_status();
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

Status check_instructions(const Program& program) {
  std::vector<const KernelInfo*> known(program.descs.size(), nullptr);
  for (const DeviceProgram& device : program.devices) {
    for (const Segment& segment : device.segments) {
      for (const Instr& instr : segment.instrs) {
        const Status status = instr.opcode == Opcode::compute ? check_compute(program, device, instr, known)
                                                              : check_movement(device, instr);
        if (!status.ok()) {
          return invalid_input(fmt::format("device {} segment {} `{}`: {}", device.name, segment.name,
                                           to_string(program, device, instr), status.error().message));
        }
        for (const Operand& write : instr.writes) {
          const BufferKind kind = device.buffer(device.root(write.buffer)).kind;
          if (kind == BufferKind::weight || kind == BufferKind::input) {
            return invalid_input(fmt::format("device {} segment {} `{}`: writes a buffer of kind {}", device.name,
                                             segment.name, to_string(program, device, instr), name_of(kind)));
          }
        }
      }
    }
  }
  return ok_status();
}

struct Seen {
  size_t device = 0, slot = 0;
};

// Stages: every micro-batch once through every (stage, shard, phase). Segments that feed or collect, and those without
// a micro-batch: at most once each on their device.
Status check_micro_batches(const Program& program) {
  std::map<std::tuple<int, int, Phase>, std::map<int, Seen>> work;
  std::set<std::tuple<size_t, int, int>> once;
  for (size_t d = 0; d < program.devices.size(); ++d) {
    const DeviceProgram& device = program.devices[d];
    for (size_t s = 0; s < device.order.size(); ++s) {
      const Slot& slot = device.order[s];
      const Segment& segment = device.segments[static_cast<size_t>(slot.segment)];
      const std::string where = fmt::format("device {} slot {} ({})", device.name, s, slot_name(device, slot));
      const bool whole_run = segment.phase == Phase::init || segment.phase == Phase::step;
      if (whole_run != (slot.micro_batch < 0)) {
        return invalid_input(fmt::format("{}: a segment of phase {} {} a micro-batch", where, name_of(segment.phase),
                                         whole_run ? "has not" : "needs"));
      }
      if (whole_run || segment.stage == io_stage) {
        if (!once.insert({d, slot.segment, slot.micro_batch}).second) {
          return invalid_input(fmt::format("{}: runs a second time", where));
        }
        continue;
      }
      const auto [at, added] =
          work[{segment.stage, segment.shard, segment.phase}].try_emplace(slot.micro_batch, Seen{d, s});
      if (!added) {
        return invalid_input(
            fmt::format("{}: micro-batch {} runs twice through stage {} {}; the first time on device {} slot {}", where,
                        slot.micro_batch, segment.stage, name_of(segment.phase),
                        program.devices[at->second.device].name, at->second.slot));
      }
    }
  }
  for (const auto& [key, seen] : work) {
    const auto& [stage, shard, phase] = key;
    if (phase == Phase::recompute) continue;  // whoever kept its activations need not
    for (int m = 0; m < program.micro_batches; ++m) {
      if (seen.contains(m)) continue;
      const DeviceProgram& device = program.devices[seen.begin()->second.device];
      return invalid_input(fmt::format("micro-batch {} never runs through stage {} {} (device {} runs others)", m,
                                       stage, name_of(phase), device.name));
    }
  }
  return ok_status();
}

Status check_memory(const Program& program) {
  for (const DeviceProgram& device : program.devices) {
    if (device.arena > device.memory) {
      return invalid_input(fmt::format("device {} has {} of memory, and this needs {}", device.name,
                                       to_string(device.memory), to_string(device.arena)));
    }
  }
  return ok_status();
}

}  // namespace

Status verify(const Program& program) {
  RETURN_IF_ERROR(check_structure(program));
  RETURN_IF_ERROR(check_instructions(program));
  ASSIGN_OR_RETURN(const Dependencies deps, dependencies(program));
  RETURN_IF_ERROR(check_micro_batches(program));
  ASSIGN_OR_RETURN(const std::vector<uint32_t> order, dry_run(program, deps));
  RETURN_IF_ERROR(check_overlaps(program, deps, order));
  return check_memory(program);
}

}  // namespace nlsplit
