// One device's part of a training step: segments for F, R, I, W and step, and the buffers they need. Kinds follow from
// use: what a transfer touches is comm; what two phases touch is a stash, with a bank for each micro-batch that is in
// flight; the rest is scratch of its phase.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_set>

#include "graph/memory.h"
#include "kernels/without_kernel.h"
#include "program/lower_device.h"
#include "program/lower_training.h"

namespace nlsplit {
namespace {

// Values as buffers hold them: one buffer, under the type of one of the values that share its bytes.
struct Stored {
  BufferId buffer;
  ValueId as;
};

class TrainingBuilder {
 public:
  TrainingBuilder(const TrainingInput& input, const std::vector<Flow>& flows, const TrainingOrders& orders, int d,
                  std::map<Isa, std::vector<int>>& interned, Program& program)
      : in_(input),
        tr_(*input.graph->training),
        kg_(tr_.step),
        g_(tr_.step.graph),
        stages_(*input.stages),
        flows_(flows),
        orders_(orders),
        order_(orders.devices[at(d)]),
        d_(d),
        program_(program),
        out_(program.devices[at(d)]),
        flow_of_(g_.values.size(), -1),
        changes_(g_.values.size(), false),
        has_content_(g_.values.size(), false),
        state_of_(g_.values.size()) {
    for (size_t f = 0; f < flows.size(); ++f) flow_of_[flows[f].root.index()] = static_cast<int>(f);
    for (const StateUpdate& update : tr_.nodes.updates) {
      changes_[update.state.index()] = true;
      state_of_[update.value.index()] = update.state;
    }
    for (const ValueId weight : tr_.nodes.trained) has_content_[weight.index()] = true;
    if (out_.kind == DeviceKind::host) return;
    chosen_ = &kg_.chosen.at(out_.isa);
    kernels_ = &kg_.kernels.at(out_.isa);
    interned_ = &interned[out_.isa];
    if (interned_->empty()) interned_->assign(g_.nodes.size(), -1);
  }

  void build() {
    if (d_ == in_.source) {
      for (const ValueId value : g_.inputs) {
        const Value& input = g_.value(value);
        const BufferId buffer = add(input.name, input.type, BufferKind::input, in_.plan->micro_batches);
        places_[{Place::flow, -1, value}] = {buffer, value};
      }
    }
    for (const TrainingSlot& slot : order_) {
      const int m = slot.phase == Phase::step ? -1 : slot.micro_batch;
      out_.order.push_back({variant_of(slot), m, {}});
    }
    if (workspace_.valid()) {
      constexpr int64_t element = 4;  // f32
      Buffer& buffer = out_.buffers[workspace_.index()];
      buffer.type.shape = {(buffer.bytes.value() + element - 1) / element};
      buffer.bytes = size_of(buffer.type);
    }
    settle_kinds();
    std::vector<bool> banked;
    for (size_t b = 0; b < out_.buffers.size(); ++b)
      banked.push_back(uses_[b].local && out_.buffers[b].kind != BufferKind::scratch);
    assign_training_banks(out_, slot_times(), banked, in_.table->room);
    place_buffers(out_, lifetimes(), {});
  }

 private:
  // ---- Buffers

  BufferId add(const std::string& wanted, const TensorType& type, BufferKind kind, int banks = 1) {
    Buffer buffer;
    buffer.name = wanted;
    for (int i = 2; !names_.insert(buffer.name).second; ++i) buffer.name = fmt::format("{}_{}", wanted, i);
    buffer.type = type;
    buffer.kind = kind;
    buffer.bytes = kind == BufferKind::view ? bytes(0) : size_of(type);
    buffer.banks = banks;
    out_.buffers.push_back(std::move(buffer));
    uses_.emplace_back();
    return BufferId(out_.buffers.size() - 1);
  }
  // Its kind is settled by its uses.
  BufferId add_local(const std::string& wanted, const TensorType& type) {
    const BufferId id = add(wanted, type, BufferKind::scratch);
    uses_[id.index()].local = true;
    return id;
  }

