#include "exec/number_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "program/text.h"

namespace nlsplit::inline exec {
namespace {

std::span<const float> floats_of(const DeviceProgram& device, const Slot& slot, const Operand& operand,
                                 const std::byte* arena) {
  if (!operand.buffer.valid() || device.buffer(operand.buffer).type.dtype != DType::f32) return {};
  const auto* const first = reinterpret_cast<const float*>(arena + address_of(device, slot, operand));
  return {first, static_cast<size_t>(bytes_of(device, operand).value()) / sizeof(float)};
}

bool are_numbers(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

}  // namespace

NumberCheck::NumberCheck(const Sequence& sequence, int device)
    : program_(sequence.program),
      device_(sequence.program.devices[static_cast<size_t>(device)]),
      instances_(sequence.dependencies.instances.data() +
                 sequence.dependencies.device_begin[static_cast<size_t>(device)]) {}

void NumberCheck::ended(uint32_t instance, const std::byte* arena) {
  const Instance& at = instances_[instance];
  const Slot& slot = device_.order[static_cast<size_t>(at.slot)];
  const Segment& segment = device_.segments[static_cast<size_t>(slot.segment)];
  const Instr& instr = segment.instrs[static_cast<size_t>(at.instr)];
  if (is_transfer(instr.opcode)) return;
  const auto sound = [&](const Operand& operand) { return are_numbers(floats_of(device_, slot, operand, arena)); };
  // What is written where it was read is no longer there; had it been none, it would have been found when it was made.
  const auto overwritten = [&](const Operand& operand) {
    return operand.buffer.valid() && std::ranges::any_of(instr.writes, [&](const Operand& write) {
             return device_.root(write.buffer) == device_.root(operand.buffer);
           });
  };
  const auto was_sound = [&](const Operand& operand) { return overwritten(operand) || sound(operand); };
  if (std::ranges::all_of(instr.writes, sound) || !std::ranges::all_of(instr.reads, was_sound)) return;
  const std::lock_guard lock(mutex_);
  if (!found_.empty()) return;
  const std::string where = slot.micro_batch < 0 ? "" : fmt::format(" micro-batch {}", slot.micro_batch);
  found_ = fmt::format("{} of device {}, segment {}{}: `{}`", instr.label.empty() ? "a computation" : instr.label,
                       device_.name, segment.name, where, to_string(program_, device_, instr));
}

}  // namespace nlsplit::inline exec
