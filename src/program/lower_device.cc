#include "program/lower_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "kernels/layout.h"
#include "program/in_place.h"
#include "program/lower_buffers.h"

namespace nlsplit {
namespace {

class DeviceBuilder {
 public:
  DeviceBuilder(const LowerInput& input, const std::vector<OrderedSlot>& order, int d,
                std::map<Isa, std::vector<int>>& interned, Program& program)
      : in_(input),
        g_(input.graph->graph),
        placement_(*input.placement),
        flows_(*input.flows),
        order_(order),
        d_(d),
        program_(program),
        out_(program.devices[at(d)]),
        buffers_(input, order, d, out_),
        available_(g_.values.size()),
        lifetimes_noted_(at(placement_.stages), false),
        lifetimes_(at(placement_.stages)) {
    if (out_.kind == DeviceKind::host) return;
    chosen_ = &input.graph->chosen.at(out_.isa);
    kernels_ = &input.graph->kernels.at(out_.isa);
    interned_ = &interned[out_.isa];
    if (interned_->empty()) interned_->assign(g_.nodes.size(), -1);
  }

  void build() {
    if (d_ == placement_.source) buffers_.add_inputs();
    if (d_ == placement_.sink) buffers_.add_outputs();
    for (const OrderedSlot& slot : order_) out_.order.push_back({variant_of(slot), slot.micro_batch, {}});
    buffers_.finish_workspace();
    assign_banks(out_, placement_.micro_batches);
    place_buffers(out_, lifetimes_, in_place_);
  }

 private:
  bool is_credit(const Port& port) const { return at(port.flow) == flows_.size(); }
  int made_in(ValueId root) const { return chosen_ == nullptr ? 0 : chosen_->made_in[root.index()]; }

  // In which layouts a root can be read in the segment being made.
  struct Available {
    int segment = -1;  // else outdated
    bool row_major = false, blocked = false;
    int copies = 0;  // bit 0: the row-major one is the stage's own copy; bit 1: the blocked one is
    bool has(int block) const { return block == 0 ? row_major : blocked; }
    bool copied(int block) const { return (copies & (block == 0 ? 1 : 2)) != 0; }
    void set(int block) { (block == 0 ? row_major : blocked) = true; }
  };

  // The same values in another layout.
  void emit_reorder(Segment& segment, ValueId root, const Stored& from, int from_block, const Stored& to,
                    int to_block) {
    const ComputeDesc desc = reorder_desc(with_block(g_.value(root).type, from_block), to_block, out_.isa);
    Instr instr;
    instr.opcode = Opcode::compute;
    instr.desc = intern_desc(program_, desc);
    instr.reads = {{buffers_.seen_as(from, root)}};
    instr.writes = {{buffers_.seen_as(to, root)}};
    instr.label =
        fmt::format("{} {}", g_.value(root).name, to_block == 0 ? "row-major" : fmt::format("in c{}", to_block));
    segment.instrs.push_back(std::move(instr));
  }

  // A part of an input, taken out of it.
  Instr cut_input(ValueId part, const Stored& to) {
    const Node& node = g_.node(g_.value(part).producer);
    Instr instr;
    instr.opcode = Opcode::pack;
    instr.reads = {{buffers_.place_of(node.inputs[0], 0).buffer}};
    instr.writes = {{buffers_.seen_as(to, part)}};
    instr.axis = static_cast<int>(attr_ints(node.attrs, "axes")[0]);
    instr.begin = attr_ints(node.attrs, "starts")[0];
    instr.end = attr_ints(node.attrs, "ends")[0];
    instr.label = in_.graph->labels[g_.value(part).producer.index()];
    return instr;
  }

  // Where the next computation of a stage finds a root in the layout it wants; reordered before it if need be.
  Stored wanted(Segment& segment, ValueId root, int block) {
    Available& there = available_[root.index()];
    const int number = static_cast<int>(out_.segments.size());  // of the segment being made
    if (there.segment != number) {
      there = {number, false, false, 0};
      const int f = in_.flow_of[root.index()];  // made by an earlier stage, or an input
      CHECK(f >= 0, "a value from an earlier stage is in no message");
      there.set(in_.flow_block[at(f)]);
      if (d_ == placement_.source && in_.graph->is_input_part(root)) {
        segment.instrs.push_back(cut_input(root, buffers_.copy_of_stage(segment.stage, root, 0)));
        there.copies = 1;
      } else {
        (void)buffers_.message(flows_[at(f)]);
      }
    }
    const auto stored = [&](int in_block) {
      return there.copied(in_block) ? buffers_.copy_of_stage(segment.stage, root, in_block)
                                    : buffers_.place_of(root, in_block);
    };
    if (there.has(block)) return stored(block);
    const int have = block == 0 ? static_cast<int>(vector_width(out_.isa)) : 0;
    const Stored copy = buffers_.copy_of_stage(segment.stage, root, block);
    emit_reorder(segment, root, stored(have), have, copy, block);
    there.set(block);
    there.copies |= block == 0 ? 1 : 2;
    return copy;
  }