  BufferId seen_as(const Stored& stored, ValueId value) {
    if (stored.as == value || out_.buffer(stored.buffer).type == g_.value(value).type) return stored.buffer;
    BufferId& known = views_[{stored.buffer, g_.value(value).type.shape}];
    if (known.valid()) return known;
    known = add(g_.value(value).name, g_.value(value).type, BufferKind::view);
    out_.buffers[known.index()].of = stored.buffer;
    return known;
  }

  // Where a value lies, by what it is there for: to cross stages, within one, or made again by a recomputation.
  enum class Place : uint8_t { flow, local, again };
  using PlaceKey = std::tuple<Place, int, ValueId>;  // stage (of a flow: -1), root

  const Stored& place(Place what, int stage, ValueId root) {
    Stored& stored = places_[{what, what == Place::flow ? -1 : stage, root}];
    if (!stored.buffer.valid()) stored = {add_local(g_.value(root).name, g_.value(root).type), root};
    return stored;
  }
  bool made_in(int stage, ValueId root) const {
    const Value& value = g_.value(root);
    return value.kind == ValueKind::node && stages_.of_node[value.producer.index()] == stage;
  }
  const Stored& flow_place(int f) { return place(Place::flow, -1, flows_[at(f)].root); }

  // again: what the forward pass has made is taken from its repetition.
  const Stored& value_place(int stage, ValueId root, bool again) {
    if (!made_in(stage, root)) return flow_place(flow_of_[root.index()]);
    if (again && phase_of(tr_, root) == NodePhase::forward) return place(Place::again, stage, root);
    if (flow_of_[root.index()] >= 0) return flow_place(flow_of_[root.index()]);
    return place(Place::local, stage, root);
  }

  BufferId weight_buffer(ValueId root, const std::string& kernel, size_t input, Bytes packed) {
    const Value& value = g_.value(root);
    const bool packs = packed.value() > 0;
    BufferId& known = weights_[{root, packs ? kernel : "", packs ? input : 0}];
    if (known.valid()) return known;
    known = add(value.name, value.type, changes_[root.index()] ? BufferKind::state : BufferKind::weight);
    if (changes_[root.index()] && !has_content_[root.index()]) return known;
    Buffer& buffer = out_.buffers[known.index()];
    buffer.has_content = true;
    buffer.content = value.content;
    if (packs) {
      buffer.bytes = packed;
      buffer.packed_for = kernel;
      buffer.packed_input = static_cast<int>(input);
    }
    return known;
  }

  // All gradients of a stage's weights lie in one buffer, so that they are reduced at once.
  struct Slice {
    int64_t begin = 0, end = 0;
  };
  struct StageWeights {
    std::map<size_t, Slice> slices;  // by the index of StepNodes::trained
    BufferId gradients;
    int64_t elements = 0;
  };
  StageWeights& weights_of(int stage) {
    const auto [found, is_new] = stage_weights_.try_emplace(stage);
    StageWeights& weights = found->second;
    if (!is_new) return weights;
    constexpr int64_t aligned = arena_alignment / 4;  // elements: kernels write their results here
    for (const size_t t : stages_.trained[at(stage)]) {
      const int64_t count = element_count(g_.value(tr_.nodes.trained[t]).type.shape);
      weights.slices[t] = {weights.elements, weights.elements + count};
      weights.elements += (count + aligned - 1) / aligned * aligned;
    }
    if (weights.elements > 0) {
      const bool alone = orders_.rings[at(stage)].size() < 2;
      weights.gradients = add(fmt::format("gradients_{}", stage), {DType::f32, {weights.elements}},
                              alone ? BufferKind::stash : BufferKind::comm);
    }
    return weights;
  }
  Operand gradient_of_weight(int stage, size_t t) {
    const StageWeights& weights = weights_of(stage);
    const Slice slice = weights.slices.at(t);
    return {weights.gradients, slice.begin, slice.end};
  }

  // ---- Instructions. `moment` is counted alike in all variants of a segment, for the lifetimes of scratch.

