// What the steps of a device's stages have in common: tied weights, clipping.
#include <algorithm>

#include "compile/device_writer.h"

namespace nlsplit::inline compiler {

int DeviceWriter::slot_of_step(const OrderedSlot& slot) const {
  int number = 0;
  for (const OrderedSlot& other : l_.slots[at(d_)]) {
    number += other.phase == Phase::step ? 1 : 0;
    if (&other == &slot) break;
  }
  return number;
}

void DeviceWriter::begin_steps(Segment& segment) {
  const int own = segment.stage;
  std::vector<int> here;
  for (const OrderedSlot& slot : l_.slots[at(d_)]) {
    if (slot.phase == Phase::step && slot.stage < l_.stages()) here.push_back(slot.stage);
  }
  for (const int stage : here) reduce_gradients(segment, stage);
  exchange_parts(segment);
  for (const int stage : here) {
    if (l_.reductions[at(stage)].sharded) continue;  // each gradient has one part
    segment.stage = stage;                           // whose states its nodes read
    for (const size_t n : l_.nodes.step[at(stage)]) {
      if (!is_update(g_.nodes[n].op)) compute_all(segment, {n});
    }
  }
  if (l_.clipping) clip(segment);
  segment.stage = own;
}

void DeviceWriter::exchange_parts(Segment& segment) {
  for (const Tied& tied : l_.tied) {
    for (const Tied::Part& part : tied.parts) {
      if (l_.group(part.stage)[0] != d_) continue;
      for (const int to : l_.part_goes_to(tied, part)) {
        const Operand sum = buffers_.state(part.stage, part.sum);
        emit(segment, transfer(Opcode::send, sum, {l_.part_tag(part.number), to}));
      }
    }
  }
  for (const Tied& tied : l_.tied) {
    for (const Tied::Part& part : tied.parts) {
      const std::vector<int> to = l_.part_goes_to(tied, part);
      if (std::ranges::find(to, d_) == to.end()) continue;
      emit(segment, transfer(Opcode::recv, buffers_.received_part(part.sum),
                             {l_.part_tag(part.number), l_.group(part.stage)[0]}));
    }
  }
}

void DeviceWriter::clip(Segment& segment) {
  const Clipping& clipping = *l_.clipping;
  const auto elements = [&](const Clipping::Part& part) {
    const BufferId squares = buffers_.squares(part.stage);
    return l_.reductions[at(part.stage)].sharded ? Operand{squares, part.begin, part.end} : Operand{squares};
  };
  for (const Clipping::Part& part : clipping.parts) {
    if (!l_.has_part(part, d_)) continue;
    segment.stage = part.stage;
    const auto first = clipping.sums[at(part.stage)].nodes.begin();
    compute_all(segment, {first + part.begin, first + part.end});
  }
  for (const Clipping::Part& part : clipping.parts) {
    if (part.device != d_) continue;
    for (const int to : part.to)
      emit(segment, transfer(Opcode::send, elements(part), {l_.squares_tag(part.stage), to}));
  }
  if (!l_.has_factor(d_)) {
    const std::vector<int> to = l_.factor_goes_to();
    if (std::ranges::find(to, d_) == to.end()) return;
    const BufferId factor = buffers_.storage(clipping.factor, 0, clipping.factor).buffer;
    return emit(segment, transfer(Opcode::recv, {factor}, {l_.factor_tag(), l_.group(clipping.stage)[0]}));
  }
  for (const Clipping::Part& part : clipping.parts) {
    if (!l_.has_part(part, d_))
      emit(segment, transfer(Opcode::recv, elements(part), {l_.squares_tag(part.stage), part.device}));
  }
  compute(segment, *l_.training->nodes.clip);
  if (l_.group(clipping.stage)[0] != d_) return;
  const auto stored = [&](ValueId value) { return buffers_.storage(value, 0, value).buffer; };
  for (const int to : l_.factor_goes_to())
    emit(segment, transfer(Opcode::send, {stored(clipping.factor)}, {l_.factor_tag(), to}));
  if (l_.sends_norm()) emit(segment, transfer(Opcode::send, {stored(clipping.norm)}, {l_.norm_tag(), l_.sink}));
}

}  // namespace nlsplit::inline compiler