  void compute(Segment& segment, size_t n) {
    const Node& node = g_.nodes[n];
    const NodeKernel& kernel = (*kernels_)[n];
    const ComputeDesc& desc = chosen_->descs[n];
    Instr instr;
    instr.opcode = Opcode::compute;
    instr.reads.reserve(desc.inputs.size());
    const auto read = [&](ValueId value) {
      if (!value.valid()) return;
      const size_t i = instr.reads.size();
      if (g_.value(value).kind == ValueKind::weight) {
        instr.reads.push_back({buffers_.weight(value, desc.kernel, i, kernel.packed[i])});
      } else {
        const ValueId root = in_.graph->root[value.index()];
        if (g_.value(root).kind == ValueKind::weight) {  // a view of a constant
          instr.reads.push_back({buffers_.seen_as({buffers_.weight(root, "", 0, bytes(0)), root}, value)});
        } else {
          instr.reads.push_back({buffers_.seen_as(wanted(segment, root, desc.inputs[i].block), value)});
        }
      }
    };
    for (const ValueId value : node.inputs) read(value);
    for (const EpilogueStep& step : node.epilogue) read(step.operand);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId value = node.outputs[i];
      instr.writes.push_back({buffers_.seen_as(buffers_.storage(value, desc.outputs[i].block, value), value)});
    }
    if (const Bytes workspace = workspace_of(*kernel.kernel, desc, out_.isa, out_.cores); workspace.value() > 0)
      instr.workspace = {buffers_.workspace(workspace)};
    instr.label = in_.graph->labels[n];
    int& index = (*interned_)[kernel.same_as];  // after its operands': descs are in order of first use
    if (index < 0) {
      index = static_cast<int>(program_.descs.size());
      program_.descs.push_back(desc);
    }
    instr.desc = index;
    if (!lifetimes_noted_[at(segment.stage)]) note_in_place(instr, in_place_inputs(*kernel.kernel, desc));
    segment.instrs.push_back(std::move(instr));
    for (const ValueId value : node.outputs) {
      const int made = made_in(value), f = in_.flow_of[value.index()];
      Available& there = available_[value.index()];
      there = {static_cast<int>(out_.segments.size()), false, false, 0};
      there.set(made);
      if (f < 0 || in_.flow_block[at(f)] == made) continue;
      const int block = in_.flow_block[at(f)];
      const BufferId message = buffers_.message(flows_[at(f)]);
      CHECK(message.valid(), "a message without a buffer");
      emit_reorder(segment, value, buffers_.place_of(value, made), made, buffers_.place_of(value, block), block);
      there.set(block);
    }
  }

  static Instr transfer(Opcode opcode, BufferId buffer, int peer, int tag) {
    Instr instr;
    instr.opcode = opcode;
    (opcode == Opcode::send ? instr.reads : instr.writes).push_back({buffer});
    instr.peer = peer;
    instr.tag = tag;
    return instr;
  }

  // ---- Credits. Their value means nothing: copying it is what makes the computations behind it wait for it, and it
  // for those before.
  static Instr copy_credit(BufferId from, BufferId to) {
    Instr copy;
    copy.opcode = Opcode::copy;
    copy.reads = {{from}};
    copy.writes = {{to}};
    copy.label = "credit";
    return copy;
  }

  // The scratch that the only result, if it is scratch too, may overwrite.
  void note_in_place(const Instr& instr, uint64_t reads) {
    if (reads == 0) return;
    const BufferId result = out_.root(instr.writes[0].buffer);
    if (out_.buffer(result).kind != BufferKind::scratch) return;
    for (const Operand& read : instr.reads) {
      const BufferId held = out_.root(read.buffer);
      if (out_.buffer(held).kind == BufferKind::scratch && may_overwrite(out_, instr, reads, held))
        in_place_.push_back({result, held});
    }
  }

  // When the scratch of a stage lives, counted in instructions of the first segment that is made of it: in the others
  // only messages differ, and those touch no scratch.
  void note_lifetimes(const Segment& segment) {
    if (lifetimes_noted_[at(segment.stage)]) return;
    lifetimes_noted_[at(segment.stage)] = true;
    std::vector<ScratchLifetime>& lives = lifetimes_[at(segment.stage)];
    constexpr size_t unseen = ~size_t{0};
    std::vector<size_t> index(out_.buffers.size(), unseen);
    for (size_t i = 0; i < segment.instrs.size(); ++i) {
      const auto touch = [&](const Operand& operand) {
        const BufferId buffer = out_.root(operand.buffer);
        if (out_.buffer(buffer).kind != BufferKind::scratch) return;
        const auto moment = static_cast<int64_t>(i);
        size_t& known = index[buffer.index()];
        if (known == unseen) {
          known = lives.size();
          lives.push_back({buffer, moment, moment});
        }
        lives[known].last = moment;
      };
      for (const Operand& read : segment.instrs[i].reads) touch(read);
      for (const Operand& write : segment.instrs[i].writes) touch(write);
    }
  }