  void emit(Segment& segment, Instr instr, int64_t moment) {
    const int group = segment.stage * 8 + static_cast<int>(segment.phase);
    const auto use = [&](const Operand& operand) {
      if (!operand.buffer.valid()) return;
      Use& of = uses_[out_.root(operand.buffer).index()];
      if (segment.stage >= 0) of.groups.insert(group);
      of.first = std::min(of.first, moment);
      of.last = std::max(of.last, moment);
      of.transferred = of.transferred || is_transfer(instr.opcode);
    };
    for (const Operand& operand : instr.reads) use(operand);
    for (const Operand& operand : instr.writes) use(operand);
    segment.instrs.push_back(std::move(instr));
  }

  static Instr transfer(Opcode opcode, Operand moved, int peer, int tag) {
    Instr instr;
    instr.opcode = opcode;
    (opcode == Opcode::send ? instr.reads : instr.writes).push_back(moved);
    instr.peer = peer;
    instr.tag = tag;
    return instr;
  }
  void receive(Segment& segment, const TrainingSlot& slot) {
    for (const Port& port : slot.recvs)
      emit(segment, transfer(Opcode::recv, {flow_place(port.flow).buffer}, port.peer, port.flow), 0);
  }
  void send(Segment& segment, const Port& port, int64_t moment) {
    emit(segment, transfer(Opcode::send, {flow_place(port.flow).buffer}, port.peer, port.flow), moment);
  }
  int ring_tag(int stage) const { return static_cast<int>(flows_.size()) + stage; }

  BufferId workspace_buffer(Bytes needed) {
    if (!workspace_.valid()) workspace_ = add("workspace", {DType::f32, {0}}, BufferKind::scratch);
    Buffer& buffer = out_.buffers[workspace_.index()];
    buffer.bytes = std::max(buffer.bytes, needed);
    return workspace_;
  }

  // into: where its result goes; none: to its own place. again: as in value_place.
  // gradient: what an update reads of the values of micro-batches: their sum.
  void compute(Segment& segment, size_t n, bool again, const std::optional<Operand>& into = std::nullopt,
               const std::optional<Operand>& gradient = std::nullopt) {
    const Node& node = g_.nodes[n];
    const NodeKernel& kernel = (*kernels_)[n];
    const ComputeDesc& desc = chosen_->descs[n];
    Instr instr;
    instr.opcode = Opcode::compute;
    for (const ValueId value : reads_of(node)) {
      const ValueId root = kg_.root[value.index()];
      const size_t i = instr.reads.size();
      if (g_.value(root).kind == ValueKind::weight) {
        const Bytes packed = value == root ? kernel.packed[i] : bytes(0);
        instr.reads.push_back({seen_as({weight_buffer(root, desc.kernel, i, packed), root}, value)});
      } else if (gradient) {
        instr.reads.push_back(*gradient);
      } else {
        instr.reads.push_back({seen_as(value_place(segment.stage, root, again), value)});
      }
    }
    for (const ValueId value : node.outputs) {
      if (const ValueId state = state_of_[value.index()]; state.valid())
        instr.writes.push_back({weight_buffer(state, "", 0, bytes(0))});
      else if (into)
        instr.writes.push_back(*into);
      else
        instr.writes.push_back({seen_as(value_place(segment.stage, value, again), value)});
    }
    if (kernel.kernel != nullptr) {
      const Bytes workspace = workspace_of(*kernel.kernel, desc, out_.isa, out_.cores);
      if (workspace.value() > 0) instr.workspace = {workspace_buffer(workspace)};
    }
    instr.label = kg_.labels[n];
    int& index = (*interned_)[kernel.same_as];
    if (index < 0) index = intern_desc(program_, desc);
    instr.desc = index;
    emit(segment, std::move(instr), static_cast<int64_t>(n));
  }

