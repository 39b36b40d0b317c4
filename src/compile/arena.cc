#include "compile/arena.h"

#include <algorithm>
#include <numeric>

#include "graph/memory.h"

namespace nlsplit::inline compiler {
namespace {

using Scratch = std::vector<ScratchLifetime>;

// [scratch]: whose place it has, in the end; its own unless it takes that of an operand.
std::vector<size_t> find_places(const DeviceProgram& device, const Scratch& scratch,
                                const std::vector<InPlace>& in_place) {
  constexpr size_t none = ~size_t{0};
  std::vector<size_t> place(scratch.size()), index(device.buffers.size(), none);
  std::iota(place.begin(), place.end(), size_t{0});
  for (size_t i = 0; i < scratch.size(); ++i) index[scratch[i].buffer.index()] = i;
  for (const InPlace& pair : in_place) {  // in the order of the nodes, so that a chain's first place is known
    const size_t result = index[pair.result.index()], held = index[pair.held.index()];
    if (result == none || held == none || place[result] != result) continue;
    if (scratch[held].last == scratch[result].first) place[result] = place[held];
  }
  return place;
}

// Offsets of a stage's scratch; the bytes they take.
std::vector<int64_t> place_scratch(const DeviceProgram& device, const Scratch& scratch,
                                   const std::vector<InPlace>& in_place, int64_t& size) {
  const std::vector<size_t> place = find_places(device, scratch, in_place);
  std::vector<size_t> group(scratch.size());  // number of a place
  std::vector<Lifetime> lives;                // of places
  for (size_t i = 0; i < scratch.size(); ++i) {
    if (place[i] != i) continue;
    group[i] = lives.size();
    lives.push_back({device.buffer(scratch[i].buffer).bytes, scratch[i].first, scratch[i].last});
  }
  for (size_t i = 0; i < scratch.size(); ++i) {
    Lifetime& life = lives[group[place[i]]];
    life.last = std::max(life.last, scratch[i].last);
  }
  const ArenaPlan shared = plan_arena(lives);
  size = shared.size.value();
  std::vector<int64_t> offsets;
  for (size_t i = 0; i < scratch.size(); ++i) offsets.push_back(shared.offsets[group[place[i]]]);
  if (lives.size() == scratch.size() || shared.size == shared.bound) return offsets;
  lives.clear();
  for (const ScratchLifetime& life : scratch)
    lives.push_back({device.buffer(life.buffer).bytes, life.first, life.last});
  ArenaPlan apart = plan_arena(lives);
  if (apart.size >= shared.size) return offsets;
  size = apart.size.value();
  return std::move(apart.offsets);
}

}  // namespace

void place_buffers(DeviceProgram& device, const std::vector<std::vector<ScratchLifetime>>& lifetimes,
                   const std::vector<InPlace>& in_place) {
  int64_t next = 0;
  const auto place = [&](Buffer& buffer) {
    buffer.offset = next;
    next += buffer.instances * buffer.stride();
  };
  std::vector<bool> planned(device.buffers.size(), false);
  for (const auto& stage : lifetimes) {
    for (const ScratchLifetime& life : stage) planned[life.buffer.index()] = true;
  }
  constexpr BufferKind kinds[] = {BufferKind::weight, BufferKind::state, BufferKind::input,  BufferKind::output,
                                  BufferKind::stash,  BufferKind::comm,  BufferKind::scratch};
  for (const BufferKind kind : kinds) {
    for (size_t b = 0; b < device.buffers.size(); ++b) {
      if (device.buffers[b].kind == kind && !planned[b]) place(device.buffers[b]);  // unplanned scratch: the workspace
    }
  }
  int64_t region = 0;
  for (const Scratch& scratch : lifetimes) {
    int64_t size = 0;
    const std::vector<int64_t> offsets = place_scratch(device, scratch, in_place, size);
    for (size_t i = 0; i < scratch.size(); ++i) device.buffers[scratch[i].buffer.index()].offset = next + offsets[i];
    region = std::max(region, size);
  }
  device.arena = bytes(next + region);
}

}  // namespace nlsplit::inline compiler
