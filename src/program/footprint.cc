#include "program/footprint.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/check.h"
#include "kernels/without_kernel.h"

namespace nlsplit::inline program {
namespace {

constexpr size_t never = std::numeric_limits<size_t>::max();

class Footprints {
 public:
  Footprints(const Program& program, const DeviceProgram& device)
      : program_(program), device_(device), is_workspace_(device.buffers.size(), false) {
    for (const Segment& segment : device.segments) {
      for (const Instr& instr : segment.instrs) {
        if (instr.workspace.buffer.valid()) is_workspace_[device.root(instr.workspace.buffer).index()] = true;
      }
    }
  }

  DeviceFootprint find() {
    DeviceFootprint all;
    all.name = device_.name;
    int64_t region_end = 0;
    region_ = std::numeric_limits<int64_t>::max();
    for (size_t b = 0; b < device_.buffers.size(); ++b) {
      const Buffer& buffer = device_.buffers[b];
      if (activation(b)) {
        region_ = std::min(region_, buffer.offset);
        region_end = std::max(region_end, buffer.offset + extent(b).value());
      } else if (buffer.kind != BufferKind::view) {
        part_of(all, buffer.kind) += extent(b);
      }
    }
    if (region_end > region_) all.activations = bytes(region_end - region_);
    std::map<int, std::vector<bool>> touched;  // [stage][buffer]
    std::map<int, StageFootprint> stages;
    for (const Segment& segment : device_.segments) {
      if (segment.stage == io_stage) continue;
      StageFootprint& stage = stages[segment.stage];
      stage.stage = segment.stage;
      std::vector<bool>& seen = touched[segment.stage];
      seen.resize(device_.buffers.size(), false);
      add_segment(segment, seen, stage);
    }
    for (auto& [number, stage] : stages) all.stages.push_back(std::move(stage));
    return all;
  }

 private:
  bool activation(size_t b) const { return device_.buffers[b].kind == BufferKind::scratch && !is_workspace_[b]; }
  Bytes extent(size_t b) const { return bytes(device_.buffers[b].instances * device_.buffers[b].stride()); }

  static Bytes& part_of(DeviceFootprint& all, BufferKind kind) {
    switch (kind) {
      case BufferKind::weight:
        return all.weights;
      case BufferKind::state:
        return all.states;
      case BufferKind::input:
        return all.inputs;
      case BufferKind::output:
        return all.outputs;
      case BufferKind::stash:
        return all.stash;
      case BufferKind::comm:
        return all.messages;
      case BufferKind::scratch:  // all that is no activation
        return all.workspace;
      case BufferKind::view:
        break;
    }
    CHECK(false, "a view has no bytes");
  }

  // Calls visit(root) for every buffer an instruction touches.
  template <class Visit>
  void visit_buffers(const Instr& instr, const Visit& visit) const {
    for (const std::vector<Operand>* operands : {&instr.reads, &instr.writes}) {
      for (const Operand& operand : *operands) {
        if (operand.buffer.valid()) visit(device_.root(operand.buffer).index());
      }
    }
  }

  void add_segment(const Segment& segment, std::vector<bool>& seen, StageFootprint& stage) {
    std::vector<size_t> first(device_.buffers.size(), never), last(device_.buffers.size(), 0);
    for (size_t i = 0; i < segment.instrs.size(); ++i) {
      const Instr& instr = segment.instrs[i];
      visit_buffers(instr, [&](size_t b) {
        first[b] = std::min(first[b], i);
        last[b] = i;
        if (seen[b]) return;
        seen[b] = true;
        add_buffer(b, stage);
      });
      stage.workspace = std::max(stage.workspace, workspace_of(instr));
    }
    std::vector<std::vector<size_t>> begins(segment.instrs.size()), ends(segment.instrs.size());
    for (size_t b = 0; b < device_.buffers.size(); ++b) {
      if (!activation(b) || first[b] == never) continue;
      begins[first[b]].push_back(b);
      ends[last[b]].push_back(b);
    }
    std::map<int64_t, int> here;  // buffers that live at an offset: an operand and the result in its place count once
    Bytes live;
    for (size_t i = 0; i < segment.instrs.size(); ++i) {
      for (const size_t b : begins[i]) {
        if (here[device_.buffers[b].offset]++ == 0) live += extent(b);
      }
      if (live > stage.bound) {
        stage.bound = live;
        stage.peak = segment.instrs[i].label;
      }
      for (const size_t b : ends[i]) {
        if (--here[device_.buffers[b].offset] == 0) live = live - extent(b);
      }
    }
  }

  void add_buffer(size_t b, StageFootprint& stage) const {
    const Buffer& buffer = device_.buffers[b];
    if (activation(b)) {
      stage.activations = std::max(stage.activations, bytes(buffer.offset - region_) + extent(b));
    } else if (buffer.kind == BufferKind::weight || buffer.kind == BufferKind::state) {
      stage.weights += extent(b);
    } else if (buffer.kind == BufferKind::comm) {
      stage.messages += extent(b);
    } else if (buffer.kind == BufferKind::stash) {
      stage.stash += extent(b);
    }
  }

  Bytes workspace_of(const Instr& instr) const {
    if (!instr.workspace.buffer.valid()) return bytes(0);
    return nlsplit::workspace_of(program_.descs[static_cast<size_t>(instr.desc)], device_.cores);
  }

  const Program& program_;
  const DeviceProgram& device_;
  std::vector<bool> is_workspace_;  // [buffer]
  int64_t region_ = 0;              // where the activations begin
};

}  // namespace

std::vector<DeviceFootprint> footprints(const Program& program) {
  std::vector<DeviceFootprint> all;
  for (const DeviceProgram& device : program.devices) all.push_back(Footprints(program, device).find());
  return all;
}

}  // namespace nlsplit::inline program
