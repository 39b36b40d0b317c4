// Which bank of each buffer every slot uses.
#include <algorithm>

#include "program/lower_device.h"

namespace nlsplit {
namespace {}  // namespace

void assign_banks(DeviceProgram& device, int micro_batches) {
  // The banked buffers that each segment touches.
  std::vector<std::vector<BufferId>> banked(device.segments.size());
  std::vector<int> seen_in(device.buffers.size(), -1);
  for (size_t s = 0; s < device.segments.size(); ++s) {
    const auto touch = [&](const Operand& operand) {
      if (!operand.buffer.valid()) return;
      const BufferId root = device.root(operand.buffer);
      const BufferKind kind = device.buffer(root).kind;
      if (kind == BufferKind::weight || kind == BufferKind::scratch || seen_in[root.index()] == static_cast<int>(s))
        return;
      seen_in[root.index()] = static_cast<int>(s);
      banked[s].push_back(root);
    };
    for (const Instr& instr : device.segments[s].instrs) {
      for (const Operand& operand : instr.reads) touch(operand);
      for (const Operand& operand : instr.writes) touch(operand);
    }
    std::sort(banked[s].begin(), banked[s].end());
  }
  struct Use {
    int bank = -1;
    size_t last_slot = 0;
  };
  std::vector<std::vector<Use>> uses(device.buffers.size());  // [buffer][micro-batch]
  const auto is_io = [&](BufferId b) {
    return device.buffer(b).kind == BufferKind::input || device.buffer(b).kind == BufferKind::output;
  };
  for (size_t i = 0; i < device.order.size(); ++i) {
    for (const BufferId b : banked[at(device.order[i].segment)]) {
      if (is_io(b)) continue;
      std::vector<Use>& of = uses[b.index()];
      if (of.empty()) of.resize(at(micro_batches));
      of[at(device.order[i].micro_batch)].last_slot = i;
    }
  }
  // Round robin, past banks whose micro-batch is still needed. That happens only where a device has several stages,
  // and then a bank more than the schedule said may be needed: values are right whatever the schedule says.
  struct Bank {
    bool used = false;
    size_t until = 0;
  };
  std::vector<std::vector<Bank>> banks(device.buffers.size());
  std::vector<size_t> next(device.buffers.size(), 0);
  for (size_t i = 0; i < device.order.size(); ++i) {
    Slot& slot = device.order[i];
    for (const BufferId b : banked[at(slot.segment)]) {
      int bank = slot.micro_batch;
      if (!is_io(b)) {
        Use& use = uses[b.index()][at(slot.micro_batch)];
        if (use.bank < 0) {
          std::vector<Bank>& all = banks[b.index()];
          if (all.empty()) all.resize(at(device.buffer(b).banks));
          size_t chosen = all.size();
          for (size_t k = 0; k < all.size() && chosen == all.size(); ++k) {
            const size_t candidate = (next[b.index()] + k) % all.size();
            if (!all[candidate].used || all[candidate].until < i) chosen = candidate;
          }
          if (chosen == all.size()) {
            all.emplace_back();
            device.buffers[b.index()].banks = static_cast<int>(all.size());
          }
          all[chosen] = {true, use.last_slot};
          next[b.index()] = (chosen + 1) % all.size();
          use.bank = static_cast<int>(chosen);
        }
        bank = use.bank;
      }
      if (bank != 0) slot.banks.push_back({b, bank});
    }
  }
}

}  // namespace nlsplit