  std::string segment_name(int stage, int number) const {
    std::string name = stage == source_stage        ? "source"
                       : stage == ahead_stage       ? "ahead"
                       : stage == placement_.stages ? "sink"
                                                    : fmt::format("F{}", stage);
    return number == 1 ? name : fmt::format("{}_{}", name, number);
  }

  Segment make_segment(const OrderedSlot& slot, int number) {
    Segment segment;
    segment.name = segment_name(slot.stage, number);
    segment.stage = slot.stage < 0 || slot.stage == placement_.stages ? io_stage : slot.stage;
    segment.shard = slot.stage == placement_.stages ? 1 : slot.stage == ahead_stage ? 2 : 0;
    for (const Port& port : slot.recvs) {
      const BufferId buffer = is_credit(port) ? buffers_.credit_in() : buffers_.message(flows_[at(port.flow)]);
      segment.instrs.push_back(transfer(Opcode::recv, buffer, port.peer, port.flow));
    }
    if (std::ranges::any_of(slot.recvs, [this](const Port& port) { return is_credit(port); }))
      segment.instrs.push_back(copy_credit(buffers_.credit_in(), buffers_.token()));
    size_t next_send = 0;
    const auto send_while = [&](auto condition) {
      for (; next_send < slot.sends.size() && !is_credit(slot.sends[next_send]) &&
             condition(flows_[at(slot.sends[next_send].flow)]);
           ++next_send) {
        const Port& port = slot.sends[next_send];
        segment.instrs.push_back(transfer(Opcode::send, buffers_.message(flows_[at(port.flow)]), port.peer, port.flow));
      }
    };
    if (segment.stage >= 0) {
      const Stage& stage = in_.plan->stages[at(slot.stage)];
      for (size_t n = stage.begin; n < stage.end; ++n) {
        if (is_view(g_.nodes[n].op)) continue;
        compute(segment, n);
        send_while([&](const Flow& flow) { return g_.value(flow.root).producer.index() == n; });
      }
      note_lifetimes(segment);
      for (; next_send < slot.sends.size() && is_credit(slot.sends[next_send]); ++next_send) {
        const BufferId buffer = buffers_.credit_out();
        segment.instrs.push_back(copy_credit(buffers_.token(), buffer));
        segment.instrs.push_back(
            transfer(Opcode::send, buffer, slot.sends[next_send].peer, slot.sends[next_send].flow));
      }
    } else if (slot.stage == source_stage) {
      for (int cut = -1; next_send < slot.sends.size();) {
        const int f = slot.sends[next_send].flow;
        if (const ValueId root = flows_[at(f)].root; f != cut && in_.graph->is_input_part(root)) {
          const BufferId message = buffers_.message(flows_[at(f)]);
          segment.instrs.push_back(cut_input(root, {message, buffers_.place_of(root, 0).as}));
          cut = f;
        }
        send_while([&](const Flow& flow) { return &flow == &flows_[at(f)]; });
      }
    } else if (slot.stage == placement_.stages) {
      for (const auto& [value, output] : buffers_.copied_outputs()) {
        Instr copy;
        copy.opcode = Opcode::copy;
        copy.reads = {{buffers_.place_of(in_.graph->root[value.index()], 0).buffer}};
        copy.writes = {{output}};
        copy.label = g_.value(value).name;
        segment.instrs.push_back(std::move(copy));
      }
    }
    CHECK(next_send == slot.sends.size(), "a message that no instruction makes");
    return segment;
  }

  // The segment of a slot: the one with the same stage, peers and messages, made if there is none yet.
  int variant_of(const OrderedSlot& slot) {
    int number = 1;
    for (const auto& [known, segment] : variants_) {
      if (known->stage != slot.stage) continue;
      if (known->recvs == slot.recvs && known->sends == slot.sends) return segment;
      ++number;
    }
    const int segment = static_cast<int>(out_.segments.size());
    out_.segments.push_back(make_segment(slot, number));
    variants_.emplace_back(&slot, segment);
    return segment;
  }

  const LowerInput& in_;
  const Graph& g_;
  const Placement& placement_;
  const std::vector<Flow>& flows_;
  const std::vector<OrderedSlot>& order_;
  int d_;
  Program& program_;
  DeviceProgram& out_;
  const Assignment* chosen_ = nullptr;
  const std::vector<NodeKernel>* kernels_ = nullptr;
  std::vector<int>* interned_ = nullptr;
  DeviceBuffers buffers_;
  std::vector<Available> available_;                     // [root value]
  std::vector<bool> lifetimes_noted_;                    // [stage]
  std::vector<std::vector<ScratchLifetime>> lifetimes_;  // [stage]
  std::vector<InPlace> in_place_;
  std::vector<std::pair<const OrderedSlot*, int>> variants_;  // the slot a segment was made for
};

}  // namespace

void lower_device(const LowerInput& input, const std::vector<OrderedSlot>& order, int d,
                  std::map<Isa, std::vector<int>>& interned, Program& program) {
  DeviceBuilder(input, order, d, interned, program).build();
}

}  // namespace nlsplit
