// One device's part of a training step: segments for F, R, I, W and step, and the buffers they need. Kinds follow from
// use: what a transfer touches is comm; what two phases touch is a stash, with a bank for each micro-batch that is in
// flight; the rest is scratch of its phase.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

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
                  InternedDescs& interned, Program& program)
      : in_(input),
        kg_(*input.graph),
        g_(input.graph->graph),
        tr_(*input.graph->training),
        flows_(flows),
        orders_(orders),
        order_(orders.devices[at(d)]),
        d_(d),
        program_(program),
        out_(program.devices[at(d)]),
        interned_(interned),
        flow_of_(g_.values.size(), -1) {
    for (size_t f = 0; f < flows.size(); ++f) flow_of_[flows[f].root.index()] = static_cast<int>(f);
    if (out_.kind == DeviceKind::host) return;
    chosen_ = &kg_.chosen.at(out_.isa);
    kernels_ = &kg_.kernels.at(out_.isa);
    forward_descs_ = &interned.forward[out_.isa];
    if (forward_descs_->empty()) forward_descs_->assign(g_.nodes.size(), -1);
    CHECK(std::ranges::all_of(chosen_->made_in, [](int block) { return block == 0; }), "training works row-major");
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

  // Where a value lies, by what it is there for.
  enum class Place : uint8_t { flow, forward, again };
  using PlaceKey = std::tuple<Place, int, ValueId>;  // stage (of a flow: -1), root

  Stored& place(Place what, int stage, ValueId root) {
    Stored& stored = places_[{what, what == Place::flow ? -1 : stage, root}];
    if (!stored.buffer.valid()) stored = {add_local(g_.value(root).name, g_.value(root).type), root};
    return stored;
  }
  bool made_in(int stage, ValueId root) const {
    const Value& value = g_.value(root);
    if (value.kind != ValueKind::node) return false;
    const Stage& nodes = in_.plan->stages[at(stage)];
    return nodes.begin <= value.producer.index() && value.producer.index() < nodes.end;
  }
  Stored& flow_place(int f) { return place(Place::flow, -1, flows_[at(f)].root); }

  // What the forward pass, or its repetition, reads and writes.
  Stored value_place(int stage, ValueId root, bool again) {
    if (!made_in(stage, root)) return flow_place(flow_of_[root.index()]);
    if (again) return place(Place::again, stage, root);
    if (flow_of_[root.index()] >= 0) return flow_place(flow_of_[root.index()]);
    return place(Place::forward, stage, root);
  }
  // What gradients read.
  Stored kept_place(int stage, ValueId root) { return value_place(stage, root, tr_.options.recompute); }

  BufferId weight_buffer(ValueId root, const std::string& kernel, size_t input, Bytes packed) {
    const Value& value = g_.value(root);
    const bool packs = packed.value() > 0;
    BufferId& known = weights_[{root, packs ? kernel : "", packs ? input : 0}];
    if (known.valid()) return known;
    known = add(value.name, value.type, tr_.trained[root.index()] ? BufferKind::state : BufferKind::weight);
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

  int tag_of(const TrainingPort& port) const {
    return port.of < 0 ? port.flow : static_cast<int>(flows_.size()) + port.flow;
  }
  int ring_tag(int stage) const { return 2 * static_cast<int>(flows_.size()) + stage; }

  int intern(int& index, const ComputeDesc& desc) {
    if (index < 0) index = intern_desc(program_, desc);
    return index;
  }

  BufferId workspace_buffer(Bytes needed) {
    if (!workspace_.valid()) workspace_ = add("workspace", {DType::f32, {0}}, BufferKind::scratch);
    Buffer& buffer = out_.buffers[workspace_.index()];
    buffer.bytes = std::max(buffer.bytes, needed);
    return workspace_;
  }

  void compute(Segment& segment, size_t n, bool again) {
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
      } else {
        instr.reads.push_back({seen_as(value_place(segment.stage, root, again), value)});
      }
    }
    for (const ValueId value : node.outputs) instr.writes.push_back({value_place(segment.stage, value, again).buffer});
    if (const Bytes workspace = workspace_of(*kernel.kernel, desc, out_.isa, out_.cores); workspace.value() > 0)
      instr.workspace = {workspace_buffer(workspace)};
    instr.label = kg_.labels[n];
    instr.desc = intern((*forward_descs_)[kernel.same_as], desc);
    emit(segment, std::move(instr), static_cast<int64_t>(n));
  }

  // The nodes of a stage that must run again before its gradients.
  std::vector<bool> needed_again(int stage) const {
    std::vector<bool> needed(g_.values.size(), false);
    const Stage& nodes = in_.plan->stages[at(stage)];
    for (size_t n = nodes.begin; n < nodes.end; ++n) {
      for (const NodeGradient* part : {&tr_.input_gradients[n], &tr_.weight_gradients[n]}) {
        for (const ValueId value : part->keeps) needed[kg_.root[value.index()].index()] = true;
      }
    }
    for (const ValueId loss : tr_.losses) needed[kg_.root[loss.index()].index()] = true;
    for (size_t n = nodes.end; n-- > nodes.begin;) {
      if (is_view(g_.nodes[n].op)) continue;
      const bool wanted = std::ranges::any_of(g_.nodes[n].outputs, [&](ValueId v) { return needed[v.index()]; });
      if (!wanted) continue;
      for (const ValueId read : reads_of(g_.nodes[n])) needed[kg_.root[read.index()].index()] = true;
    }
    return needed;
  }

  void fill_forward(Segment& segment, const TrainingSlot& slot, bool again) {
    const Stage& nodes = in_.plan->stages[at(slot.stage)];
    for (const TrainingPort& port : slot.recvs)
      emit(segment, transfer(Opcode::recv, {flow_place(port.flow).buffer}, port.peer, tag_of(port)), 0);
    const std::vector<bool> needed = again ? needed_again(slot.stage) : std::vector<bool>();
    size_t next = 0;
    for (size_t n = nodes.begin; n < nodes.end; ++n) {
      if (is_view(g_.nodes[n].op)) continue;
      if (again && std::ranges::none_of(g_.nodes[n].outputs, [&](ValueId v) { return needed[v.index()]; })) continue;
      compute(segment, n, again);
      for (; next < slot.sends.size(); ++next) {
        const TrainingPort& port = slot.sends[next];
        if (g_.value(flows_[at(port.flow)].root).producer.index() != n) break;
        emit(segment, transfer(Opcode::send, {flow_place(port.flow).buffer}, port.peer, tag_of(port)),
             static_cast<int64_t>(n));
      }
    }
    CHECK(next == slot.sends.size(), "a message that no instruction makes");
  }

  // ---- Gradients. Those by one root come from its readers in the stage, from later stages and from the loss; they are
  // added in this order: later stages ascending, the loss, readers from the last to the first.

  // The gradient by a flow's value that stage `of` hands to the stage that made it.
  BufferId handed(int f, int of) {
    BufferId& known = handed_[{f, of}];
    if (!known.valid()) {
      const Value& value = g_.value(flows_[at(f)].root);
      known = add_local(fmt::format("d_{}_from_{}", value.name, of), value.type);
    }
    return known;
  }

  BufferId gradient_buffer(int stage, size_t n, size_t input, ValueId value) {
    BufferId& known = gradients_[{stage, n, input}];
    if (!known.valid()) known = add_local(fmt::format("d_{}", g_.value(value).name), g_.value(value).type);
    return known;
  }

  // Gradients by roots in one I segment.
  struct Sums {
    std::map<ValueId, int> missing;  // root: contributions that are yet to come
    std::map<ValueId, std::vector<Operand>> parts;
    std::map<ValueId, Operand> whole;
  };

  bool differentiated(ValueId root) const {
    return g_.value(root).kind == ValueKind::node && tr_.has_gradient[root.index()];
  }

  Sums expected(int stage) const {
    Sums sums;
    const Stage& nodes = in_.plan->stages[at(stage)];
    for (size_t n = nodes.begin; n < nodes.end; ++n) {
      if (is_view(g_.nodes[n].op)) continue;
      const NodeGradient& part = tr_.input_gradients[n];
      for (size_t i = 0; i < g_.nodes[n].inputs.size(); ++i) {
        if ((part.by >> i & 1) != 0) ++sums.missing[kg_.root[g_.nodes[n].inputs[i].index()]];
      }
    }
    for (const Flow& flow : flows_) {
      if (flow.producer != stage || !differentiated(flow.root)) continue;
      sums.missing[flow.root] += static_cast<int>(flow.consumers.size());
    }
    for (const ValueId loss : tr_.losses) {
      if (made_in(stage, kg_.root[loss.index()])) ++sums.missing[kg_.root[loss.index()]];
    }
    return sums;
  }

  // A part of the gradient by `root`; with the last one it is whole.
  void contribute(Segment& segment, Sums& sums, ValueId root, Operand part, int64_t moment) {
    std::vector<Operand>& parts = sums.parts[root];
    parts.push_back(part);
    if (--sums.missing[root] > 0) return;
    const bool leaves = !made_in(segment.stage, root);
    const int f = flow_of_[root.index()];
    if (parts.size() == 1 && (!leaves || parts[0].buffer == handed(f, segment.stage))) {
      sums.whole[root] = parts[0];
      return;
    }
    Instr sum;
    sum.opcode = parts.size() == 1 ? Opcode::copy : Opcode::reduce;
    sum.reads = parts;
    BufferId into;
    if (leaves) {
      into = handed(f, segment.stage);
    } else {
      BufferId& known = sums_[{segment.stage, root}];
      if (!known.valid()) known = add_local(fmt::format("d_{}", g_.value(root).name), g_.value(root).type);
      into = known;
    }
    sum.writes = {{into}};
    sum.label = fmt::format("d {}", g_.value(root).name);
    emit(segment, std::move(sum), moment);
    sums.whole[root] = {into};
  }

  void fill_input_gradient(Segment& segment, const TrainingSlot& slot) {
    const int stage = slot.stage;
    const Stage& nodes = in_.plan->stages[at(stage)];
    for (const TrainingPort& port : slot.recvs)
      emit(segment, transfer(Opcode::recv, {handed(port.flow, port.of)}, port.peer, tag_of(port)), 0);
    Sums sums = expected(stage);
    for (size_t f = 0; f < flows_.size(); ++f) {
      if (flows_[f].producer != stage || !differentiated(flows_[f].root)) continue;
      for (const int c : flows_[f].consumers)
        contribute(segment, sums, flows_[f].root, {handed(static_cast<int>(f), c)}, 0);
    }
    for (const ValueId loss : tr_.losses) {
      const ValueId root = kg_.root[loss.index()];
      if (made_in(stage, root)) contribute(segment, sums, root, {emit_loss(segment, loss)}, 0);
    }
    size_t next = 0;
    const auto send_ready = [&](int64_t moment) {
      for (; next < slot.sends.size(); ++next) {
        const TrainingPort& port = slot.sends[next];
        if (!sums.whole.contains(flows_[at(port.flow)].root)) return;
        emit(segment, transfer(Opcode::send, {handed(port.flow, stage)}, port.peer, tag_of(port)), moment);
      }
    };
    for (size_t n = nodes.end; n-- > nodes.begin;) {
      const Node& node = g_.nodes[n];
      const NodeGradient& part = tr_.input_gradients[n];
      if (is_view(node.op) || !tr_.has_gradient[node.outputs[0].index()]) continue;
      const auto whole = sums.whole.find(node.outputs[0]);
      CHECK(whole != sums.whole.end(), "a gradient that nothing makes");
      const Operand given = whole->second;
      output_gradients_[{stage, n}] = given;
      const auto moment = static_cast<int64_t>(nodes.end - n);
      if (part.computes()) emit_input_gradient(segment, n, given, sums, moment);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if ((part.by >> i & 1) == 0) continue;
        const bool passes = (part.passes >> i & 1) != 0;
        const ValueId root = kg_.root[node.inputs[i].index()];
        contribute(segment, sums, root, passes ? given : Operand{written_[{stage, n, i}]}, moment);
      }
      send_ready(moment);
    }
    CHECK(next == slot.sends.size(), "a gradient that no instruction makes");
  }

  void emit_input_gradient(Segment& segment, size_t n, Operand given, const Sums& sums, int64_t moment) {
    const Node& node = g_.nodes[n];
    const NodeGradient& part = tr_.input_gradients[n];
    Instr instr = gradient_instr(segment.stage, n, part, given);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if ((part.desc.gradient_by >> i & 1) == 0) continue;
      const ValueId value = node.inputs[i], root = kg_.root[value.index()];
      const int f = flow_of_[root.index()];
      // The only part of a gradient that leaves the stage is written where it leaves from.
      const bool directly = !made_in(segment.stage, root) && sums.missing.at(root) == 1 && !sums.parts.contains(root);
      const BufferId buffer = directly ? handed(f, segment.stage) : gradient_buffer(segment.stage, n, i, value);
      written_[{segment.stage, n, i}] = buffer;
      instr.writes.push_back({directly ? seen_as({buffer, root}, value) : buffer});
    }
    instr.label = fmt::format("d {}", kg_.labels[n]);
    instr.desc = intern(interned_.input_gradients[part.same_as], part.desc);
    emit(segment, std::move(instr), moment);
  }

  // Reads of a gradient computation; its writes are the caller's.
  Instr gradient_instr(int stage, size_t n, const NodeGradient& part, Operand given) {
    Instr instr;
    instr.opcode = Opcode::compute;
    instr.reads.push_back({seen_as({given.buffer, ValueId()}, g_.nodes[n].outputs[0])});
    for (const ValueId value : part.keeps) {
      const ValueId root = kg_.root[value.index()];
      if (g_.value(root).kind == ValueKind::weight)
        instr.reads.push_back({seen_as({weight_buffer(root, "", 0, bytes(0)), root}, value)});
      else
        instr.reads.push_back({seen_as(kept_place(stage, root), value)});
    }
    return instr;
  }

  // Softmax cross-entropy's own gradient: the softmax of the output over its last axis, less one at the label (one
  // element of a row: not counted).
  Operand emit_loss(Segment& segment, ValueId output) {
    const TensorType& type = g_.value(output).type;
    BufferId& into = losses_[output];
    if (!into.valid()) into = add_local(fmt::format("d_{}", g_.value(output).name), type);
    Instr instr;
    instr.reads = {{seen_as(kept_place(segment.stage, kg_.root[output.index()]), output)}};
    instr.writes = {{into}};
    instr.label = "loss";
    if (type.shape.empty()) {
      instr.opcode = Opcode::copy;
    } else {
      instr.opcode = Opcode::compute;
      ComputeDesc desc;
      desc.op = Op::Softmax;
      desc.attrs = {{"axis", static_cast<int64_t>(type.shape.size()) - 1}};
      desc.inputs = desc.outputs = {type};
      desc.kernel = choose_kernel(desc, out_.isa).value();
      if (const Bytes workspace = workspace_of(*find_kernel(desc.kernel), desc, out_.isa, out_.cores);
          workspace.value() > 0)
        instr.workspace = {workspace_buffer(workspace)};
      instr.desc = intern_desc(program_, desc);
    }
    emit(segment, std::move(instr), 0);
    return {into};
  }

  // All gradients of a stage's weights lie in one buffer, so that they are reduced at once.
  struct Slice {
    int64_t begin = 0, end = 0;
  };
  struct StageWeights {
    std::vector<ValueId> order;  // roots
    std::map<ValueId, Slice> slices;
    BufferId gradients;
    int64_t elements = 0;
  };
  StageWeights& weights_of(int stage) {
    const auto [found, is_new] = stage_weights_.try_emplace(stage);
    StageWeights& weights = found->second;
    if (!is_new) return weights;
    const Stage& nodes = in_.plan->stages[at(stage)];
    for (size_t n = nodes.begin; n < nodes.end; ++n) {
      for (size_t i = 0; i < g_.nodes[n].inputs.size(); ++i) {
        if ((tr_.weight_gradients[n].by >> i & 1) == 0) continue;
        const ValueId root = kg_.root[g_.nodes[n].inputs[i].index()];
        if (weights.slices.contains(root)) continue;
        const int64_t count = element_count(g_.value(root).type.shape);
        weights.slices[root] = {weights.elements, weights.elements + count};
        weights.elements += count;
        weights.order.push_back(root);
      }
    }
    if (weights.elements > 0) {
      const bool alone = orders_.rings[at(stage)].size() < 2;
      weights.gradients = add(fmt::format("gradients_{}", stage), {DType::f32, {weights.elements}},
                              alone ? BufferKind::stash : BufferKind::comm);
    }
    return weights;
  }

  Operand gradient_of_weight(int stage, ValueId root) {
    const StageWeights& weights = weights_of(stage);
    const Slice slice = weights.slices.at(root);
    return {weights.gradients, slice.begin, slice.end};
  }

  // The first micro-batch writes the gradients, later ones add: gradient = gradient + part.
  void fill_weight_gradient(Segment& segment, const TrainingSlot& slot, bool first) {
    const int stage = slot.stage;
    std::set<ValueId> written;
    const Stage& nodes = in_.plan->stages[at(stage)];
    for (size_t n = nodes.end; n-- > nodes.begin;) {
      const Node& node = g_.nodes[n];
      const NodeGradient& part = tr_.weight_gradients[n];
      if (part.by == 0) continue;
      const auto moment = static_cast<int64_t>(nodes.end - n);
      const Operand given = output_gradients_.at({stage, n});
      Instr instr;
      if (part.computes()) instr = gradient_instr(stage, n, part, given);
      std::vector<Instr> sums;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if ((part.by >> i & 1) == 0) continue;
        const ValueId value = node.inputs[i], root = kg_.root[value.index()];
        const Operand into = gradient_of_weight(stage, root);
        const bool writes = first && written.insert(root).second;
        const bool passes = (part.passes >> i & 1) != 0;
        Operand from = given;
        if (!passes) {
          from = writes ? into : Operand{part_buffer(stage, n, i, value)};
          instr.writes.push_back(from);
        }
        if (writes && !passes) continue;
        Instr sum;
        sum.opcode = writes ? Opcode::copy : Opcode::reduce;
        sum.reads = writes ? std::vector<Operand>{from} : std::vector<Operand>{into, from};
        sum.writes = {into};
        sum.label = fmt::format("d {}", g_.value(root).name);
        sums.push_back(std::move(sum));
      }
      if (part.computes()) {
        instr.label = fmt::format("dw {}", kg_.labels[n]);
        instr.desc = intern(interned_.weight_gradients[part.same_as], part.desc);
        emit(segment, std::move(instr), moment);
      }
      for (Instr& sum : sums) emit(segment, std::move(sum), moment);
    }
    const auto end = static_cast<int64_t>(nodes.end - nodes.begin);
    for (const TrainingPort& port : slot.sends)  // of a backward in one piece
      emit(segment, transfer(Opcode::send, {handed(port.flow, stage)}, port.peer, tag_of(port)), end);
  }

  BufferId part_buffer(int stage, size_t n, size_t input, ValueId value) {
    BufferId& known = parts_[{stage, n, input}];
    if (!known.valid()) known = add_local(fmt::format("part_{}", g_.value(value).name), g_.value(value).type);
    return known;
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
    const Optimizer optimizer = tr_.options.optimizer;
    for (const ValueId root : weights.order) {
      const Value& value = g_.value(root);
      Instr instr;
      instr.opcode = Opcode::compute;
      const BufferId weight = weight_buffer(root, "", 0, bytes(0));
      instr.reads = {{weight}, gradient_of_weight(stage, root)};
      instr.writes = {{weight}};
      for (int i = 0; i < state_tensors(optimizer); ++i) {
        const BufferId state = add(fmt::format("{}_state{}", value.name, i), value.type, BufferKind::state);
        instr.reads.push_back({state});
        instr.writes.push_back({state});
      }
      instr.label = fmt::format("update {}", value.name);
      instr.desc = intern_desc(program_, update_desc(optimizer, value.type));
      emit(segment, std::move(instr), 0);
    }
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
      for (const TrainingPort& port : slot.recvs) {
        const BufferId buffer = port.of < 0 ? flow_place(port.flow).buffer : handed(port.flow, port.of);
        emit(segment, transfer(Opcode::recv, {buffer}, port.peer, tag_of(port)), 0);
      }
      for (const TrainingPort& port : slot.sends)
        emit(segment, transfer(Opcode::send, {flow_place(port.flow).buffer}, port.peer, tag_of(port)), 0);
      return segment;
    }
    switch (slot.phase) {
      case Phase::forward:
        fill_forward(segment, slot, false);
        break;
      case Phase::recompute:
        fill_forward(segment, slot, true);
        break;
      case Phase::input_gradient:
        fill_input_gradient(segment, slot);
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
        const TrainingPort& port = slot.recvs[r];
        const BufferId buffer = port.of < 0 ? places_.at({Place::flow, -1, flows_[at(port.flow)].root}).buffer
                                            : handed_.at({port.flow, port.of});
        of.arrivals.emplace_back(buffer, slot.received_at[r]);
      }
    }
    return times;
  }

  const TrainingInput& in_;
  const KernelGraph& kg_;
  const Graph& g_;
  const Training& tr_;
  const std::vector<Flow>& flows_;
  const TrainingOrders& orders_;
  const std::vector<TrainingSlot>& order_;
  int d_;
  Program& program_;
  DeviceProgram& out_;
  InternedDescs& interned_;
  const Assignment* chosen_ = nullptr;
  const std::vector<NodeKernel>* kernels_ = nullptr;
  std::vector<int>* forward_descs_ = nullptr;
  std::vector<int> flow_of_;  // [value]: index of the flow whose root it is, or -1
  std::unordered_set<std::string> names_;
  std::vector<Use> uses_;  // [buffer]
  std::map<PlaceKey, Stored> places_;
  std::map<std::pair<BufferId, Shape>, BufferId> views_;
  std::map<std::tuple<ValueId, std::string, size_t>, BufferId> weights_;
  std::map<std::pair<int, int>, BufferId> handed_;                 // flow, stage
  std::map<std::tuple<int, size_t, size_t>, BufferId> gradients_;  // stage, node, input
  std::map<std::tuple<int, size_t, size_t>, BufferId> written_;    // the same: where it was written in the end
  std::map<std::tuple<int, size_t, size_t>, BufferId> parts_;      // the same, of weights
  std::map<std::pair<int, ValueId>, BufferId> sums_;               // stage, root
  std::map<ValueId, BufferId> losses_;                             // by output
  std::map<std::pair<int, size_t>, Operand> output_gradients_;     // stage, node
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
                           int d, InternedDescs& interned, Program& program) {
  TrainingBuilder(input, flows, orders, d, interned, program).build();
}

}  // namespace nlsplit
