#include "compile/instances.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "base/index.h"

namespace nlsplit::inline compiler {
namespace {

// One micro-batch's value of a buffer.
struct Life {
  double begin = std::numeric_limits<double>::infinity(), end = -begin;  // inputs are sent before 0
  int instance = 0;
  bool lives() const { return begin <= end; }
};

// Round robin past instances that are in use; answers how many there are. sorted, until: to work with.
int share_instances(std::span<Life> lives, size_t at_least, std::vector<Life*>& sorted, std::vector<double>& until) {
  sorted.clear();
  for (Life& life : lives) {
    if (life.lives()) sorted.push_back(&life);
  }
  if (!std::ranges::is_sorted(sorted, {}, &Life::begin)) std::ranges::stable_sort(sorted, {}, &Life::begin);
  until.assign(at_least, -1);
  size_t next = 0;
  for (Life* life : sorted) {
    size_t instance = until.size();
    for (size_t k = 0; k < until.size() && instance == until.size(); ++k) {
      if (until[(next + k) % until.size()] < life->begin) instance = (next + k) % until.size();
    }
    if (instance == until.size()) until.push_back(0);
    until[instance] = life->end;
    next = (instance + 1) % until.size();
    life->instance = static_cast<int>(instance);
  }
  return static_cast<int>(until.size());
}

}  // namespace

Touched find_touched(const DeviceProgram& device, const std::vector<bool>& instanced) {
  Touched touched{std::vector<std::vector<BufferId>>(device.segments.size()),
                  std::vector<std::vector<BufferId>>(device.segments.size()),
                  std::vector<bool>(device.buffers.size(), false)};
  std::vector<size_t> seen_in(device.buffers.size(), device.segments.size());
  for (size_t s = 0; s < device.segments.size(); ++s) {
    for (const Instr& instr : device.segments[s].instrs) {
      for (const auto* operands : {&instr.reads, &instr.writes}) {
        for (const Operand& operand : *operands) {
          if (!operand.buffer.valid()) continue;
          const BufferId root = device.root(operand.buffer);
          if (instr.opcode == Opcode::send) touched.leaves[root.index()] = true;
          if (std::exchange(seen_in[root.index()], s) == s) continue;
          const BufferKind kind = device.buffer(root).kind;
          const bool of_each = kind == BufferKind::state && device.buffer(root).instances > 1;
          if (kind == BufferKind::input || kind == BufferKind::output || of_each)
            touched.whole[s].push_back(root);
          else if (instanced[root.index()])
            touched.instanced[s].push_back(root);
        }
      }
    }
    std::ranges::sort(touched.instanced[s]);
    std::ranges::sort(touched.whole[s]);
  }
  return touched;
}

void assign_instances(const InstanceRules& rules, const Touched& touched, int micro_batches, DeviceProgram& device) {
  const size_t count = at(micro_batches);
  constexpr size_t unused = ~size_t{0};
  std::vector<size_t> lives_of(device.buffers.size(), unused);  // [buffer]: the first of `count` in `lives`
  std::vector<Life> lives;
  lives.reserve(static_cast<size_t>(std::ranges::count(rules.instanced, true)) * count);
  const auto life_of = [&](BufferId buffer, int m) -> Life& {
    size_t& first = lives_of[buffer.index()];
    if (first == unused) {
      first = lives.size();
      lives.resize(first + count);
    }
    return lives[first + at(m)];
  };
  for (size_t i = 0; i < device.order.size(); ++i) {
    const Slot& slot = device.order[i];
    for (const BufferId b : touched.instanced[at(slot.segment)]) {
      Life& life = life_of(b, slot.micro_batch);
      life.begin = std::min(life.begin, rules.slots[i].time);
      life.end = std::max(life.end, rules.slots[i].time);
    }
    for (const auto& [buffer, sent_at] : rules.slots[i].arrivals) {
      if (!rules.instanced[device.root(buffer).index()]) continue;
      Life& life = life_of(device.root(buffer), slot.micro_batch);
      life.begin = std::min(life.begin, sent_at);
    }
  }
  constexpr size_t double_buffer = 2;
  std::vector<Life*> sorted;
  std::vector<double> until;
  for (size_t b = 0; b < lives_of.size(); ++b) {
    if (lives_of[b] == unused) continue;
    const std::span<Life> of = std::span(lives).subspan(lives_of[b], count);
    size_t at_least = at(device.buffers[b].instances);
    if (rules.as_many_as_live) {
      const auto values = static_cast<size_t>(std::ranges::count_if(of, &Life::lives));
      at_least = std::max(touched.leaves[b] && values > 1 ? double_buffer : 0, std::min(values, at(rules.room)));
    }
    device.buffers[b].instances = share_instances(of, at_least, sorted, until);
  }
  for (Slot& slot : device.order) {
    for (const BufferId b : touched.instanced[at(slot.segment)]) {
      if (const int instance = life_of(b, slot.micro_batch).instance; instance != 0)
        slot.instances.push_back({b, instance});
    }
    for (const BufferId b : touched.whole[at(slot.segment)]) {
      if (slot.micro_batch > 0) slot.instances.push_back({b, slot.micro_batch});
    }
    std::ranges::sort(slot.instances, {}, &InstanceUse::buffer);
  }
}

}  // namespace nlsplit::inline compiler
