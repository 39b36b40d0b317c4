#include "program/free_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/index.h"
#include "base/readiness.h"
#include "program/online.h"
#include "program/text.h"

namespace nlsplit::inline program {
namespace {

struct RootRange {
  int64_t begin, end;
};

// Of an operand, in bytes of its root buffer's instance.
RootRange range_of(const DeviceProgram& device, const Operand& operand) {
  if (operand.whole()) return {0, device.buffer(device.root(operand.buffer)).bytes.value()};
  const DType dtype = device.buffer(operand.buffer).type.dtype;
  return {size_of(dtype, operand.begin), size_of(dtype, operand.end)};
}

// Whether these ranges together have all of `wanted`.
bool covers(std::vector<RootRange> ranges, RootRange wanted) {
  std::ranges::sort(ranges, {}, &RootRange::begin);
  for (const RootRange& range : ranges) {
    if (range.begin <= wanted.begin) wanted.begin = std::max(wanted.begin, range.end);
  }
  return wanted.begin >= wanted.end;
}

// All that is waited for are edges of a graph whose nodes are the messages, both ends of one together, the computations
// of fixed slots, and the other slots as one node each. While it has no circle nothing can deadlock, whatever is
// chosen: of what has not happened yet the first in an order of this graph waits for nothing but its device, and who
// has the device ends without it.
class Nodes {
 public:
  Nodes(const Program& program, const Dependencies& deps) : program_(program), deps_(deps) {
    for (const std::vector<FreeSlot>& slots : deps.free_slots) {
      first_slot_.push_back(count_);
      count_ += static_cast<uint32_t>(slots.size());
    }
    of_.resize(deps.instances.size());
    for (uint32_t i = 0; i < of_.size(); ++i) {
      const Instance& at = deps.instances[i];
      if (deps.match[i] != no_instance)
        of_[i] = instr_of(program, at).opcode == Opcode::send ? of_[deps.match[i]] = count_++ : of_[i];
      else
        of_[i] = slot(at).fixed ? count_++ : slot_node(at.device, at.slot);
    }
    collect();
  }

  // Runs them. Error: some wait for each other.
  Status run() const {
    std::vector<uint32_t> looked(begin_.begin(), begin_.end() - 1), ready;
    std::vector<bool> done(count_, false);
    Sleepers sleepers(count_, count_);
    const auto look = [&](uint32_t node) {
      for (; looked[node] < begin_[node + 1]; ++looked[node]) {
        if (!done[needs_[looked[node]]]) return sleepers.sleep(node, needs_[looked[node]]);
      }
      ready.push_back(node);
    };
    for (uint32_t node = 0; node < count_; ++node) look(node);
    while (!ready.empty()) {
      const uint32_t node = ready.back();
      ready.pop_back();
      done[node] = true;
      sleepers.wake(node, look);
    }
    for (uint32_t i = 0; i < of_.size(); ++i) {
      if (!done[of_[i]])
        return unsupported(
            fmt::format("these slots end in the Program's order only, and not if an online policy chooses another: {} "
                        "waits for what depends on it",
                        describe_instance(program_, deps_.instances[i])));
    }
    return ok_status();
  }

 private:
  const FreeSlot& slot(const Instance& at) const {
    return deps_.free_slots[nlsplit::at(at.device)][nlsplit::at(at.slot)];
  }
  uint32_t slot_node(int device, int slot) const {
    return first_slot_[nlsplit::at(device)] + static_cast<uint32_t>(slot);
  }

  // Calls visit(from, to) for each edge. A fixed slot is waited for by its last computation, and waits by its first.
  template <class Visit>
  void each_edge(const Visit& visit) const {
    std::vector<uint32_t> first(count_), last(count_);  // [node of a slot]
    for (uint32_t node = 0; node < count_; ++node) first[node] = last[node] = node;
    for (uint32_t i = static_cast<uint32_t>(of_.size()); i-- > 0;) {
      const Instance& at = deps_.instances[i];
      if (deps_.match[i] != no_instance || !slot(at).fixed) continue;
      const uint32_t node = slot_node(at.device, at.slot);
      if (last[node] == node) last[node] = of_[i];
      first[node] = of_[i];
    }
    for (uint32_t i = 0; i < of_.size(); ++i) {
      for (const Edge& edge : deps_.into(i)) {
        if (of_[edge.from] != of_[i]) visit(of_[edge.from], of_[i]);
      }
    }
    for (size_t d = 0; d < deps_.free_slots.size(); ++d) {
      for (uint32_t s = 0; s < deps_.free_slots[d].size(); ++s) {
        for (const int before : deps_.free_slots[d][s].after)
          visit(last[first_slot_[d] + static_cast<uint32_t>(before)], first[first_slot_[d] + s]);
      }
    }
  }

