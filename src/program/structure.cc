// check_structure: the part of verify that makes every index of a Program safe to follow.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "graph/memory.h"
#include "program/state_parts.h"
#include "program/text.h"
#include "program/verify.h"

namespace nlsplit::inline program {
namespace {

// A packed buffer has the kernel's bytes, not its type's: nothing but the kernel may touch it.
Status check_packed(const Buffer& buffer) {
  if (buffer.packed_for.empty()) return ok_status();
  if (buffer.kind != BufferKind::weight) return invalid_input("only weights are packed for a kernel");
  if (buffer.packed_input < 0) return invalid_input("packed for no input");
  return ok_status();
}

Status check_maximum(const Buffer& buffer) {
  if (!buffer.max) return ok_status();
  if (buffer.kind == BufferKind::view) return invalid_input("a view has the maximum of what it is a view of");
  const bool small = buffer.type.dtype == DType::i32;
  if (!small && buffer.type.dtype != DType::i64) return invalid_input("only i64 and i32 have a maximum");
  if (*buffer.max < 0 || (small && *buffer.max > std::numeric_limits<int32_t>::max()))
    return invalid_input(fmt::format("no value of its type is the maximum {}", *buffer.max));
  return ok_status();
}

Status check_state_part(const Buffer& buffer) {
  if (!buffer.part) return ok_status();
  const StatePart& part = *buffer.part;
  if (buffer.kind != BufferKind::state || buffer.instances != 1 || block_of(buffer.type.dtype) != 1)
    return invalid_input("only a state with one instance is part of a tensor");
  if (part.axis < 0 || static_cast<size_t>(part.axis) >= buffer.type.shape.size())
    return invalid_input("a part along an axis that it has not");
  const int64_t extent = buffer.type.shape[static_cast<size_t>(part.axis)];
  if (extent < 1 || part.begin < 0 || part.begin > part.of - extent)
    return invalid_input("a part that is not within its tensor");
  return check_type(whole_type_of(buffer));
}

// Messages, where they are kept for a while, and weights.
Status check_scaled(const Buffer& buffer) {
  const DType type = buffer.type.dtype;
  if (!is_scaled(type) || buffer.kind == BufferKind::weight) return ok_status();
  if (type != DType::q8_0) return invalid_input(fmt::format("only weights are {}", name_of(type)));
  const bool travels =
      buffer.kind == BufferKind::stash || buffer.kind == BufferKind::scratch || buffer.kind == BufferKind::comm;
  return travels ? ok_status() : invalid_input(fmt::format("only weights and messages are {}", name_of(type)));
}

Status check_buffer(const DeviceProgram& device, size_t index) {
  const Buffer& buffer = device.buffers[index];
  const auto wrong = [&](std::string_view why) {
    return invalid_input(fmt::format("device {} buffer {}: {}", device.name, buffer.name, why));
  };
  if (const Status sound = check_type(buffer.type); !sound.ok()) return wrong(sound.error().message.c_str());
  if (const Status sound = check_maximum(buffer); !sound.ok()) return wrong(sound.error().message);
  if (const Status sound = check_state_part(buffer); !sound.ok()) return wrong(sound.error().message);
  if (const Status sound = check_scaled(buffer); !sound.ok()) return wrong(sound.error().message);
  if (buffer.kind == BufferKind::view) {
    if (!buffer.of.valid() || buffer.of.index() >= device.buffers.size()) return wrong("a view of nothing");
    const Buffer& root = device.buffer(buffer.of);
    if (root.kind == BufferKind::view) return wrong("a view of a view");
    if (size_of(root.type) != size_of(buffer.type)) return wrong("a view of another size");
    if (root.type != buffer.type && (root.type.block != 0 || buffer.type.block != 0))
      return wrong("a view of what is not row-major");
    return ok_status();
  }
  if (const Status sound = check_packed(buffer); !sound.ok()) return wrong(sound.error().message);
  if (buffer.bytes.value() < 0 || buffer.bytes.value() > most_bytes) return wrong("impossible size");
  if (buffer.packed_for.empty() && buffer.bytes < size_of(buffer.type)) return wrong("fewer bytes than its type needs");
  if (buffer.instances < 1 || buffer.instances > most_instances) return wrong("impossible number of instances");
  if (buffer.stride() > most_bytes / buffer.instances) return wrong("too large");
  if (buffer.offset < 0 || buffer.offset % arena_alignment != 0) return wrong("its place in the arena is not aligned");
  const int64_t extent = buffer.extent();
  if (extent > device.arena.value() || buffer.offset > device.arena.value() - extent) return wrong("leaves the arena");
  const bool travels =
      buffer.kind == BufferKind::stash || buffer.kind == BufferKind::scratch || buffer.kind == BufferKind::comm;
  if (buffer.type.block != 0 && !travels)
    return wrong("only stash, scratch and comm buffers are in blocks of channels");
  const bool has_bytes = buffer.kind == BufferKind::weight || buffer.kind == BufferKind::state;
  if (buffer.has_content && !has_bytes) return wrong("only weight and state buffers have content");
  if (buffer.kind == BufferKind::weight && !buffer.has_content) return wrong("a weight without content");
  return ok_status();
}

Status check_operand(const DeviceProgram& device, const Operand& operand, bool optional) {
  if (!operand.buffer.valid()) return optional ? ok_status() : Status(invalid_input("a missing operand"));
  if (operand.buffer.index() >= device.buffers.size()) return invalid_input("no such buffer");
  const Buffer& buffer = device.buffer(operand.buffer);
  if (!operand.whole() && buffer.type.block != 0)
    return invalid_input(fmt::format("a slice of {}, which is not row-major", buffer.name));
  if (operand.whole()) return operand.begin == 0 ? ok_status() : Status(invalid_input("a slice without end"));
  if (operand.begin < 0 || operand.begin >= operand.end || operand.end > element_count(buffer.type.shape)) {
    return invalid_input(fmt::format("slice {}:{} leaves buffer {}", operand.begin, operand.end, buffer.name));
  }
  if (!device.buffer(device.root(operand.buffer)).packed_for.empty())
    return invalid_input("a slice of a packed weight");
  const int64_t block = block_of(buffer.type.dtype);
  if (operand.begin % block != 0 || operand.end % block != 0) {
    return invalid_input(fmt::format("slice {}:{} of buffer {}, of which {} elements share a scale", operand.begin,
                                     operand.end, buffer.name, block));
  }
  return ok_status();
}

Status check_instr(const Program& program, size_t d, const Segment& segment, const Instr& instr) {
  const DeviceProgram& device = program.devices[d];
  for (const Operand& operand : instr.reads) RETURN_IF_ERROR(check_operand(device, operand, true));
  for (const Operand& operand : instr.writes) RETURN_IF_ERROR(check_operand(device, operand, false));
  RETURN_IF_ERROR(check_operand(device, instr.workspace, true));
  if (instr.workspace.buffer.valid() && instr.opcode != Opcode::compute)
    return invalid_input("only a computation has a workspace");
  if (instr.collective >= static_cast<int>(segment.collectives.size())) return invalid_input("no such collective");
  const bool sends = instr.opcode == Opcode::send, receives = instr.opcode == Opcode::recv;
  const size_t least_reads = receives ? 0 : 1;
  const bool computes = instr.opcode == Opcode::compute, reduces = instr.opcode == Opcode::reduce;
  if (instr.reads.size() < least_reads || (!computes && !reduces && instr.reads.size() > least_reads)) {
    return invalid_input("wrong number of operands");
  }
  if (instr.writes.size() != (sends ? 0u : 1u) && !(computes && !instr.writes.empty()))
    return invalid_input("wrong number of results");
  if (!computes) {
    for (const Operand& operand : instr.reads) RETURN_IF_ERROR(check_operand(device, operand, false));
  } else {
    if (instr.desc < 0 || static_cast<size_t>(instr.desc) >= program.descs.size())
      return invalid_input("no such computation");
    if (device.kind == DeviceKind::host) return invalid_input("an endpoint computes nothing");
  }
  if (is_transfer(instr.opcode)) {
    if (instr.peer < 0 || static_cast<size_t>(instr.peer) >= program.devices.size())
      return invalid_input("no such peer");
    if (static_cast<size_t>(instr.peer) == d) return invalid_input("a message to itself");
    if (instr.collective >= 0) {
      const std::vector<int>& group = segment.collectives[static_cast<size_t>(instr.collective)].group;
      if (std::ranges::find(group, instr.peer) == group.end())
        return invalid_input("a message of a collective to a device that is not in its group");
    }
    if (instr.tag < 0 || instr.tag > largest_tag)
      return invalid_input(fmt::format("a tag must be 0 … {}", largest_tag));
  }
  return ok_status();
}

// Bytes of an operand within its root buffer.
struct BufferRange {
  BufferId root;
  int64_t begin, end;
};
BufferRange range_of(const DeviceProgram& device, const Operand& operand) {
  const BufferId root = device.root(operand.buffer);
  if (operand.whole()) return {root, 0, device.buffer(root).bytes.value()};
  const DType dtype = device.buffer(operand.buffer).type.dtype;
  return {root, size_of(dtype, operand.begin), size_of(dtype, operand.end)};
}
bool overlap(const BufferRange& a, const BufferRange& b) {
  return a.root == b.root && a.begin < b.end && b.begin < a.end;
}

// The operands that a native collective is given. The structure of the segment's instructions is known to be sound.
Status check_native(const DeviceProgram& device, const Segment& segment, size_t place, int index) {
  const Collective& collective = segment.collectives[static_cast<size_t>(index)];
  const NativeBytes& native = *collective.native;
  RETURN_IF_ERROR(check_operand(device, native.value, false));
  RETURN_IF_ERROR(check_operand(device, native.result, false));
  const TensorType value = type_of(device, native.value), result = type_of(device, native.result);
  if (value.block != 0 || result.block != 0 || block_of(value.dtype) != 1 || value.dtype != result.dtype)
    return invalid_input("a native collective of other elements than a row-major value and result of one type");
  if ((collective.kind == CollectiveKind::all_to_all) != (native.value != native.result))
    return invalid_input(fmt::format(
        "a native {} {}", name_of(collective.kind),
        native.value == native.result ? "needs a result beside its value" : "has its result where its value is"));
  const auto check_count = [&](const TensorType& type, int64_t wanted, std::string_view what) {
    const int64_t has = element_count(type.shape);
    return has == wanted ? ok_status()
                         : Status(invalid_input(fmt::format("a native {} whose {} has {} elements instead of {}",
                                                            name_of(collective.kind), what, has, wanted)));
  };
  RETURN_IF_ERROR(check_count(value, value_elements(collective), "value"));
  RETURN_IF_ERROR(check_count(result, result_elements(collective, place), "result"));
  const std::array used = {range_of(device, native.value), range_of(device, native.result)};
  if (native.value != native.result && overlap(used[0], used[1]))
    return invalid_input("a native collective whose value and result overlap");
  // It takes its value when the first of its instructions could run, and its result is there when the last one is over.
  const auto is_part = [index](const Instr& instr) { return instr.collective == index; };
  const auto first = std::ranges::find_if(segment.instrs, is_part);
  if (first == segment.instrs.end()) return invalid_input("a native collective without instructions");
  const auto last = std::ranges::find_if(segment.instrs.rbegin(), segment.instrs.rend(), is_part).base();
  for (auto instr = first; instr != last; ++instr) {
    if (is_part(*instr)) continue;
    const auto touches = [&](const Operand& operand) {
      if (!operand.buffer.valid()) return false;
      const BufferRange range = range_of(device, operand);
      return overlap(range, used[0]) || overlap(range, used[1]);
    };
    if (std::ranges::any_of(instr->reads, touches) || std::ranges::any_of(instr->writes, touches))
      return invalid_input(
          fmt::format("a {} amid a native {} uses its value", name_of(instr->opcode), name_of(collective.kind)));
  }
  return ok_status();
}

Status check_member(const Program& program, size_t d, const Collective& collective) {
  RETURN_IF_ERROR(check_collective(collective, program.devices.size()));
  if (std::ranges::find(collective.group, static_cast<int>(d)) == collective.group.end())
    return invalid_input("a collective of a group that the device is not in");
  return ok_status();
}

// Whether the device's instructions can be its part of a collective. That they are sound is known.
Status check_part(const DeviceProgram& device, size_t d, const Segment& segment, int index) {
  const Collective& collective = segment.collectives[static_cast<size_t>(index)];
  const int64_t all = value_elements(collective);
  int64_t received = 0;
  for (const Instr& instr : segment.instrs) {
    if (instr.collective != index) continue;
    if (!is_transfer(instr.opcode) && instr.opcode != Opcode::reduce && instr.opcode != Opcode::copy)
      return invalid_input(fmt::format("a {} in a collective", name_of(instr.opcode)));
    if (instr.opcode == Opcode::reduce && !adds_up(collective.kind))
      return invalid_input(fmt::format("a reduce in {}", name_of(collective.kind)));
    if (!is_transfer(instr.opcode)) continue;
    const bool sends = instr.opcode == Opcode::send;
    const int64_t count = element_count(type_of(device, sends ? instr.reads[0] : instr.writes[0]).shape);
    if (count > all) return invalid_input(fmt::format("a message of {} elements in a collective of {}", count, all));
    if (!sends) received += count;
  }
  const auto place = std::ranges::find(collective.group, static_cast<int>(d)) - collective.group.begin();
  const int64_t least = least_received(collective, static_cast<size_t>(place));
  if (received < least) {
    return invalid_input(
        fmt::format("{} elements received in {}; it takes {}", received, name_of(collective.kind), least));
  }
  return collective.native ? check_native(device, segment, static_cast<size_t>(place), index) : ok_status();
}

Status check_device(const Program& program, size_t d) {
  const DeviceProgram& device = program.devices[d];
  if (device.memory.value() < 0 || device.memory.value() > unlimited_memory || device.arena.value() < 0 ||
      device.arena.value() > most_bytes) {
    return invalid_input(fmt::format("device {}: impossible size of memory or arena", device.name));
  }
  if (device.cores < 1 || device.cores > most_cores)
    return invalid_input(fmt::format("device {}: cores must be 1 … {}", device.name, most_cores));
  if ((device.kind == DeviceKind::cuda) != is_gpu(device.level.isa)) {
    return invalid_input(fmt::format("device {}: a device of kind {} has no level {}", device.name,
                                     name_of(device.kind), name_of(device.level)));
  }
  std::set<std::string_view> names;
  int64_t instances = 0;
  for (size_t b = 0; b < device.buffers.size(); ++b) {
    if (!names.insert(device.buffers[b].name).second) {
      return invalid_input(fmt::format("device {}: two buffers are called {}", device.name, device.buffers[b].name));
    }
    RETURN_IF_ERROR(check_buffer(device, b));
    instances += device.buffers[b].instances;
    if (instances > most_instances_of_device)
      return invalid_input(fmt::format("device {}: too many instances", device.name));
  }
  names.clear();
  for (const Segment& segment : device.segments) {
    if (!names.insert(segment.name).second) {
      return invalid_input(fmt::format("device {}: two segments are called {}", device.name, segment.name));
    }
    for (const Collective& collective : segment.collectives) {
      if (const Status status = check_member(program, d, collective); !status.ok()) {
        return invalid_input(
            fmt::format("device {} segment {}: {}", device.name, segment.name, status.error().message));
      }
    }
    for (const Instr& instr : segment.instrs) {
      const Status status = check_instr(program, d, segment, instr);
      if (!status.ok()) {
        return invalid_input(fmt::format("device {} segment {}, a {}: {}", device.name, segment.name,
                                         name_of(instr.opcode), status.error().message));
      }
    }
    for (int c = 0; c < std::ssize(segment.collectives); ++c) {
      if (const Status status = check_part(device, d, segment, c); !status.ok()) {
        return invalid_input(
            fmt::format("device {} segment {}: {}", device.name, segment.name, status.error().message));
      }
    }
  }
  std::vector<size_t> named_in(device.buffers.size(), 0);  // the last slot that gave an instance, plus 1
  for (size_t s = 0; s < device.order.size(); ++s) {
    const Slot& slot = device.order[s];
    const auto wrong = [&](std::string_view why) {
      return invalid_input(fmt::format("device {} slot {}: {}", device.name, s, why));
    };
    if (slot.segment < 0 || static_cast<size_t>(slot.segment) >= device.segments.size())
      return wrong("no such segment");
    if (slot.micro_batch < -1 || slot.micro_batch >= program.micro_batches) return wrong("no such micro-batch");
    for (const InstanceUse& use : slot.instances) {
      if (use.buffer.index() >= device.buffers.size() || device.buffer(use.buffer).kind == BufferKind::view)
        return wrong("no such buffer");
      if (use.instance < 0 || use.instance >= device.buffer(use.buffer).instances) {
        return wrong(fmt::format("buffer {} has no instance {}", device.buffer(use.buffer).name, use.instance));
      }
      if (std::exchange(named_in[use.buffer.index()], s + 1) == s + 1)
        return wrong(fmt::format("two instances of buffer {}", device.buffer(use.buffer).name));
    }
  }
  return ok_status();
}

}  // namespace

Status check_structure(const Program& program) {
  if (program.micro_batches < 1 || program.batch < 1)
    return invalid_input("a program needs a batch and at least one micro-batch");
  if (program.micro_batches > most_micro_batches)
    return invalid_input(
        fmt::format("{} micro-batches; at most {} are supported", program.micro_batches, most_micro_batches));
  if (program.devices.empty()) return invalid_input("a program without devices");
  if (std::ssize(program.devices) > most_devices)
    return invalid_input(fmt::format("{} devices; at most {} are supported", program.devices.size(), most_devices));
  if (program.nic_window < 0 || program.eager_limit.value() < 0)
    return invalid_input("negative eager_limit or nic_window");
  std::set<std::string_view> names;
  for (size_t d = 0; d < program.devices.size(); ++d) {
    if (!names.insert(program.devices[d].name).second) {
      return invalid_input(fmt::format("two devices are called {}", program.devices[d].name));
    }
    RETURN_IF_ERROR(check_device(program, d));
  }
  int64_t steps = 0;
  for (const DeviceProgram& device : program.devices) {
    for (const Slot& slot : device.order) {
      steps += std::ssize(device.segments[static_cast<size_t>(slot.segment)].instrs);
      if (steps > most_steps) return invalid_input("too many instructions to run");
    }
  }
  return ok_status();
}

}  // namespace nlsplit::inline program
