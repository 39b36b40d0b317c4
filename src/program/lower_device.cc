#include "program/lower_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "kernels/layout.h"
#include "program/in_place.h"

namespace nlsplit {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }

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
        row_major_(g_.values.size()),
        blocked_(g_.values.size()),
        named_(g_.values.size(), false),
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
    find_traffic();
    if (d_ == placement_.source) add_inputs();
    if (d_ == placement_.sink) add_outputs();
    for (const OrderedSlot& slot : order_) out_.order.push_back({variant_of(slot), slot.micro_batch, {}});
    if (workspace_.valid()) {
      constexpr int64_t element = 4;  // f32
      Buffer& buffer = out_.buffers[workspace_.index()];
      buffer.type.shape = {(buffer.bytes.value() + element - 1) / element};
      buffer.bytes = size_of(buffer.type);
    }
    assign_banks(out_, placement_.micro_batches);
    place_buffers(out_, lifetimes_, in_place_);
  }

 private:
  // ---- What crosses this device's borders, or stays on it from one slot to another.
  void find_traffic() {
    transferred_.assign(flows_.size(), false);
    for (const OrderedSlot& slot : order_) {
      for (const Port& port : slot.recvs) note_transfer(port);
      for (const Port& port : slot.sends) note_transfer(port);
      const bool own = slot.stage >= 0 && slot.stage < placement_.stages;
      if (own && !runs_here(slot.stage)) stages_here_.push_back(slot.stage);
    }
  }

  bool is_credit(const Port& port) const { return at(port.flow) == flows_.size(); }
  void note_transfer(const Port& port) {
    if (!is_credit(port)) transferred_[at(port.flow)] = true;
  }

  // How many micro-batches of a flow pass through this device.
  int uses_of(const Flow& flow) const {
    int uses = 0;
    for (int m = 0; m < placement_.micro_batches; ++m) {
      const bool here = placement_.device_of(flow.producer, m) == d_ ||
                        std::any_of(flow.consumers.begin(), flow.consumers.end(),
                                    [&](int stage) { return placement_.device_of(stage, m) == d_; });
      if (here) ++uses;
    }
    return uses;
  }

  // ---- Buffers. A value's first buffer has its name, which no other value has, nor any name that is made up.
  std::string free_name(ValueId value) {
    return named_[value.index()] ? unique_name(g_.value(value).name) : own_name(value);
  }
  std::string own_name(ValueId value) {
    named_[value.index()] = true;
    return g_.value(value).name;
  }
  std::string unique_name(const std::string& wanted) const {
    const auto taken = [&](const std::string& name) {
      return std::any_of(out_.buffers.begin(), out_.buffers.end(),
                         [&](const Buffer& buffer) { return buffer.name == name; }) ||
             std::any_of(g_.values.begin(), g_.values.end(), [&](const Value& value) { return value.name == name; });
    };
    std::string name = wanted;
    for (int i = 2; taken(name); ++i) name = fmt::format("{}_{}", wanted, i);
    return name;
  }

  BufferId add_buffer(Buffer buffer) {
    out_.buffers.push_back(std::move(buffer));
    return BufferId(out_.buffers.size() - 1);
  }

  BufferId add_stored(const std::string& name, const TensorType& type, BufferKind kind, int banks) {
    Buffer buffer;
    buffer.name = name;
    buffer.type = type;
    buffer.kind = kind;
    buffer.bytes = size_of(type);
    buffer.banks = banks;
    return add_buffer(std::move(buffer));
  }

  // ---- Where a computed value or input lies. Each root has up to two places that all slots share, one in each layout:
  // the one it is made in, and the one its messages have. A reader that wants it otherwise gets a copy of its own
  // stage.
  struct Stored {
    BufferId buffer;
    ValueId as;  // the root, or the view of it whose type the buffer has
  };
  Stored& place_of(ValueId root, int block) { return (block == 0 ? row_major_ : blocked_)[root.index()]; }
  int made_in(ValueId root) const { return chosen_ == nullptr ? 0 : chosen_->made_in[root.index()]; }

  void add_inputs() {
    for (const ValueId value : g_.inputs) {
      const TensorType& type = g_.value(value).type;
      place_of(value, 0) = {add_stored(own_name(value), type, BufferKind::input, placement_.micro_batches), value};
    }
  }

  void add_outputs() {
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      const ValueId value = g_.outputs[i];
      const Value& output = g_.value(value);
      const ValueId root = in_.graph->root[value.index()];
      const bool copied =
          std::find(in_.copied_outputs.begin(), in_.copied_outputs.end(), i) != in_.copied_outputs.end();
      const BufferId buffer = add_stored(free_name(value), output.type, BufferKind::output, placement_.micro_batches);
      if (copied) {
        copies_.emplace_back(value, buffer);
      } else {
        place_of(root, 0) = {buffer, value};
      }
    }
  }

  // "conv1", or "conv1_c16" if the value lies here in another layout already.
  std::string layout_name(ValueId root, int block) {
    if (!(block == 0 ? blocked_ : row_major_)[root.index()].buffer.valid()) return own_name(root);
    return unique_name(g_.value(root).name + (block == 0 ? "_rows" : fmt::format("_c{}", block)));
  }

  // Made when first asked for; `as` says under which type if it is row-major.
  Stored storage(ValueId root, int block, ValueId as) {
    Stored& place = place_of(root, block);
    if (place.buffer.valid()) return place;
    const int f = in_.flow_of[root.index()];
    BufferKind kind = BufferKind::scratch;
    int banks = 1;
    if (f >= 0 && in_.flow_block[at(f)] == block) {
      kind = transferred_[at(f)] ? BufferKind::comm : BufferKind::stash;
      banks = std::min(in_.banks, uses_of(flows_[at(f)]));
    }
    const std::string name = as == root ? layout_name(root, block) : free_name(as);
    place = {add_stored(name, with_block(g_.value(as).type, block), kind, banks), as};
    return place;
  }

  // A value as itself, given where its root is stored.
  BufferId seen_as(const Stored& stored, ValueId value) {
    if (stored.as == value) return stored.buffer;
    BufferId& known = views_[{stored.buffer, value}];
    if (known.valid()) return known;
    Buffer view;
    view.name = free_name(value);
    view.type = g_.value(value).type;
    view.kind = BufferKind::view;
    view.of = stored.buffer;
    view.bytes = bytes(0);
    return known = add_buffer(std::move(view));
  }

  BufferId weight_buffer(ValueId value, const std::string& kernel, size_t input, Bytes packed) {
    const Value& v = g_.value(value);
    const bool packs = packed.value() > 0;
    const auto [begin, end] = weights_.equal_range(v.content.value);
    for (auto it = begin; it != end; ++it) {
      const Buffer& known = out_.buffer(it->second);
      const bool same_packing =
          packs ? known.packed_for == kernel && known.packed_input == static_cast<int>(input) && known.bytes == packed
                : known.packed_for.empty();
      if (same_packing && known.type == v.type) return it->second;
    }
    Buffer buffer;
    buffer.name = place_of(value, 0).buffer.valid() ? unique_name(v.name) : own_name(value);
    buffer.type = v.type;
    buffer.kind = BufferKind::weight;
    buffer.bytes = packs ? packed : size_of(v.type);
    buffer.has_content = true;
    buffer.content = v.content;
    if (packs) {
      buffer.packed_for = kernel;
      buffer.packed_input = static_cast<int>(input);
    }
    const BufferId id = add_buffer(std::move(buffer));
    place_of(value, 0) = {id, value};
    weights_.emplace(v.content.value, id);
    return id;
  }

  // Under which of its types a message is stored here: that of its first reader on this device.
  ValueId received_as(const Flow& flow) const {
    const auto on_this_device = [&](size_t n) {
      for (const int c : flow.consumers) {
        if (c == placement_.stages) break;
        const Stage& stage = in_.plan->stages[at(c)];
        if (stage.begin <= n && n < stage.end) {
          return runs_here(c);
        }
      }
      return false;
    };
    for (const size_t n : in_.graph->readers[flow.root.index()]) {
      if (!on_this_device(n)) continue;
      for (const ValueId value : reads_of(g_.nodes[n])) {
        if (in_.graph->root[value.index()] == flow.root) return value;
      }
    }
    return flow.root;
  }

  bool runs_here(int stage) const {
    return std::find(stages_here_.begin(), stages_here_.end(), stage) != stages_here_.end();
  }

  BufferId message_buffer(const Flow& flow) {
    const int block = in_.flow_block[at(in_.flow_of[flow.root.index()])];
    if (const Stored& known = place_of(flow.root, block); known.buffer.valid()) return known.buffer;
    return storage(flow.root, block, block > 0 ? flow.root : received_as(flow)).buffer;
  }

  // ---- Instructions.
  BufferId workspace_buffer(Bytes needed) {
    if (!workspace_.valid())
      workspace_ = add_stored(unique_name("workspace"), {DType::f32, {0}}, BufferKind::scratch, 1);
    Buffer& buffer = out_.buffers[workspace_.index()];
    buffer.bytes = std::max(buffer.bytes, needed);
    return workspace_;
  }

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
    instr.reads = {{seen_as(from, root)}};
    instr.writes = {{seen_as(to, root)}};
    instr.label =
        fmt::format("{} {}", g_.value(root).name, to_block == 0 ? "row-major" : fmt::format("in c{}", to_block));
    segment.instrs.push_back(std::move(instr));
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
      (void)message_buffer(flows_[at(f)]);
    }
    if (there.has(block)) {
      const auto copy = copies_of_stage_.find({segment.stage, root, block});
      return there.copied(block) ? copy->second : place_of(root, block);
    }
    const int have = block == 0 ? static_cast<int>(vector_width(out_.isa)) : 0;
    const auto [copy, is_new] = copies_of_stage_.try_emplace({segment.stage, root, block});
    if (is_new) {
      const std::string name = unique_name(g_.value(root).name + (block == 0 ? "_rows" : fmt::format("_c{}", block)));
      copy->second = {add_stored(name, with_block(g_.value(root).type, block), BufferKind::scratch, 1), root};
    }
    emit_reorder(segment, root, place_of(root, have), have, copy->second, block);
    there.set(block);
    there.copies |= block == 0 ? 1 : 2;
    return copy->second;
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
        instr.reads.push_back({weight_buffer(value, desc.kernel, i, kernel.packed[i])});
      } else {
        const ValueId root = in_.graph->root[value.index()];
        if (g_.value(root).kind == ValueKind::weight) {  // a view of a constant
          instr.reads.push_back({seen_as({weight_buffer(root, "", 0, bytes(0)), root}, value)});
        } else {
          instr.reads.push_back({seen_as(wanted(segment, root, desc.inputs[i].block), value)});
        }
      }
    };
    for (const ValueId value : node.inputs) read(value);
    for (const EpilogueStep& step : node.epilogue) read(step.operand);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId value = node.outputs[i];
      instr.writes.push_back({seen_as(storage(value, desc.outputs[i].block, value), value)});
    }
    if (const Bytes workspace = workspace_of(*kernel.kernel, desc, out_.isa, out_.cores); workspace.value() > 0)
      instr.workspace = {workspace_buffer(workspace)};
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
      const BufferId message = message_buffer(flows_[at(f)]);
      CHECK(message.valid(), "a message without a buffer");
      emit_reorder(segment, value, place_of(value, made), made, place_of(value, block), block);
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
  BufferId credit(BufferId& known, std::string_view name) {
    if (!known.valid()) known = add_stored(unique_name(std::string(name)), {DType::f32, {1}}, BufferKind::comm, 1);
    return known;
  }

  BufferId token() {
    if (!token_.valid()) token_ = add_stored(unique_name("token"), {DType::f32, {1}}, BufferKind::state, 1);
    return token_;
  }

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
      const BufferId buffer = is_credit(port) ? credit(credit_in_, "credit_in") : message_buffer(flows_[at(port.flow)]);
      segment.instrs.push_back(transfer(Opcode::recv, buffer, port.peer, port.flow));
    }
    if (std::ranges::any_of(slot.recvs, [this](const Port& port) { return is_credit(port); }))
      segment.instrs.push_back(copy_credit(credit_in_, token()));
    size_t next_send = 0;
    const auto send_while = [&](auto condition) {
      for (; next_send < slot.sends.size() && !is_credit(slot.sends[next_send]) &&
             condition(flows_[at(slot.sends[next_send].flow)]);
           ++next_send) {
        const Port& port = slot.sends[next_send];
        segment.instrs.push_back(transfer(Opcode::send, message_buffer(flows_[at(port.flow)]), port.peer, port.flow));
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
        const BufferId buffer = credit(credit_out_, "credit_out");
        segment.instrs.push_back(copy_credit(token(), buffer));
        segment.instrs.push_back(
            transfer(Opcode::send, buffer, slot.sends[next_send].peer, slot.sends[next_send].flow));
      }
    } else if (slot.stage == source_stage) {
      send_while([](const Flow&) { return true; });
    } else if (slot.stage == placement_.stages) {
      for (const auto& [value, output] : copies_) {
        Instr copy;
        copy.opcode = Opcode::copy;
        copy.reads = {{place_of(in_.graph->root[value.index()], 0).buffer}};
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
  std::vector<bool> transferred_;                                    // [flow]: some message of it begins or ends here
  std::vector<Stored> row_major_, blocked_;                          // [root value]
  std::map<std::tuple<int, ValueId, int>, Stored> copies_of_stage_;  // by stage, root and layout
  std::map<std::pair<BufferId, ValueId>, BufferId> views_;
  std::vector<bool> named_;                              // [value]: a buffer has its name
  std::vector<Available> available_;                     // [root value]
  std::unordered_multimap<uint64_t, BufferId> weights_;  // by content
  std::vector<std::pair<ValueId, BufferId>> copies_;     // outputs that are copied, and to where
  std::vector<int> stages_here_;
  BufferId workspace_;
  BufferId credit_in_, credit_out_, token_;
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
