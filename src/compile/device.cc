// Pass `allocate`: each device's segments, buffers, instances and places.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "compile/device_writer.h"

namespace nlsplit::inline compiler {
namespace {

constexpr size_t instrs_of_turn = 3;  // mostly: it adds, sends and receives

}  // namespace

DeviceWriter::DeviceWriter(const Lowering& lowering, const std::vector<int>& layouts, int device, Interned& interned,
                           Program& program)
    : l_(lowering),
      graph_(*lowering.graph),
      g_(lowering.graph->graph),
      layouts_(layouts),
      d_(device),
      program_(program),
      out_(program.devices[at(device)]),
      buffers_(lowering, layouts, device, out_),
      available_(g_.values.size()) {
  const auto add = [this](const std::vector<StateUpdate>& updates) {
    if (!updates.empty()) state_of_.resize(g_.values.size());
    for (const StateUpdate& update : updates) state_of_[update.value.index()] = update.state;
  };
  add(graph_.updates);
  if (l_.training != nullptr) {
    add(l_.training->nodes.sums);
    add(l_.training->nodes.updates);
  }
  for (const Flow& flow : l_.flows) {
    if (l_.cluster->messages == DType::f32) break;
    givers_.resize(at(l_.stages()) + 1);
    if (!l_.is_converted(flow)) continue;
    for (const int stage : flow.consumers) givers_[at(stage)].insert(flow.producer);
  }
  for (const OrderedSlot& slot : l_.slots[at(d_)])
    steps_here_ += slot.phase == Phase::step && slot.stage < l_.stages() ? 1 : 0;
  if (out_.kind == DeviceKind::host) return;
  chosen_ = &graph_.chosen.at(out_.level);
  kernels_ = &graph_.kernels.at(out_.level);
  interned_ = &interned[out_.level];
  if (interned_->empty()) interned_->assign(g_.nodes.size(), -1);
}

WrittenDevice DeviceWriter::write() {
  if (d_ == l_.source) buffers_.add_inputs();
  if (d_ == l_.sink) buffers_.add_outputs();
  for (const OrderedSlot& slot : l_.slots[at(d_)]) {
    const int m = slot.phase == Phase::step ? -1 : slot.micro_batch;
    out_.order.push_back({variant_of(slot), m, {}});
    written_.first.push_back(first_);
  }
  out_.buffers.shrink_to_fit();
  buffers_.settle();
  std::erase_if(in_place_, [&](const InPlace& pair) {
    return out_.buffer(pair.result).kind != BufferKind::scratch || out_.buffer(pair.held).kind != BufferKind::scratch;
  });
  written_.device = d_;
  written_.rules = instance_rules();
  written_.touched = find_touched(out_, written_.rules.instanced);
  written_.scratch = buffers_.lifetimes();
  written_.in_place = std::move(in_place_);
  assign_instances(written_.rules, written_.touched, l_.micro_batches(), out_);
  place_buffers(out_, written_.scratch, written_.in_place);
  return std::move(written_);
}

InstanceRules DeviceWriter::instance_rules() const {
  const bool training = l_.training != nullptr;
  InstanceRules rules;
  rules.as_many_as_live = training;
  rules.room = l_.table.room;
  for (size_t b = 0; b < out_.buffers.size(); ++b) rules.instanced.push_back(buffers_.has_instances(BufferId(b)));
  const std::vector<OrderedSlot>& slots = l_.slots[at(d_)];
  rules.slots.reserve(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    InstanceRules::SlotTime& of = rules.slots.emplace_back();
    of.time = training ? slots[i].time : static_cast<double>(i);
    for (size_t r = 0; training && r < slots[i].recvs.size(); ++r) {
      const Flow& flow = l_.flows[at(slots[i].recvs[r].flow)];
      of.arrivals.emplace_back(buffers_.received(flow), slots[i].received_at[r]);
    }
  }
  return rules;
}

int DeviceWriter::variant_of(const OrderedSlot& slot) {
  first_ = slot.phase == Phase::weight_gradient && begin_sums(slot.stage);
  const bool own = slot.stage >= 0 && slot.stage < l_.stages();
  shares_ = own && !l_.reductions.empty() && l_.reductions[at(slot.stage)].keeps_share ? &l_.reductions[at(slot.stage)]
                                                                                       : nullptr;
  int number = 1;
  for (const Variant& known : variants_) {
    if (known.slot->stage != slot.stage || known.slot->phase != slot.phase || known.first != first_) continue;
    if (known.slot->reduces != slot.reduces) continue;
    if (!is_given_alike(*known.slot, slot)) {
      ++number;
      continue;
    }
    if (known.slot->recvs == slot.recvs && known.slot->sends == slot.sends) return known.segment;
    ++number;
  }
  const int segment = static_cast<int>(out_.segments.size());
  marks_.clear();
  out_.segments.push_back(make_segment(slot, number));
  written_.marks.push_back(std::move(marks_));
  variants_.push_back({&slot, segment, first_});
  return segment;
}

bool DeviceWriter::is_given_alike(const OrderedSlot& a, const OrderedSlot& b) const {
  if (givers_.empty() || a.stage < 0 || a.stage == l_.stages()) return true;
  return std::ranges::all_of(givers_[at(a.stage)], [&](int stage) {
    const auto is_here = [&](int m) { return l_.device_of(stage, m) == d_; };
    return is_here(a.micro_batch) == is_here(b.micro_batch);
  });
}

bool DeviceWriter::begin_sums(int stage) {
  if (std::ranges::find(begun_, stage) != begun_.end()) return false;
  begun_.push_back(stage);
  return true;
}

std::string DeviceWriter::segment_name(const OrderedSlot& slot, int number) const {
  const std::string name = slot.stage == source_stage  ? "source"
                           : slot.stage == ahead_stage ? "ahead"
                           : slot.stage == l_.stages()
                               ? (slot.phase == Phase::step ? "sink_step" : "sink")
                               : fmt::format("{}{}{}{}", slot.joint ? "B" : name_of(slot.phase), slot.stage,
                                             first_ ? "_first" : "", slot.reduces && shares_ == nullptr ? "_last" : "");
  return number == 1 ? name : fmt::format("{}_{}", name, number);
}

const std::vector<std::vector<size_t>>& DeviceWriter::nodes_of(Phase phase) const {
  switch (phase) {
    case Phase::forward:
      return l_.nodes.forward;
    case Phase::recompute:
      return l_.nodes.again;
    case Phase::input_gradient:
      return l_.nodes.input;
    case Phase::weight_gradient:
      return l_.nodes.weight;
    case Phase::step:
      return l_.nodes.step;
    case Phase::init:
      break;
  }
  CHECK(false, "no schedule has an init slot");
}

Segment DeviceWriter::make_segment(const OrderedSlot& slot, int number) {
  const bool sink = slot.stage == l_.stages();
  Segment segment;
  segment.name = segment_name(slot, number);
  segment.stage = slot.stage < 0 || sink ? io_stage : slot.stage;
  segment.shard = sink ? 1 : slot.stage == ahead_stage ? 2 : 0;
  segment.phase = slot.phase;
  micro_batch_ = slot.micro_batch;
  converted_.clear();
  if (slot.reduces && shares_ != nullptr) reduced_.erase(slot.stage);  // each reduces anew
  receive(segment, slot);
  if (segment.stage < 0) {
    if (slot.stage == source_stage) feed(segment, slot);
    if (sink && slot.phase == Phase::step) {
      const BufferId norm = buffers_.place_of(l_.clipping->norm, 0).buffer;
      emit(segment, transfer(Opcode::recv, {norm}, {l_.norm_tag(), l_.group(l_.clipping->stage)[0]}));
    } else if (sink) {
      collect(segment);
    }
    return segment;
  }
  if (slot.phase != Phase::step) {
    const std::vector<size_t>& nodes = nodes_of(slot.phase)[at(slot.stage)];
    compute_and_send(segment, slot, slot.joint ? l_.backward_nodes(slot.stage) : nodes);
    return segment;
  }
  const StepNodes& step = l_.training->nodes;
  const bool first = slot_of_step(slot) == 1;
  if (!l_.steps_together())
    reduce_gradients(segment, slot.stage);
  else if (first)
    begin_steps(segment);
  if (first) compute_all(segment, step.before_updates);
  if (l_.reductions[at(slot.stage)].sharded)
    update_share(segment, slot.stage);
  else
    compute_all(segment, l_.nodes.step[at(slot.stage)]);
  if (slot_of_step(slot) == steps_here_) compute_all(segment, step.behind_updates);
  return segment;
}

void DeviceWriter::compute_and_send(Segment& segment, const OrderedSlot& slot, const std::vector<size_t>& nodes) {
  size_t next = 0;
  std::vector<ReductionTurn> turns;  // left to take
  if (slot.reduces) turns = l_.reductions[at(slot.stage)].turns;
  segment.instrs.reserve(slot.recvs.size() + nodes.size() + turns.size() * instrs_of_turn + slot.sends.size());
  const auto take_due = [&](size_t behind) {
    const auto due = std::ranges::find_if(turns, [&](const ReductionTurn& turn) { return turn.behind > behind; });
    std::for_each(turns.begin(), due, [&](const ReductionTurn& turn) { take_turn(segment, slot.stage, turn); });
    turns.erase(turns.begin(), due);
  };
  size_t gathered = 0;
  for (const size_t n : nodes) {
    gather_due(segment, n, gathered);
    if (shares_ != nullptr) free_bucket_buffer(segment, n, turns);
    compute(segment, n);
    take_due(n);
    for (; next < slot.sends.size() && !is_credit(slot.sends[next]); ++next) {
      if (g_.value(l_.flows[at(slot.sends[next].flow)].root).producer.index() != n) break;
      send(segment, slot, next);
    }
  }
  begin_end();
  take_due(ReductionTurn::at_the_end);
  for (; next < slot.sends.size(); ++next) send(segment, slot, next);
}

void DeviceWriter::feed(Segment& segment, const OrderedSlot& slot) {
  int cut = -1;
  for (size_t i = 0; i < slot.sends.size(); ++i) {
    const Port& port = slot.sends[i];
    const Flow& flow = l_.flows[at(port.flow)];
    if (port.flow != cut && graph_.is_input_part(flow.root)) {
      const BufferId message = buffers_.message(flow);
      emit(segment, cut_input(flow.root, {message, buffers_.place_of(flow.root, 0).as}));
      cut = port.flow;
    }
    send(segment, slot, i);
  }
}

void DeviceWriter::collect(Segment& segment) {
  for (const auto& [value, output] : buffers_.copied_outputs())
    emit(segment, copy({buffers_.place_of(graph_.root[value.index()], 0).buffer}, {output}, g_.value(value).name));
}

Instr DeviceWriter::transfer(Opcode opcode, const Operand& data, const Port& port) {
  Instr instr;
  instr.opcode = opcode;
  (opcode == Opcode::send ? instr.reads : instr.writes).push_back(data);
  instr.peer = port.peer;
  instr.tag = port.flow;
  return instr;
}

Instr DeviceWriter::copy(Operand from, Operand to, std::string label) {
  Instr instr;
  instr.opcode = Opcode::copy;
  instr.reads = {from};
  instr.writes = {to};
  instr.label = std::move(label);
  return instr;
}

void DeviceWriter::receive(Segment& segment, const OrderedSlot& slot) {
  moment_ = 0;
  for (size_t i = 0; i < slot.recvs.size(); ++i) {
    const Port& port = slot.recvs[i];
    const BufferId buffer = is_credit(port) ? buffers_.credit_in() : buffers_.message(l_.flows[at(port.flow)]);
    emit(segment, transfer(Opcode::recv, {buffer}, port));
    marks_.push_back({PeerMark::Kind::recv, segment.instrs.size() - 1, segment.instrs.size(), i, {}});
  }
  if (std::ranges::any_of(slot.recvs, [this](const Port& port) { return is_credit(port); }))
    emit(segment, copy({buffers_.credit_in()}, {buffers_.token()}, "credit"));
}

void DeviceWriter::send(Segment& segment, const OrderedSlot& slot, size_t number) {
  const Port& port = slot.sends[number];
  if (is_credit(port))
    emit(segment, copy({buffers_.token()}, {buffers_.credit_out()}, "credit"));
  else if (const Flow& flow = l_.flows[at(port.flow)]; l_.is_converted(flow) && !is_converted_when_made(flow))
    convert(segment, flow);
  const BufferId buffer = is_credit(port) ? buffers_.credit_out() : buffers_.message(l_.flows[at(port.flow)]);
  emit(segment, transfer(Opcode::send, {buffer}, port));
  marks_.push_back({PeerMark::Kind::send, segment.instrs.size() - 1, segment.instrs.size(), number, {}});
}

namespace {

// Messages travel in the layout they are made in where all devices of the plan have one level, so blocks of one size;
// else row-major. Inputs, outputs, elements that share scales, and all of training are row-major in any case.
std::vector<int> flow_layouts(const Lowering& lowering) {
  std::vector<int> layouts(lowering.flows.size(), 0);
  if (lowering.training != nullptr || lowering.row_major_messages) return layouts;
  const Level level = lowering.program.devices[0].level;
  const auto other_level = [&](DeviceId device) { return lowering.cluster->device(device).level != level; };
  if (std::ranges::any_of(lowering.devices, other_level)) return layouts;
  for (size_t f = 0; f < layouts.size(); ++f) {
    const Flow& flow = lowering.flows[f];
    if (flow.producer == source_stage || flow.consumers.back() == lowering.stages() || is_scaled(flow.travels_as))
      continue;
    layouts[f] = lowering.graph->chosen.at(level).made_in[flow.root.index()];
  }
  return layouts;
}

}  // namespace

void allocate(Lowering& lowering) {
  const std::vector<int> layouts = flow_layouts(lowering);
  Interned interned;
  std::vector<WrittenDevice> written;  // that others may be replicas of
  for (size_t i = 0; i < lowering.program.devices.size(); ++i) {
    const auto d = static_cast<int>(i);
    const auto like =
        std::ranges::find_if(written, [&](const WrittenDevice& other) { return is_replica(lowering, other, d); });
    if (like != written.end())
      write_replica(lowering, *like, d);
    else
      written.push_back(DeviceWriter(lowering, layouts, d, interned, lowering.program).write());
  }
}

}  // namespace nlsplit::inline compiler
