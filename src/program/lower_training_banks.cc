// The banks of a training step's buffers.
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "program/lower_training.h"

namespace nlsplit {
namespace {

// One micro-batch's value of a buffer.
struct Life {
  double begin = std::numeric_limits<double>::infinity(), end = 0;
  int bank = 0;
};

struct Touched {
  std::vector<std::vector<BufferId>> banked, inputs;  // [segment]
  std::vector<bool> leaves;                           // [buffer]: it is sent
};

Touched find_touched(const DeviceProgram& device, const std::vector<bool>& banked) {
  Touched touched{std::vector<std::vector<BufferId>>(device.segments.size()),
                  std::vector<std::vector<BufferId>>(device.segments.size()),
                  std::vector<bool>(device.buffers.size(), false)};
  for (size_t s = 0; s < device.segments.size(); ++s) {
    std::set<BufferId> seen;
    for (const Instr& instr : device.segments[s].instrs) {
      for (const auto* operands : {&instr.reads, &instr.writes}) {
        for (const Operand& operand : *operands) {
          if (!operand.buffer.valid()) continue;
          const BufferId root = device.root(operand.buffer);
          if (instr.opcode == Opcode::send) touched.leaves[root.index()] = true;
          if (!seen.insert(root).second) continue;
          if (banked[root.index()]) touched.banked[s].push_back(root);
          if (device.buffer(root).kind == BufferKind::input) touched.inputs[s].push_back(root);
        }
      }
    }
  }
  return touched;
}

// Round robin past banks that are in use; answers how many there are.
int share_banks(std::vector<Life*>& lives, size_t at_least) {
  std::ranges::stable_sort(lives, {}, &Life::begin);
  std::vector<double> until(at_least, -1);
  size_t next = 0;
  for (Life* life : lives) {
    size_t bank = until.size();
    for (size_t k = 0; k < until.size() && bank == until.size(); ++k) {
      if (until[(next + k) % until.size()] < life->begin) bank = (next + k) % until.size();
    }
    if (bank == until.size()) until.push_back(0);
    until[bank] = life->end;
    next = (bank + 1) % until.size();
    life->bank = static_cast<int>(bank);
  }
  return static_cast<int>(until.size());
}

}  // namespace

void assign_training_banks(DeviceProgram& device, const std::vector<SlotTimes>& times, const std::vector<bool>& banked,
                           int room) {
  const Touched touched = find_touched(device, banked);
  std::vector<std::map<int, Life>> lives(device.buffers.size());  // [buffer]: by micro-batch
  for (size_t i = 0; i < device.order.size(); ++i) {
    const Slot& slot = device.order[i];
    for (const BufferId b : touched.banked[at(slot.segment)]) {
      Life& life = lives[b.index()][slot.micro_batch];
      life.begin = std::min(life.begin, times[i].time);
      life.end = std::max(life.end, times[i].time);
    }
    for (const auto& [buffer, sent_at] : times[i].arrivals) {
      Life& life = lives[device.root(buffer).index()][slot.micro_batch];
      life.begin = std::min(life.begin, sent_at);
    }
  }
  constexpr size_t double_buffer = 2;
  for (size_t b = 0; b < lives.size(); ++b) {
    if (lives[b].empty()) continue;
    std::vector<Life*> all;
    for (auto& [m, life] : lives[b]) all.push_back(&life);
    const size_t needed = touched.leaves[b] && all.size() > 1 ? double_buffer : 0;
    device.buffers[b].banks = share_banks(all, std::max(needed, std::min(all.size(), at(room))));
  }
  for (Slot& slot : device.order) {
    for (const BufferId b : touched.banked[at(slot.segment)]) {
      if (const int bank = lives[b.index()].at(slot.micro_batch).bank; bank != 0) slot.banks.push_back({b, bank});
    }
    for (const BufferId b : touched.inputs[at(slot.segment)]) {
      if (slot.micro_batch > 0) slot.banks.push_back({b, slot.micro_batch});
    }
    std::ranges::sort(slot.banks, {}, &BankUse::buffer);
  }
}

}  // namespace nlsplit
