#include "exec/device_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "program/text.h"

namespace nlsplit::inline exec {
namespace {

// An edge counts only if the streams do not already see to it. Calls visit(from, to) for those that count.
template <class Visit>
void visit_edges(const DeviceIndex& x, const Visit& visit) {
  for (uint32_t to = 0; to < x.count; ++to) {
    const bool to_transfer = x.transfers(to);
    for (const Edge& edge : x.deps.into(x.begin + to)) {
      const uint32_t from = edge.from - x.begin;
      if (edge.kind != EdgeKind::stream && (to_transfer || x.transfers(from))) visit(from, to);
    }
  }
}

void index_edges(DeviceIndex& x) {
  x.waits_for_at_start.assign(x.count, 0);
  x.slot_waits_at_start.assign(x.device.order.size(), 0);
  x.successor_begin.assign(x.count + 1, 0);
  visit_edges(x, [&](uint32_t from, uint32_t to) {
    ++x.successor_begin[from + 1];
    ++(x.holds_slot(to) ? x.slot_waits_at_start[static_cast<size_t>(x.slot_of(to))] : x.waits_for_at_start[to]);
  });
  for (uint32_t i = 0; i < x.count; ++i) x.successor_begin[i + 1] += x.successor_begin[i];
  x.successors.resize(x.successor_begin[x.count]);
  std::vector<uint32_t> at(x.successor_begin.begin(), x.successor_begin.end() - 1);
  visit_edges(x, [&](uint32_t from, uint32_t to) { x.successors[at[from]++] = to; });
}

void index_fifos(DeviceIndex& x) {
  std::map<std::tuple<std::vector<int>, bool, int>, uint32_t> known;  // by peer or group, direction, tag
  x.next_on_fifo.assign(x.count, no_instance);
  x.fifo_index.assign(x.count, no_instance);
  for (uint32_t i = 0; i < x.count; ++i) {
    if (!x.transfers(i)) continue;
    for (const Edge& edge : x.deps.into(x.begin + i)) {
      if (edge.kind != EdgeKind::stream) continue;
      x.next_on_fifo[edge.from - x.begin] = i;
      ++x.waits_for_at_start[i];
    }
    const Instr& what = x.instr(i);
    const bool native = x.is_native(i);
    const std::vector<int> with = native ? x.native(i).group : std::vector<int>{what.peer};
    const int tag = x.online_slots.empty() ? 0 : what.tag;
    const auto number = static_cast<uint32_t>(known.size());
    const auto [at, added] =
        known.try_emplace({with, !native && what.opcode == Opcode::send, native ? 0 : tag}, number);
    x.fifo_index[i] = at->second;
    if (!added) continue;
    const auto own = std::ranges::find(with, x.device_number);
    x.fifo_peers.push_back(own == with.end() || own + 1 == with.end() ? with.front() : own[1]);
  }
}

void index_slots(DeviceIndex& x) {
  for (uint32_t i = 0; i < x.count; ++i) {
    if (x.is_covered(i)) continue;
    ++x.ends;
    if (!x.transfers(i)) x.computes.push_back(i);
  }
  const size_t slots = x.device.order.size();
  x.computes_of.assign(slots + 1, 0);
  for (const uint32_t i : x.computes) ++x.computes_of[static_cast<size_t>(x.slot_of(i)) + 1];
  for (size_t s = 0; s < slots; ++s) x.computes_of[s + 1] += x.computes_of[s];
  x.slots_after.resize(x.online_slots.size());
  for (size_t s = 0; s < x.online_slots.size(); ++s) {
    for (const int before : x.online_slots[s].after) {
      x.slots_after[static_cast<size_t>(before)].push_back(static_cast<int>(s));
      ++x.slot_waits_at_start[s];
    }
  }
}

}  // namespace

const Collective& DeviceIndex::native(uint32_t i) const {
  return *native_of(device.segments[static_cast<size_t>(slot(i).segment)], instr(i));
}

std::string DeviceIndex::describe(uint32_t i) const {
  if (!is_native(i)) return describe_instance(program, deps.instances[begin + i]);
  return fmt::format("device {} slot {} ({}) `{}`", device.name, slot_of(i), slot_name(device, slot(i)),
                     to_string(program, device, native(i)));
}

DeviceIndex::DeviceIndex(const Program& program, const Dependencies& dependencies, int d)
    : program(program),
      deps(dependencies),
      device(program.devices[static_cast<size_t>(d)]),
      device_number(d),
      begin(deps.device_begin[static_cast<size_t>(d)]),
      count(deps.device_begin[static_cast<size_t>(d) + 1] - begin),
      online_slots(deps.free_slots.empty() ? std::span<const FreeSlot>() : deps.free_slots[static_cast<size_t>(d)]) {
  index_edges(*this);
  index_fifos(*this);
  index_slots(*this);
}

}  // namespace nlsplit::inline exec
