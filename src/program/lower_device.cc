#include "program/lower_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

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
        buffer_of_(g_.values.size(), BufferId()),
        storage_of_(g_.values.size(), BufferId()),
        lifetimes_(at(placement_.stages)) {
    if (out_.kind == DeviceKind::host) return;
    descs_ = &input.graph->descs.at(out_.isa);
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
    place_buffers(out_, lifetimes_);
  }

 private:
  // ---- What crosses this device's borders, or stays on it from one slot to another.
  void find_traffic() {
    transferred_.assign(flows_.size(), false);
    for (const OrderedSlot& slot : order_) {
      for (const Port& port : slot.recvs) transferred_[at(port.flow)] = true;
      for (const Port& port : slot.sends) transferred_[at(port.flow)] = true;
      const bool own = slot.stage >= 0 && slot.stage < placement_.stages;
      if (own && !runs_here(slot.stage)) stages_here_.push_back(slot.stage);
    }
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

  // ---- Buffers. A value's first buffer has its name, which no other value has.
  bool is_taken(const std::string& name) const {
    return std::any_of(out_.buffers.begin(), out_.buffers.end(),
                       [&](const Buffer& buffer) { return buffer.name == name; });
  }
  std::string free_name(const std::string& of_value) const {
    return is_taken(of_value) ? unique_name(of_value) : of_value;
  }
  std::string unique_name(const std::string& wanted) const {
    const auto taken = [&](const std::string& name) {
      return is_taken(name) ||
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

  void add_inputs() {
    for (const ValueId value : g_.inputs) {
      const Value& input = g_.value(value);
      storage_of_[value.index()] = buffer_of_[value.index()] =
          add_stored(input.name, input.type, BufferKind::input, placement_.micro_batches);
    }
  }

  void add_outputs() {
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      const ValueId value = g_.outputs[i];
      const Value& output = g_.value(value);
      const ValueId root = in_.graph->root[value.index()];
      const bool copied =
          std::find(in_.copied_outputs.begin(), in_.copied_outputs.end(), i) != in_.copied_outputs.end();
      const BufferId buffer =
          add_stored(free_name(output.name), output.type, BufferKind::output, placement_.micro_batches);
      if (copied) {
        copies_.emplace_back(value, buffer);
      } else {
        storage_of_[root.index()] = buffer_of_[value.index()] = buffer;
      }
    }
  }

  // The buffer of a computed value or input as itself: its root's storage, or a view of it.
  BufferId buffer_of(ValueId value) {
    BufferId& known = buffer_of_[value.index()];
    if (known.valid()) return known;
    BufferId& storage = storage_of_[in_.graph->root[value.index()].index()];
    const Value& v = g_.value(value);
    if (storage.valid()) {
      Buffer view;
      view.name = free_name(v.name);  // an output that is copied has it already
      view.type = v.type;
      view.kind = BufferKind::view;
      view.of = storage;
      view.bytes = bytes(0);
      return known = add_buffer(std::move(view));
    }
    const int f = in_.flow_of[in_.graph->root[value.index()].index()];
    BufferKind kind = BufferKind::scratch;
    int banks = 1;
    if (f >= 0) {
      kind = transferred_[at(f)] ? BufferKind::comm : BufferKind::stash;
      banks = std::min(in_.banks, uses_of(flows_[at(f)]));
    }
    return known = storage = add_stored(v.name, v.type, kind, banks);
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
    buffer.name = buffer_of_[value.index()].valid() ? unique_name(v.name) : v.name;
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
    buffer_of_[value.index()] = id;
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

  BufferId receiving_buffer(const Flow& flow) {
    const BufferId storage = storage_of_[flow.root.index()];
    return storage.valid() ? storage : buffer_of(received_as(flow));
  }

  // ---- Instructions.
  BufferId workspace_of(Bytes needed) {
    if (!workspace_.valid())
      workspace_ = add_stored(unique_name("workspace"), {DType::f32, {0}}, BufferKind::scratch, 1);
    Buffer& buffer = out_.buffers[workspace_.index()];
    buffer.bytes = std::max(buffer.bytes, needed);
    return workspace_;
  }

  Instr compute(size_t n) {
    const Node& node = g_.nodes[n];
    const NodeKernel& kernel = (*kernels_)[n];
    const ComputeDesc& desc = (*descs_)[n];
    Instr instr;
    instr.opcode = Opcode::compute;
    int& index = (*interned_)[kernel.same_as];
    if (index < 0) {
      index = static_cast<int>(program_.descs.size());
      program_.descs.push_back(desc);
    }
    instr.desc = index;
    instr.reads.reserve(desc.inputs.size());
    const auto read = [&](ValueId value) {
      if (!value.valid()) return;
      const size_t i = instr.reads.size();
      const bool constant = g_.value(value).kind == ValueKind::weight;
      const BufferId buffer = constant ? weight_buffer(value, desc.kernel, i, kernel.packed[i]) : buffer_of(value);
      instr.reads.push_back({buffer});
    };
    for (const ValueId value : node.inputs) read(value);
    for (const EpilogueStep& step : node.epilogue) read(step.operand);
    for (const ValueId value : node.outputs) instr.writes.push_back({buffer_of(value)});
    if (kernel.workspace.value() > 0) instr.workspace = {workspace_of(kernel.workspace)};
    instr.label = in_.graph->labels[n];
    return instr;
  }

  static Instr transfer(Opcode opcode, BufferId buffer, int peer, int tag) {
    Instr instr;
    instr.opcode = opcode;
    (opcode == Opcode::send ? instr.reads : instr.writes).push_back({buffer});
    instr.peer = peer;
    instr.tag = tag;
    return instr;
  }

  // A buffer that lives only within the slots of `stage`: when, counted in nodes.
  void note_lifetimes(int stage) {
    const Stage& nodes = in_.plan->stages[at(stage)];
    std::vector<ScratchLifetime>& lifetimes = lifetimes_[at(stage)];
    if (!lifetimes.empty()) return;
    for (size_t n = nodes.begin; n < nodes.end; ++n) {
      if (is_view(g_.nodes[n].op)) continue;
      for (const ValueId value : g_.nodes[n].outputs) {
        const BufferId buffer = storage_of_[value.index()];
        if (out_.buffer(buffer).kind != BufferKind::scratch) continue;
        const std::vector<size_t>& readers = in_.graph->readers[value.index()];
        const size_t last = readers.empty() ? n : readers.back();
        lifetimes.push_back({buffer, static_cast<int64_t>(n), static_cast<int64_t>(last)});
      }
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
      segment.instrs.push_back(transfer(Opcode::recv, receiving_buffer(flows_[at(port.flow)]), port.peer, port.flow));
    }
    size_t next_send = 0;
    const auto send_while = [&](auto condition) {
      for (; next_send < slot.sends.size() && condition(flows_[at(slot.sends[next_send].flow)]); ++next_send) {
        const Port& port = slot.sends[next_send];
        segment.instrs.push_back(
            transfer(Opcode::send, storage_of_[flows_[at(port.flow)].root.index()], port.peer, port.flow));
      }
    };
    if (segment.stage >= 0) {
      const Stage& stage = in_.plan->stages[at(slot.stage)];
      for (size_t n = stage.begin; n < stage.end; ++n) {
        if (is_view(g_.nodes[n].op)) continue;
        segment.instrs.push_back(compute(n));
        send_while([&](const Flow& flow) { return g_.value(flow.root).producer.index() == n; });
      }
      note_lifetimes(slot.stage);
    } else if (slot.stage == source_stage) {
      send_while([](const Flow&) { return true; });
    } else if (slot.stage == placement_.stages) {
      for (const auto& [value, output] : copies_) {
        Instr copy;
        copy.opcode = Opcode::copy;
        copy.reads = {{storage_of_[in_.graph->root[value.index()].index()]}};
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
  const std::vector<ComputeDesc>* descs_ = nullptr;
  const std::vector<NodeKernel>* kernels_ = nullptr;
  std::vector<int>* interned_ = nullptr;
  std::vector<bool> transferred_;                        // [flow]: some message of it begins or ends here
  std::vector<BufferId> buffer_of_;                      // [value]
  std::vector<BufferId> storage_of_;                     // [root value]
  std::unordered_multimap<uint64_t, BufferId> weights_;  // by content
  std::vector<std::pair<ValueId, BufferId>> copies_;     // outputs that are copied, and to where
  std::vector<int> stages_here_;
  BufferId workspace_;
  std::vector<std::vector<ScratchLifetime>> lifetimes_;       // [stage]
  std::vector<std::pair<const OrderedSlot*, int>> variants_;  // the slot a segment was made for
};

}  // namespace

void lower_device(const LowerInput& input, const std::vector<OrderedSlot>& order, int d,
                  std::map<Isa, std::vector<int>>& interned, Program& program) {
  DeviceBuilder(input, order, d, interned, program).build();
}

}  // namespace nlsplit
