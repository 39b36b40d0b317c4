// Computations of a device: where they find their operands, and where they put their results.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "compile/device_writer.h"
#include "kernels/layout.h"
#include "program/data_movement.h"

namespace nlsplit::inline compiler {

void DeviceWriter::emit(Segment& segment, Instr instr) {
  buffers_.note(segment, instr, moment_);
  if (moment_ > 0) ++moment_;
  segment.instrs.push_back(std::move(instr));
}

bool DeviceWriter::made_by(int stage, ValueId root) const {
  const Value& value = g_.value(root);
  return value.kind == ValueKind::node && l_.nodes.of_node[value.producer.index()] == stage;
}

bool DeviceWriter::from_repetition(const Segment& segment, ValueId root) const {
  return l_.recomputes(segment.stage) && segment.phase != Phase::forward && made_by(segment.stage, root) &&
         l_.phase_of(root) == NodePhase::forward;
}

void DeviceWriter::emit_reorder(Segment& segment, ValueId root, const Stored& from, int from_block, const Stored& to,
                                int to_block) {
  const ComputeDesc desc = reorder_desc(with_block(g_.value(root).type, from_block), to_block, out_.level);
  Instr instr;
  instr.opcode = Opcode::compute;
  instr.desc = intern_desc(program_, desc);
  instr.reads = {{buffers_.seen_as(from, root)}};
  instr.writes = {{buffers_.seen_as(to, root)}};
  instr.label =
      fmt::format("{} {}", g_.value(root).name, to_block == 0 ? "row-major" : fmt::format("in c{}", to_block));
  emit(segment, std::move(instr));
}

void DeviceWriter::emit_cast(Segment& segment, ValueId root, BufferId from, BufferId to) {
  emit_cast(segment, g_.value(root).name, {from}, {to});
}

void DeviceWriter::emit_cast(Segment& segment, const std::string& name, const Operand& from, const Operand& to) {
  Instr instr = cast_instr(program_, out_, from, to);
  const ComputeDesc& desc = program_.descs[static_cast<size_t>(instr.desc)];
  if (const Bytes workspace = workspace_of(desc, out_.cores); workspace.value() > 0)
    instr.workspace = {buffers_.workspace(workspace)};
  instr.label = fmt::format("{} {}", name, name_of(desc.outputs[0].dtype));
  emit(segment, std::move(instr));
}

void DeviceWriter::convert(Segment& segment, const Flow& flow) {
  if (std::ranges::find(converted_, flow.root) != converted_.end()) return;
  converted_.push_back(flow.root);
  const Stored& from = buffers_.place_of(flow.root, layouts_[at(l_.flow_of[flow.root.index()])]);
  emit_cast(segment, flow.root, buffers_.seen_as(from, flow.root), buffers_.converted(flow).buffer);
}

bool DeviceWriter::is_converted_when_made(const Flow& flow) const {
  if (!flow.backward) return false;
  for (int m = 0; m < l_.micro_batches(); ++m) {
    const auto goes_away = [&](int stage) { return l_.device_of(stage, m) != d_; };
    if (l_.device_of(flow.producer, m) == d_ && std::ranges::any_of(flow.consumers, goes_away)) return true;
  }
  return false;
}

Instr DeviceWriter::cut_input(ValueId part, const Stored& to) {
  const Node& node = g_.node(g_.value(part).producer);
  Instr instr;
  instr.opcode = Opcode::pack;
  instr.reads = {{buffers_.place_of(node.inputs[0], 0).buffer}};
  instr.writes = {{buffers_.seen_as(to, part)}};
  instr.axis = static_cast<int>(attr_ints(node.attrs, "axes")[0]);
  instr.begin = attr_ints(node.attrs, "starts")[0];
  instr.end = attr_ints(node.attrs, "ends")[0];
  instr.label = graph_.labels[g_.value(part).producer.index()];
  return instr;
}

Stored DeviceWriter::wanted(Segment& segment, ValueId root, int block) {
  if (from_repetition(segment, root)) return buffers_.recomputed(root);
  Available& there = available_[root.index()];
  const int number = static_cast<int>(out_.segments.size());  // of the segment being made
  if (there.segment != number) {
    there = {number, false, false, 0};
    const int f = l_.flow_of[root.index()];
    if (l_.training != nullptr && (made_by(segment.stage, root) || l_.phase_of(root) == NodePhase::step)) {
      // In an earlier phase or slot; training is row-major.
      there.set(0);
      (void)buffers_.storage(root, 0, root);
    } else if (d_ == l_.source && graph_.is_input_part(root)) {
      emit(segment, cut_input(root, buffers_.copy_of(segment, root, 0)));
      there.set(0);
      there.copies = 1;
    } else {
      CHECK(f >= 0, "a value from another stage is in no message");
      const Flow& flow = l_.flows[at(f)];
      const int as_sent = layouts_[at(f)];
      there.set(as_sent);
      if (!l_.is_converted(flow)) {
        (void)buffers_.message(flow);
      } else if (l_.is_sent_to(flow, segment.stage, micro_batch_)) {
        const Stored& copy = buffers_.copy_of(segment, root, as_sent);
        emit_cast(segment, root, buffers_.converted(flow).buffer, copy.buffer);
        there.copies = as_sent == 0 ? 1 : 2;
      } else {
        (void)buffers_.storage(root, as_sent, root);
      }
    }
  }
  const auto stored = [&](int in_block) {
    return there.copied(in_block) ? buffers_.copy_of(segment, root, in_block) : buffers_.place_of(root, in_block);
  };
  if (there.has(block)) return stored(block);
  const int have = block == 0 ? static_cast<int>(vector_width(out_.level.isa)) : 0;
  const Stored copy = buffers_.copy_of(segment, root, block);
  emit_reorder(segment, root, stored(have), have, copy, block);
  there.set(block);
  there.copies |= block == 0 ? 1 : 2;
  return copy;
}

Operand DeviceWriter::weight(const Segment& segment, ValueId value, KernelId kernel, size_t input, Bytes packed) {
  const ValueId root = graph_.root[value.index()];
  if (const std::optional<Operand> gathered = buffers_.gathered(segment.stage, segment.phase, root)) return *gathered;
  if (!buffers_.is_state(root) && value == root) return {buffers_.weight(value, kernel, input, packed)};
  const Operand whole =
      buffers_.is_state(root) ? buffers_.state(segment.stage, root) : Operand{buffers_.weight(root, {}, 0, bytes(0))};
  return value == root ? whole : Operand{buffers_.seen_as({whole.buffer, root}, value)};
}

ValueId DeviceWriter::state_at(ValueId root) const {
  if (state_of_.empty()) return {};
  const std::vector<size_t>& readers = graph_.readers[root.index()];
  const bool is_part =
      readers.size() == 1 && g_.nodes[readers[0]].op == Op::Accumulate && l_.phase_of(root) == NodePhase::weight;
  if (!is_part) return state_of_[root.index()];
  const ValueId sum = state_of_[g_.nodes[readers[0]].outputs[0].index()];
  if (shares_ != nullptr) return made_in_bucket_buffer(root, sum) ? sum : ValueId();
  return first_ ? sum : state_of_[root.index()];
}

Operand DeviceWriter::place_of_state(const Segment& segment, ValueId state) {
  return lies_in_bucket_buffer(segment, state) ? buffers_.in_bucket_buffer(segment.stage, state)
                                               : buffers_.state(segment.stage, state);
}

const Stored& DeviceWriter::place_of_message(const Flow& flow, int block) {
  CHECK(buffers_.message(flow).valid(), "a message without a buffer");
  return buffers_.place_of(flow.root, block);
}

void DeviceWriter::compute(Segment& segment, size_t n) {
  begin_node(n);
  const Node& node = g_.nodes[n];
  if (shares_ != nullptr && node.op == Op::Accumulate) return put_in_bucket_buffer(segment, node, graph_.labels[n]);
  const NodeKernel& kernel = (*kernels_)[n];
  const ComputeDesc& desc = chosen_->descs[n];
  Instr instr;
  instr.opcode = Opcode::compute;
  instr.reads.reserve(desc.inputs.size());
  const auto read = [&](ValueId value) {
    if (!value.valid()) return;
    const size_t i = instr.reads.size();
    const ValueId root = graph_.root[value.index()];
    if (g_.value(root).kind == ValueKind::weight)
      instr.reads.push_back(weight(segment, value, desc.kernel, i, kernel.packed[i]));
    else if (const ValueId state = state_at(root); state.valid())
      instr.reads.push_back(place_of_state(segment, state));
    else if (const std::optional<Operand> sum = buffers_.sum_of_squares(root))
      instr.reads.push_back(*sum);
    else
      instr.reads.push_back({buffers_.seen_as(wanted(segment, root, desc.inputs[i].block), value)});
  };
  for (const ValueId value : node.inputs) read(value);
  for (const EpilogueStep& step : node.epilogue) read(step.operand);
  if (first_ && node.op == Op::Accumulate) return begin_sum(segment, instr.reads[0], instr.reads[1], graph_.labels[n]);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId value = node.outputs[i];
    if (const ValueId state = state_at(value); state.valid())
      instr.writes.push_back(place_of_state(segment, state));
    else if (const std::optional<Operand> sum = buffers_.sum_of_squares(value))
      instr.writes.push_back(*sum);
    else if (from_repetition(segment, value))
      instr.writes.push_back({buffers_.seen_as(buffers_.recomputed(value), value)});
    else
      instr.writes.push_back({buffers_.seen_as(buffers_.storage(value, desc.outputs[i].block, value), value)});
  }
  const Bytes workspace = out_.cores == 1 ? kernel.workspace : workspace_of(desc, out_.cores);
  if (workspace.value() > 0) instr.workspace = {buffers_.workspace(workspace)};
  instr.label = graph_.labels[n];
  int& index = (*interned_)[kernel.same_as];  // after its operands': descs are in order of first use
  if (index < 0) {
    index = static_cast<int>(program_.descs.size());
    program_.descs.push_back(desc);
  }
  instr.desc = index;
  note_in_place(instr, kernel.in_place);
  emit(segment, std::move(instr));
  for (const ValueId value : node.outputs) {
    if (state_at(value).valid() || from_repetition(segment, value) || buffers_.sum_of_squares(value)) continue;
    const int made = made_in(value), f = l_.flow_of[value.index()];
    Available& there = available_[value.index()];
    there = {static_cast<int>(out_.segments.size()), false, false, 0};
    there.set(made);
    if (f < 0) continue;
    const Flow& flow = l_.flows[at(f)];
    if (const int block = layouts_[at(f)]; block != made) {
      const Stored& sent =
          l_.is_converted(flow) ? buffers_.storage(value, block, value) : place_of_message(flow, block);
      emit_reorder(segment, value, buffers_.place_of(value, made), made, sent, block);
      there.set(block);
    }
    if (l_.is_converted(flow) && (l_.convert_always || is_converted_when_made(flow))) convert(segment, flow);
  }
}

void DeviceWriter::compute_all(Segment& segment, const std::vector<size_t>& nodes) {
  for (const size_t n : nodes) {
    if (stepped_.insert(n).second) compute(segment, n);
  }
}

void DeviceWriter::note_in_place(const Instr& instr, uint64_t reads) {
  if (reads == 0) return;
  const BufferId result = out_.root(instr.writes[0].buffer);
  for (const Operand& read : instr.reads) {
    const BufferId held = out_.root(read.buffer);
    if (may_overwrite(out_, instr, reads, held)) in_place_.push_back({result, held});
  }
}

}  // namespace nlsplit::inline compiler
