#include "program/caches.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace nlsplit::inline program {
namespace {

// None: it writes no state.
BufferId written_state(const DeviceProgram& device, const Instr& instr) {
  for (const Operand& operand : instr.writes) {
    if (!operand.buffer.valid()) continue;
    const BufferId root = device.root(operand.buffer);
    if (device.buffer(root).kind == BufferKind::state) return root;
  }
  return {};
}

bool puts_in_place(const Program& program, const Instr& instr) {
  if (instr.opcode != Opcode::compute) return false;
  const ComputeDesc& desc = program.descs[static_cast<size_t>(instr.desc)];
  return desc.op == Op::TensorScatter && desc.own_inputs() > 2 && attr_string(desc.attrs, "mode") == "linear";
}

bool puts_in_pages(const Program& program, const Instr& instr) {
  return instr.opcode == Opcode::compute && program.descs[static_cast<size_t>(instr.desc)].op == Op::PagedScatter;
}

}  // namespace

std::vector<Cache> caches_of(const Program& program, size_t device) {
  const DeviceProgram& own = program.devices[device];
  std::map<BufferId, int> found;
  for (const Segment& segment : own.segments) {
    for (const Instr& instr : segment.instrs) {
      if (!puts_in_place(program, instr)) continue;
      if (const BufferId state = written_state(own, instr); state.valid()) found.emplace(state, instr.desc);
    }
  }
  std::vector<Cache> caches;
  for (const auto& [buffer, desc] : found) caches.push_back({buffer, desc});
  return caches;
}

bool keeps_positions(const Session& session) {
  for (const Program& program : session.programs) {
    for (const DeviceProgram& device : program.devices) {
      for (const Segment& segment : device.segments) {
        const auto differs = [&](const Instr& instr) {
          return written_state(device, instr).valid() && !puts_in_place(program, instr) &&
                 !puts_in_pages(program, instr);
        };
        if (std::ranges::any_of(segment.instrs, differs)) return false;
      }
    }
  }
  return true;
}

std::vector<int> cache_groups(const Session& session, int64_t sequences) {
  const auto micro_batches = static_cast<size_t>(std::max(session.programs.front().micro_batches, 1));
  std::vector<std::set<std::tuple<size_t, size_t, BufferId>>> held(micro_batches);  // by Program and device
  for (size_t p = 0; p < session.programs.size(); ++p) {
    for (size_t d = 0; d < session.programs[p].devices.size(); ++d) {
      const DeviceProgram& device = session.programs[p].devices[d];
      for (const Slot& slot : device.order) {
        if (slot.micro_batch < 0 || slot.micro_batch >= std::ssize(held)) continue;
        for (const Instr& instr : device.segments[static_cast<size_t>(slot.segment)].instrs) {
          if (const BufferId state = written_state(device, instr); state.valid())
            held[static_cast<size_t>(slot.micro_batch)].insert({p, d, state});
        }
      }
    }
  }
  const size_t each = static_cast<size_t>(sequences) / micro_batches;
  std::vector<int> groups;
  for (size_t s = 0; s < static_cast<size_t>(sequences); ++s)
    groups.push_back(static_cast<int>(std::ranges::find(held, held[s / each]) - held.begin()));
  return groups;
}

}  // namespace nlsplit::inline program