  // The forward nodes of a stage that must run again before its gradients, in order.
  std::vector<size_t> nodes_again(int stage) const {
    std::vector<bool> needed(g_.values.size(), false);
    const auto read = [&](size_t n) {
      for (const ValueId value : reads_of(g_.nodes[n])) needed[kg_.root[value.index()].index()] = true;
    };
    for (const auto* nodes : {&stages_.input[at(stage)], &stages_.weight[at(stage)]})
      std::ranges::for_each(*nodes, read);
    std::vector<size_t> again;
    const std::vector<size_t>& forward = stages_.forward[at(stage)];
    for (auto n = forward.rbegin(); n != forward.rend(); ++n) {
      if (std::ranges::none_of(g_.nodes[*n].outputs, [&](ValueId v) { return needed[v.index()]; })) continue;
      read(*n);
      again.push_back(*n);
    }
    std::ranges::reverse(again);
    return again;
  }

  // What leaves goes as soon as it is made.
  void compute_and_send(Segment& segment, const TrainingSlot& slot, const std::vector<size_t>& nodes, bool again) {
    receive(segment, slot);
    size_t next = 0;
    for (const size_t n : nodes) {
      compute(segment, n, again);
      for (; next < slot.sends.size(); ++next) {
        const Port& port = slot.sends[next];
        if (g_.value(flows_[at(port.flow)].root).producer.index() != n) break;
        send(segment, port, static_cast<int64_t>(n));
      }
    }
    CHECK(next == slot.sends.size(), "a message that no instruction makes");
  }

  bool read_by_gradients(ValueId root) const {
    return std::ranges::any_of(kg_.readers[root.index()],
                               [&](size_t reader) { return tr_.nodes.phases[reader] != NodePhase::step; });
  }

  // The first micro-batch writes the gradients, later ones add: gradient = gradient + part.
  void fill_weight_gradient(Segment& segment, const TrainingSlot& slot, bool first) {
    const int stage = slot.stage;
    const bool again = tr_.options.recompute;
    std::map<ValueId, std::vector<size_t>> gradient_of;  // root: weights
    for (const size_t t : stages_.trained[at(stage)])
      gradient_of[kg_.root[tr_.nodes.gradients[t].index()]].push_back(t);
    const auto add_up = [&](ValueId root, int64_t moment) {
      for (const size_t t : gradient_of.at(root)) {
        const Operand sum = gradient_of_weight(stage, t);
        const BufferId part = g_.value(root).kind == ValueKind::weight ? weight_buffer(root, "", 0, bytes(0))
                                                                       : value_place(stage, root, again).buffer;
        Instr instr;
        instr.opcode = first ? Opcode::copy : Opcode::reduce;
        instr.reads = first ? std::vector<Operand>{{part}} : std::vector<Operand>{sum, {part}};
        instr.writes = {sum};
        instr.label = fmt::format("d {}", g_.value(tr_.nodes.trained[t]).name);
        emit(segment, std::move(instr), moment);
      }
    };
    for (const auto& [root, weights] : gradient_of) {  // made by I already
      const Value& value = g_.value(root);
      if (value.kind != ValueKind::node || phase_of(tr_, root) != NodePhase::weight) add_up(root, 0);
    }
    for (const size_t n : stages_.weight[at(stage)]) {
      const ValueId made = g_.nodes[n].outputs[0];
      const auto found = gradient_of.find(made);
      if (found == gradient_of.end()) {
        compute(segment, n, again);
        continue;
      }
      const bool directly = first && found->second.size() == 1 && !read_by_gradients(made);
      if (directly) {
        compute(segment, n, again, gradient_of_weight(stage, found->second[0]));
      } else {
        compute(segment, n, again);
        add_up(made, static_cast<int64_t>(n));
      }
    }
    for (const Port& port : slot.sends)  // of a backward in one piece
      send(segment, port, static_cast<int64_t>(g_.nodes.size()));
  }

