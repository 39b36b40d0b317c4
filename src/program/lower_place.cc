#include <algorithm>

#include "graph/memory.h"
#include "program/lower_device.h"

namespace nlsplit {

void place_buffers(DeviceProgram& device, const std::vector<std::vector<ScratchLifetime>>& lifetimes) {
  int64_t next = 0;
  const auto place = [&](Buffer& buffer) {
    buffer.offset = next;
    next += buffer.banks * buffer.stride();
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
  std::vector<Lifetime> lives;
  for (const auto& stage : lifetimes) {
    lives.clear();
    for (const ScratchLifetime& life : stage)
      lives.push_back({device.buffer(life.buffer).bytes, life.first, life.last});
    const ArenaPlan plan = plan_arena(lives);
    for (size_t i = 0; i < stage.size(); ++i) device.buffers[stage[i].buffer.index()].offset = next + plan.offsets[i];
    region = std::max(region, plan.size.value());
  }
  device.arena = bytes(next + region);
}

}  // namespace nlsplit
