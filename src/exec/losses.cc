#include "exec/losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "graph/differentiate/step_graph.h"

namespace nlsplit::inline exec {
namespace {

// An output of this name and type of any of the session's Programs.
bool holds(std::string_view name, const TensorType& type, const DeviceProgram& device, const Instr& instr) {
  if (instr.opcode == Opcode::send || instr.writes.empty()) return false;
  const Buffer& buffer = device.buffer(device.root(instr.writes[0].buffer));
  return buffer.kind == BufferKind::output && buffer.type == type && buffer.name.ends_with(fmt::format("/{}", name));
}

}  // namespace

LossRecord::LossRecord(const Sequence& sequence, int device)
    : device_(sequence.program.devices[static_cast<size_t>(device)]),
      instances_(sequence.dependencies.instances.data() +
                 sequence.dependencies.device_begin[static_cast<size_t>(device)]) {
  const auto d = static_cast<size_t>(device);
  micro_batches_ = static_cast<size_t>(sequence.program.micro_batches);
  for (const int execution : sequence.execution_of[d])
    executions_ = std::max(executions_, static_cast<size_t>(execution + 1));
  const size_t count = sequence.dependencies.device_begin[d + 1] - sequence.dependencies.device_begin[d];
  place_.assign(count, -1);
  norm_of_.assign(count, -1);
  bool any = false;
  for (size_t i = 0; i < count; ++i) {
    const Instance& at = instances_[i];
    const int execution = sequence.execution_of[d][static_cast<size_t>(at.slot)];
    const int m = device_.order[static_cast<size_t>(at.slot)].micro_batch;
    if (execution < 0) continue;
    if (holds(gradient_norm_name, gradient_norm_type(), device_, instr_of(sequence.program, at))) {
      norm_of_[i] = execution;
      continue;
    }
    if (m < 0 || !holds(losses_name, losses_type(), device_, instr_of(sequence.program, at))) continue;
    place_[i] = static_cast<int64_t>(static_cast<size_t>(execution) * micro_batches_ + static_cast<size_t>(m));
    any = true;
  }
  if (any) values_.resize(executions_ * micro_batches_);
  begin();
}

void LossRecord::begin() {
  made_.assign(values_.size(), 0);
  norms_.assign(executions_, std::numeric_limits<float>::quiet_NaN());
}

void LossRecord::ended(uint32_t instance, const std::byte* arena) {
  const int64_t place = place_[instance];
  if (place < 0 && norm_of_[instance] < 0) return;
  const Instance& at = instances_[instance];
  const Slot& slot = device_.order[static_cast<size_t>(at.slot)];
  const Instr& instr = device_.segments[static_cast<size_t>(slot.segment)].instrs[static_cast<size_t>(at.instr)];
  float& value = place < 0 ? norms_[static_cast<size_t>(norm_of_[instance])] : values_[static_cast<size_t>(place)];
  if (place >= 0) made_[static_cast<size_t>(place)] = 1;
  std::memcpy(&value, arena + address_of(device_, slot, instr.writes[0]), sizeof(float));
}

std::vector<ExecutionLoss> LossRecord::means() const {
  std::vector<ExecutionLoss> means;
  for (size_t e = 0; !values_.empty() && e < executions_; ++e) {
    double sum = 0;
    int count = 0;
    for (size_t i = e * micro_batches_; i < (e + 1) * micro_batches_; ++i) {
      if (made_[i] == 0) continue;
      sum += static_cast<double>(values_[i]);
      ++count;
    }
    if (count > 0) means.push_back({static_cast<int64_t>(e), sum / count, static_cast<double>(norms_[e])});
  }
  return means;
}

}  // namespace nlsplit::inline exec