  // Ring all-reduce (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009):
  // a chunk's sum is made in the order of the ring, beginning behind the device where it ends.
  void emit_ring(Segment& segment, int stage, const StageWeights& weights) {
    const std::vector<int>& ring = orders_.rings[at(stage)];
    const auto size = static_cast<int64_t>(ring.size());
    const int64_t self = std::ranges::find(ring, d_) - ring.begin();
    const auto chunk = [&](int64_t i) {
      const int64_t k = ((i % size) + size) % size;
      return Slice{k * weights.elements / size, (k + 1) * weights.elements / size};
    };
    const int to = ring[static_cast<size_t>((self + 1) % size)];
    const int from = ring[static_cast<size_t>((self + size - 1) % size)];
    const int tag = ring_tag(stage), region = static_cast<int>(segment.collectives.size());
    segment.collectives.push_back("all-reduce ring");
    const BufferId received =
        add(fmt::format("chunk_{}", stage), {DType::f32, {(weights.elements + size - 1) / size}}, BufferKind::comm);
    const auto in_region = [&](Instr instr) {
      instr.collective = region;
      emit(segment, std::move(instr), 0);
    };
    for (int64_t step = 0; step + 1 < size; ++step) {
      const Slice out = chunk(self - step), in = chunk(self - step - 1);
      if (out.end > out.begin) in_region(transfer(Opcode::send, {weights.gradients, out.begin, out.end}, to, tag));
      if (in.end == in.begin) continue;
      const Operand here{received, 0, in.end - in.begin}, sum{weights.gradients, in.begin, in.end};
      in_region(transfer(Opcode::recv, here, from, tag));
      Instr reduce;
      reduce.opcode = Opcode::reduce;
      reduce.reads = {sum, here};
      reduce.writes = {sum};
      in_region(std::move(reduce));
    }
    for (int64_t step = 0; step + 1 < size; ++step) {
      const Slice out = chunk(self + 1 - step), in = chunk(self - step);
      if (out.end > out.begin) in_region(transfer(Opcode::send, {weights.gradients, out.begin, out.end}, to, tag));
      if (in.end > in.begin) in_region(transfer(Opcode::recv, {weights.gradients, in.begin, in.end}, from, tag));
    }
  }

  void fill_step(Segment& segment, int stage) {
    const StageWeights& weights = weights_of(stage);
    if (weights.elements == 0) return;
    if (orders_.rings[at(stage)].size() > 1) emit_ring(segment, stage, weights);
    for (const size_t t : stages_.trained[at(stage)])
      compute(segment, tr_.nodes.update_nodes[t].index(), false, std::nullopt, gradient_of_weight(stage, t));
  }

  // ---- Segments

  std::string segment_name(const TrainingSlot& slot, int number, bool first) const {
    std::string name;
    if (slot.stage == source_stage)
      name = "source";
    else if (slot.stage == ahead_stage)
      name = "ahead";
    else
      name = fmt::format("{}{}{}", name_of(slot.phase), slot.stage, first ? "_first" : "");
    return number == 1 ? name : fmt::format("{}_{}", name, number);
  }

  Segment make_segment(const TrainingSlot& slot, int number, bool first) {
    Segment segment;
    segment.name = segment_name(slot, number, first);
    segment.stage = slot.stage < 0 ? io_stage : slot.stage;
    segment.shard = slot.stage == ahead_stage ? 2 : 0;
    segment.phase = slot.phase;
    if (slot.stage < 0) {
      receive(segment, slot);
      for (const Port& port : slot.sends) send(segment, port, 0);
      return segment;
    }
    switch (slot.phase) {
      case Phase::forward:
        compute_and_send(segment, slot, stages_.forward[at(slot.stage)], false);
        break;
      case Phase::recompute:
        compute_and_send(segment, slot, nodes_again(slot.stage), true);
        break;
      case Phase::input_gradient:
        compute_and_send(segment, slot, stages_.input[at(slot.stage)], tr_.options.recompute);
        break;
      case Phase::weight_gradient:
        fill_weight_gradient(segment, slot, first);
        break;
      case Phase::step:
        fill_step(segment, slot.stage);
        break;
      case Phase::init:
        CHECK(false, "no schedule has an init slot");
    }
    return segment;
  }

