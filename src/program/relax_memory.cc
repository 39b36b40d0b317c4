#include "program/relax_memory.h"

#include <algorithm>
#include <map>

namespace nlsplit::inline program {
namespace {

struct RootRange {
  int64_t begin, end;
};

// Of an operand, in bytes of its root buffer's bank.
RootRange range_of(const DeviceProgram& device, const Operand& operand) {
  if (operand.whole()) return {0, device.buffer(device.root(operand.buffer)).bytes.value()};
  const int64_t element = size_of(device.buffer(operand.buffer).type.dtype);
  return {operand.begin * element, operand.end * element};
}

// Whether these ranges together have all of `wanted`.
bool covers(std::vector<RootRange> ranges, RootRange wanted) {
  std::ranges::sort(ranges, {}, &RootRange::begin);
  for (const RootRange& range : ranges) {
    if (range.begin <= wanted.begin) wanted.begin = std::max(wanted.begin, range.end);
  }
  return wanted.begin >= wanted.end;
}

}  // namespace

RelaxedMemory::RelaxedMemory(const DeviceProgram& device) : device_(device), places_(device.buffers.size()) {
  find_own_scratch();
  find_lists();
}

// Scratch that no message touches, and of which every segment reads only what it has written before.
void RelaxedMemory::find_own_scratch() {
  for (size_t b = 0; b < places_.size(); ++b) places_[b].own = device_.buffers[b].kind == BufferKind::scratch;
  for (const Segment& segment : device_.segments) {
    std::map<size_t, std::vector<RootRange>> written;
    for (const Instr& instr : segment.instrs) {
      const auto look = [&](const Operand& operand, bool writes) {
        if (!operand.buffer.valid()) return;
        const size_t root = device_.root(operand.buffer).index();
        if (!places_[root].own) return;
        const RootRange range = range_of(device_, operand);
        if (is_transfer(instr.opcode) || (!writes && !covers(written[root], range))) places_[root].own = false;
        if (writes) written[root].push_back(range);
      };
      for (const Operand& operand : instr.reads) look(operand, false);
      look(instr.workspace, true);
      for (const Operand& operand : instr.writes) look(operand, true);
    }
  }
}

// Buffers that share bytes have one list together, others one for each bank. Weights are only read.
void RelaxedMemory::find_lists() {
  const auto end_of = [](const Buffer& buffer) { return buffer.offset + buffer.extent(); };
  std::vector<size_t> by_offset;
  for (size_t b = 0; b < places_.size(); ++b) {
    const Buffer& buffer = device_.buffers[b];
    if (buffer.kind != BufferKind::view && buffer.kind != BufferKind::weight && buffer.bytes.value() > 0)
      by_offset.push_back(b);
  }
  std::ranges::stable_sort(by_offset, {}, [&](size_t b) { return device_.buffers[b].offset; });
  for (size_t first = 0; first < by_offset.size();) {
    size_t last = first + 1;
    int64_t end = end_of(device_.buffers[by_offset[first]]);
    bool own = places_[by_offset[first]].own;
    for (; last < by_offset.size() && device_.buffers[by_offset[last]].offset < end; ++last) {
      end = std::max(end, end_of(device_.buffers[by_offset[last]]));
      own = own && places_[by_offset[last]].own;
    }
    const bool alone = last == first + 1;
    if (!own) {
      for (size_t i = first; i < last; ++i) {
        places_[by_offset[i]].list = static_cast<int>(lists_.size());
        places_[by_offset[i]].per_bank = alone ? 1 : 0;
      }
      lists_.resize(lists_.size() + (alone ? static_cast<size_t>(device_.buffers[by_offset[first]].banks) : 1));
    }
    first = last;
  }
}

void RelaxedMemory::touch(uint32_t instance, int slot, const Instr& instr, std::vector<Edge>& edges,
                          std::vector<int>& after) {
  const Slot& of = device_.order[static_cast<size_t>(slot)];
  const auto look = [&](const Operand& operand, bool writes) {
    if (!operand.buffer.valid()) return;
    const BufferId root = device_.root(operand.buffer);
    const Place& place = places_[root.index()];
    if (place.list < 0) return;
    const int bank = bank_of(device_, of, root);
    const Buffer& buffer = device_.buffer(root);
    const int64_t begin = buffer.offset + bank * buffer.stride();
    const RootRange range = range_of(device_, operand);
    access({instance, slot, begin + range.begin, begin + range.end, writes, is_transfer(instr.opcode), place.own},
           lists_[static_cast<size_t>(place.list) + static_cast<size_t>(place.per_bank) * static_cast<size_t>(bank)],
           edges, after);
  };
  for (const Operand& operand : instr.reads) look(operand, false);
  look(instr.workspace, true);
  for (const Operand& operand : instr.writes) look(operand, true);
}

void RelaxedMemory::access(const Access& now, std::vector<Access>& list, std::vector<Edge>& edges,
                           std::vector<int>& after) const {
  size_t kept = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    const Access earlier = list[i];
    const bool overlaps = earlier.begin < now.end && now.begin < earlier.end;
    const bool message = earlier.transfer || now.transfer;
    const bool same_slot = earlier.slot == now.slot && !message;  // in order anyway
    const bool apart = earlier.own && now.own;                    // of two slots: one is over when the other begins
    if (overlaps && earlier.instance != now.instance && (earlier.writes || now.writes) && !same_slot) {
      if (message) edges.push_back({earlier.instance, now.writes ? EdgeKind::reuse : EdgeKind::data});
      if (!message && !apart) after.push_back(earlier.slot);
    }
    // A write that covers an access orders everybody later behind it, and a later read of the same slot stands for an
    // earlier one. Reads of different slots have no order: whoever overwrites waits for each.
    const bool covered = now.begin <= earlier.begin && earlier.end <= now.end;
    const bool superseded =
        covered && ((now.writes && (same_slot || message || !apart)) || (same_slot && !now.writes && !earlier.writes));
    if (!superseded) list[kept++] = earlier;
  }
  list.resize(kept);
  list.push_back(now);
}

}  // namespace nlsplit::inline program