  void collect() {
    begin_.assign(count_ + 1, 0);
    each_edge([&](uint32_t, uint32_t to) { ++begin_[to + 1]; });
    for (uint32_t node = 0; node < count_; ++node) begin_[node + 1] += begin_[node];
    needs_.resize(begin_[count_]);
    std::vector<uint32_t> place(begin_.begin(), begin_.end() - 1);
    each_edge([&](uint32_t from, uint32_t to) { needs_[place[to]++] = from; });
  }

  const Program& program_;
  const Dependencies& deps_;
  uint32_t count_ = 0;
  std::vector<uint32_t> first_slot_;     // [device]
  std::vector<uint32_t> of_;             // [instance]
  std::vector<uint32_t> begin_, needs_;  // needs_[begin_[n] … begin_[n + 1]): of node n
};

}  // namespace

std::vector<bool> own_scratch(const DeviceProgram& device) {
  std::vector<bool> own;
  for (const Buffer& buffer : device.buffers) own.push_back(buffer.kind == BufferKind::scratch);
  for (const Segment& segment : device.segments) {
    std::map<size_t, std::vector<RootRange>> written;
    for (const Instr& instr : segment.instrs) {
      const auto look = [&](const Operand& operand, bool writes) {
        if (!operand.buffer.valid()) return;
        const size_t root = device.root(operand.buffer).index();
        if (!own[root]) return;
        const RootRange range = range_of(device, operand);
        if (is_transfer(instr.opcode) || (!writes && !covers(written[root], range))) own[root] = false;
        if (writes) written[root].push_back(range);
      };
      for (const Operand& operand : instr.reads) look(operand, false);
      look(instr.workspace, true);
      for (const Operand& operand : instr.writes) look(operand, true);
    }
  }
  return own;
}

Result<std::vector<FreeSlot>> free_slots(const DeviceProgram& device) {
  std::vector<FreeSlot> slots;
  for (const Slot& slot : device.order) {
    const Segment& segment = device.segments[at(slot.segment)];
    if (segment.phase == Phase::recompute)
      return unsupported("an online policy cannot be asked where activations are recomputed");
    FreeSlot& made = slots.emplace_back();
    made.slot = {segment.stage, segment.phase, slot.micro_batch};
    for (const Instr& instr : segment.instrs) {
      made.computes = made.computes || !is_transfer(instr.opcode);
      made.fixed = made.fixed || (is_transfer(instr.opcode) && instr.collective >= 0);
    }
    made.fixed = made.fixed && made.computes;
    made.chosen = made.computes && !made.fixed && is_work(made.slot);
  }
  return slots;
}

Status keep_places(const Program& program, Dependencies& deps) {
  for (std::vector<FreeSlot>& slots : deps.free_slots) {
    int last_fixed = -1;
    std::vector<int> since;  // slots behind it
    for (size_t s = 0; s < slots.size(); ++s) {
      FreeSlot& slot = slots[s];
      if (!slot.computes) continue;
      if (last_fixed >= 0) {
        std::erase_if(slot.after, [&](int before) { return before <= last_fixed; });
        slot.after.push_back(last_fixed);
      }
      if (slot.fixed) {
        slot.after.insert(slot.after.end(), since.begin(), since.end());
        last_fixed = static_cast<int>(s);
        since.clear();
      } else {
        since.push_back(static_cast<int>(s));
      }
      std::ranges::sort(slot.after);
      slot.after.erase(std::unique(slot.after.begin(), slot.after.end()), slot.after.end());
    }
  }
  return Nodes(program, deps).run();
}

}  // namespace nlsplit::inline program