  int variant_of(const TrainingSlot& slot) {
    const bool first = slot.phase == Phase::weight_gradient && begun_.insert(slot.stage).second;
    int number = 1;
    for (const Variant& known : variants_) {
      if (known.slot->stage != slot.stage || known.slot->phase != slot.phase || known.first != first) continue;
      if (known.slot->recvs == slot.recvs && known.slot->sends == slot.sends) return known.segment;
      ++number;
    }
    const int segment = static_cast<int>(out_.segments.size());
    out_.segments.push_back(make_segment(slot, number, first));
    variants_.push_back({&slot, segment, first});
    return segment;
  }

  // ---- Kinds, banks, places

  struct Use {
    bool local = false;  // its kind is settled by its uses
    bool transferred = false;
    std::set<int> groups;  // stage and phase
    int64_t first = std::numeric_limits<int64_t>::max(), last = -1;
  };

  void settle_kinds() {
    for (size_t b = 0; b < out_.buffers.size(); ++b) {
      if (!uses_[b].local) continue;
      out_.buffers[b].kind = uses_[b].transferred         ? BufferKind::comm
                             : uses_[b].groups.size() > 1 ? BufferKind::stash
                                                          : BufferKind::scratch;
    }
  }

  std::vector<std::vector<ScratchLifetime>> lifetimes() const {
    std::map<int, std::vector<ScratchLifetime>> of_group;
    for (size_t b = 0; b < out_.buffers.size(); ++b) {
      if (!uses_[b].local || out_.buffers[b].kind != BufferKind::scratch || uses_[b].groups.empty()) continue;
      of_group[*uses_[b].groups.begin()].push_back({BufferId(b), uses_[b].first, uses_[b].last});
    }
    std::vector<std::vector<ScratchLifetime>> all;
    for (auto& [group, lives] : of_group) all.push_back(std::move(lives));
    return all;
  }

  std::vector<SlotTimes> slot_times() const {
    std::vector<SlotTimes> times;
    for (const TrainingSlot& slot : order_) {
      SlotTimes& of = times.emplace_back();
      of.time = slot.time;
      for (size_t r = 0; r < slot.recvs.size(); ++r) {
        const ValueId root = flows_[at(slot.recvs[r].flow)].root;
        of.arrivals.emplace_back(places_.at({Place::flow, -1, root}).buffer, slot.received_at[r]);
      }
    }
    return times;
  }

  const TrainingInput& in_;
  const Training& tr_;
  const KernelGraph& kg_;  // of the step
  const Graph& g_;
  const StepStages& stages_;
  const std::vector<Flow>& flows_;
  const TrainingOrders& orders_;
  const std::vector<TrainingSlot>& order_;
  int d_;
  Program& program_;
  DeviceProgram& out_;
  const Assignment* chosen_ = nullptr;
  const std::vector<NodeKernel>* kernels_ = nullptr;
  std::vector<int>* interned_ = nullptr;
  std::vector<int> flow_of_;       // [value]: index of the flow whose root it is, or -1
  std::vector<bool> changes_;      // [value]: a state
  std::vector<bool> has_content_;  // [value]: of those: a weight that is trained; the others are zero at first
  std::vector<ValueId> state_of_;  // [value]: the state that it updates
  std::unordered_set<std::string> names_;
  std::vector<Use> uses_;  // [buffer]
  std::map<PlaceKey, Stored> places_;
  std::map<std::pair<BufferId, Shape>, BufferId> views_;
  std::map<std::tuple<ValueId, std::string, size_t>, BufferId> weights_;
  std::map<int, StageWeights> stage_weights_;
  BufferId workspace_;
  struct Variant {
    const TrainingSlot* slot;
    int segment;
    bool first;
  };
  std::vector<Variant> variants_;
  std::set<int> begun_;  // stages whose gradients have been written
};

}  // namespace

void lower_training_device(const TrainingInput& input, const std::vector<Flow>& flows, const TrainingOrders& orders,
                           int d, std::map<Isa, std::vector<int>>& interned, Program& program) {
  TrainingBuilder(input, flows, orders, d, interned, program).build();
}

}  // namespace nlsplit
