// Pass `allocate`: each device's segments, buffers, instances and places.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "compile/buffers.h"
#include "compile/collectives.h"
#include "compile/instances.h"
#include "compile/shares.h"
#include "kernels/layout.h"
#include "program/in_place.h"

namespace nlsplit::inline compiler {
namespace {

// [level][node]: index of its desc in the Program, or -1.
using Interned = std::map<Level, std::vector<int>>;

class DeviceWriter {
 public:
  DeviceWriter(const Lowering& lowering, const std::vector<int>& layouts, int device, Interned& interned,
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

  void write() {
    if (d_ == l_.source) buffers_.add_inputs();
    if (d_ == l_.sink) buffers_.add_outputs();
    for (const OrderedSlot& slot : l_.slots[at(d_)]) {
      const int m = slot.phase == Phase::step ? -1 : slot.micro_batch;
      out_.order.push_back({variant_of(slot), m, {}});
    }
    buffers_.settle();
    std::erase_if(in_place_, [&](const InPlace& pair) {
      return out_.buffer(pair.result).kind != BufferKind::scratch || out_.buffer(pair.held).kind != BufferKind::scratch;
    });
    assign_instances(instance_rules(), l_.micro_batches(), out_);
    place_buffers(out_, buffers_.lifetimes(), in_place_);
  }

 private:
  // In training a message is there from when it is sent, and the schedule's order says how many are in flight.
  InstanceRules instance_rules() const {
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
        const ValueId root = l_.flows[at(slots[i].recvs[r].flow)].root;
        of.arrivals.emplace_back(buffers_.received(root), slots[i].received_at[r]);
      }
    }
    return rules;
  }

  bool is_credit(const Port& port) const { return at(port.flow) == l_.flows.size(); }
  int made_in(ValueId root) const { return chosen_ == nullptr ? 0 : chosen_->made_in[root.index()]; }

  // ---- Instructions. A moment counts them in the work of their stage and phase: first what is received, then by the
  // node, which has the same number in all variants of a segment.
  static constexpr int64_t moments_of_node = int64_t{1} << 20;
  void begin_node(size_t n) { moment_ = (static_cast<int64_t>(n) + 1) * moments_of_node; }
  void begin_end() { begin_node(g_.nodes.size()); }

  void emit(Segment& segment, Instr instr) {
    buffers_.note(segment, instr, moment_);
    if (moment_ > 0) ++moment_;
    segment.instrs.push_back(std::move(instr));
  }

  // ---- Where values are

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

  // The same values in another element type.
  void emit_cast(Segment& segment, ValueId root, BufferId from, BufferId to) {
    ComputeDesc desc;
    desc.op = Op::Cast;
    desc.attrs = {{"to", std::string(name_of(out_.buffer(to).type.dtype))}};
    desc.inputs = {out_.buffer(from).type};
    desc.outputs = {out_.buffer(to).type};
    desc.kernel = choose_kernel(desc, out_.level).value();
    Instr instr;
    instr.opcode = Opcode::compute;
    instr.desc = intern_desc(program_, desc);
    instr.reads = {{from}};
    instr.writes = {{to}};
    if (const Bytes workspace = workspace_of(desc, out_.cores); workspace.value() > 0)
      instr.workspace = {buffers_.workspace(workspace)};
    instr.label = fmt::format("{} {}", g_.value(root).name, name_of(desc.outputs[0].dtype));
    emit(segment, std::move(instr));
  }

  // Of what the segment has made: once, however many devices it is sent to.
  void convert(Segment& segment, const Flow& flow) {
    if (std::ranges::find(converted_, flow.root) != converted_.end()) return;
    converted_.push_back(flow.root);
    const Stored& from = buffers_.place_of(flow.root, layouts_[at(l_.flow_of[flow.root.index()])]);
    emit_cast(segment, flow.root, buffers_.seen_as(from, flow.root), buffers_.converted(flow).buffer);
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
    instr.label = graph_.labels[g_.value(part).producer.index()];
    return instr;
  }

  bool made_by(int stage, ValueId root) const {
    const Value& value = g_.value(root);
    return value.kind == ValueKind::node && l_.nodes.of_node[value.producer.index()] == stage;
  }
  // What the forward pass has made is taken from its repetition, where there is one.
  bool from_repetition(const Segment& segment, ValueId root) const {
    return l_.recomputes() && segment.phase != Phase::forward && made_by(segment.stage, root) &&
           l_.phase_of(root) == NodePhase::forward;
  }

  // Where the next computation of a stage finds a root in the layout it wants; reordered before it if need be.
  Stored wanted(Segment& segment, ValueId root, int block) {
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
        emit(segment, cut_input(root, buffers_.copy_of_stage(segment.stage, root, 0)));
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
          const Stored& copy = buffers_.copy_of_stage(segment.stage, root, as_sent);
          emit_cast(segment, root, buffers_.converted(flow).buffer, copy.buffer);
          there.copies = as_sent == 0 ? 1 : 2;
        } else {
          (void)buffers_.storage(root, as_sent, root);
        }
      }
    }
    const auto stored = [&](int in_block) {
      return there.copied(in_block) ? buffers_.copy_of_stage(segment.stage, root, in_block)
                                    : buffers_.place_of(root, in_block);
    };
    if (there.has(block)) return stored(block);
    const int have = block == 0 ? static_cast<int>(vector_width(out_.level.isa)) : 0;
    const Stored copy = buffers_.copy_of_stage(segment.stage, root, block);
    emit_reorder(segment, root, stored(have), have, copy, block);
    there.set(block);
    there.copies |= block == 0 ? 1 : 2;
    return copy;
  }

  Operand weight(int stage, ValueId value, KernelId kernel, size_t input, Bytes packed) {
    const ValueId root = graph_.root[value.index()];
    if (!buffers_.is_state(root) && value == root) return {buffers_.weight(value, kernel, input, packed)};
    const Operand whole =
        buffers_.is_state(root) ? buffers_.state(stage, root) : Operand{buffers_.weight(root, {}, 0, bytes(0))};
    return value == root ? whole : Operand{buffers_.seen_as({whole.buffer, root}, value)};
  }

  // The state whose place a computed value has; none: its own place. A stage's first micro-batch begins the sums: a
  // part that nothing else reads is made where the sum lies.
  ValueId state_at(ValueId root) const {
    if (state_of_.empty()) return {};
    const std::vector<size_t>& readers = graph_.readers[root.index()];
    const bool is_part =
        readers.size() == 1 && g_.nodes[readers[0]].op == Op::Accumulate && l_.phase_of(root) == NodePhase::weight;
    if (!is_part) return state_of_[root.index()];
    const ValueId sum = state_of_[g_.nodes[readers[0]].outputs[0].index()];
    if (shares_ != nullptr) return has_room(root, sum) ? sum : ValueId();
    return first_ ? sum : state_of_[root.index()];
  }

  // ---- Where replicas keep shares of sums: parts lie in rooms (compile/shares.h)

  // Whether the bucket that had a part's room before is complete when the part is made, and so can be over by then.
  bool has_room(ValueId part, ValueId sum) const {
    const size_t bucket = bucket_of(*shares_, shares_->begin.at(sum));
    return bucket < rooms || shares_->buckets[bucket - rooms].completed_by < g_.value(part).producer.index();
  }
  bool is_in_room(const Segment& segment, ValueId state) const {
    return shares_ != nullptr && segment.phase != Phase::step && shares_->begin.contains(state);
  }
  Operand place_of_state(const Segment& segment, ValueId state) {
    return is_in_room(segment, state) ? buffers_.in_room(segment.stage, state) : buffers_.state(segment.stage, state);
  }

  // A part that was not made in its room.
  void put_in_room(Segment& segment, const Node& accumulate, const std::string& label) {
    const ValueId part = accumulate.inputs[1], root = graph_.root[part.index()];
    if (state_at(root).valid()) return;
    const Operand made{buffers_.seen_as(wanted(segment, root, 0), part)};
    emit(segment, copy(made, buffers_.in_room(segment.stage, state_of_[accumulate.outputs[0].index()]), label));
  }

  // The bucket in whose room a node writes; none: it does not.
  std::optional<size_t> writes_room(size_t n) const {
    for (const ValueId value : g_.nodes[n].outputs) {
      const ValueId state = state_at(value);
      if (state.valid() && shares_->begin.contains(state)) return bucket_of(*shares_, shares_->begin.at(state));
    }
    return std::nullopt;
  }

  // What a bucket's room had before is reduced, and kept, before a node writes there.
  void free_room(Segment& segment, size_t n, std::vector<ReductionTurn>& turns) {
    const std::optional<size_t> bucket = writes_room(n);
    if (!bucket || *bucket < rooms) return;
    const auto had_it = [&](const ReductionTurn& turn) { return turn.bucket == *bucket - rooms; };
    for (const ReductionTurn& turn : turns) {
      if (had_it(turn)) take_turn(segment, segment.stage, turn);
    }
    std::erase_if(turns, had_it);
  }

  // The device's share of a reduced bucket is added to that of the micro-batches before.
  void keep_share(Segment& segment, int stage, size_t bucket) {
    const KeptShare share = kept_share(*shares_, bucket, l_.member_of(stage, d_));
    if (share.begin == share.end) return;
    const Operand part{buffers_.in_room(stage, bucket).buffer, share.begin, share.end};
    const Operand kept{buffers_.gradients(stage).buffer, share.kept, share.kept + share.end - share.begin};
    if (first_) return emit(segment, copy(part, kept, fmt::format("share of bucket {}", bucket)));
    Instr sum;
    sum.opcode = Opcode::reduce;
    sum.reads = {kept, part};
    sum.writes = {kept};
    emit(segment, std::move(sum));
  }

  void compute(Segment& segment, size_t n) {
    begin_node(n);
    const Node& node = g_.nodes[n];
    if (shares_ != nullptr && node.op == Op::Accumulate) return put_in_room(segment, node, graph_.labels[n]);
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
        instr.reads.push_back(weight(segment.stage, value, desc.kernel, i, kernel.packed[i]));
      else if (const ValueId state = state_at(root); state.valid())
        instr.reads.push_back(place_of_state(segment, state));
      else if (const std::optional<Operand> sum = buffers_.sum_of_squares(root))
        instr.reads.push_back(*sum);
      else
        instr.reads.push_back({buffers_.seen_as(wanted(segment, root, desc.inputs[i].block), value)});
    };
    for (const ValueId value : node.inputs) read(value);
    for (const EpilogueStep& step : node.epilogue) read(step.operand);
    if (first_ && node.op == Op::Accumulate)
      return begin_sum(segment, instr.reads[0], instr.reads[1], graph_.labels[n]);
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
      if (l_.convert_always && l_.is_converted(flow)) convert(segment, flow);
    }
  }
  const Stored& place_of_message(const Flow& flow, int block) {
    CHECK(buffers_.message(flow).valid(), "a message without a buffer");
    return buffers_.place_of(flow.root, block);
  }

  void begin_sum(Segment& segment, const Operand& sum, const Operand& part, const std::string& label) {
    if (part != sum) emit(segment, copy(part, sum, label));
  }

  // The operands that the only result may overwrite, if all turn out to be scratch.
  void note_in_place(const Instr& instr, uint64_t reads) {
    if (reads == 0) return;
    const BufferId result = out_.root(instr.writes[0].buffer);
    for (const Operand& read : instr.reads) {
      const BufferId held = out_.root(read.buffer);
      if (may_overwrite(out_, instr, reads, held)) in_place_.push_back({result, held});
    }
  }

  // ---- Messages

  static Instr transfer(Opcode opcode, const Operand& data, const Port& port) {
    Instr instr;
    instr.opcode = opcode;
    (opcode == Opcode::send ? instr.reads : instr.writes).push_back(data);
    instr.peer = port.peer;
    instr.tag = port.flow;
    return instr;
  }
  static Instr copy(Operand from, Operand to, std::string label) {
    Instr instr;
    instr.opcode = Opcode::copy;
    instr.reads = {from};
    instr.writes = {to};
    instr.label = std::move(label);
    return instr;
  }

  // A credit's value means nothing: copying it is what makes the computations behind it wait for it, and it for those
  // before.
  void receive(Segment& segment, const OrderedSlot& slot) {
    moment_ = 0;
    for (const Port& port : slot.recvs) {
      const BufferId buffer = is_credit(port) ? buffers_.credit_in() : buffers_.message(l_.flows[at(port.flow)]);
      emit(segment, transfer(Opcode::recv, {buffer}, port));
    }
    if (std::ranges::any_of(slot.recvs, [this](const Port& port) { return is_credit(port); }))
      emit(segment, copy({buffers_.credit_in()}, {buffers_.token()}, "credit"));
  }
  void send(Segment& segment, const Port& port) {
    if (is_credit(port))
      emit(segment, copy({buffers_.token()}, {buffers_.credit_out()}, "credit"));
    else if (const Flow& flow = l_.flows[at(port.flow)]; l_.is_converted(flow))
      convert(segment, flow);
    const BufferId buffer = is_credit(port) ? buffers_.credit_out() : buffers_.message(l_.flows[at(port.flow)]);
    emit(segment, transfer(Opcode::send, {buffer}, port));
  }

  // ---- Segments

  // What leaves goes as soon as it is made; the gradient of a backward in one piece, made by I, behind W.
  void compute_and_send(Segment& segment, const OrderedSlot& slot, const std::vector<size_t>& nodes) {
    size_t next = 0;
    std::vector<ReductionTurn> turns;  // left to take
    if (slot.reduces) turns = l_.reductions[at(slot.stage)].turns;
    const auto take_due = [&](size_t behind) {
      const auto due = std::ranges::find_if(turns, [&](const ReductionTurn& turn) { return turn.behind > behind; });
      std::for_each(turns.begin(), due, [&](const ReductionTurn& turn) { take_turn(segment, slot.stage, turn); });
      turns.erase(turns.begin(), due);
    };
    for (const size_t n : nodes) {
      if (shares_ != nullptr) free_room(segment, n, turns);
      compute(segment, n);
      take_due(n);
      for (; next < slot.sends.size() && !is_credit(slot.sends[next]); ++next) {
        if (g_.value(l_.flows[at(slot.sends[next].flow)].root).producer.index() != n) break;
        send(segment, slot.sends[next]);
      }
    }
    begin_end();
    take_due(ReductionTurn::at_the_end);
    for (; next < slot.sends.size(); ++next) send(segment, slot.sends[next]);
  }

  // Parts of inputs are cut out before they are sent.
  void feed(Segment& segment, const OrderedSlot& slot) {
    int cut = -1;
    for (const Port& port : slot.sends) {
      const Flow& flow = l_.flows[at(port.flow)];
      if (port.flow != cut && graph_.is_input_part(flow.root)) {
        const BufferId message = buffers_.message(flow);
        emit(segment, cut_input(flow.root, {message, buffers_.place_of(flow.root, 0).as}));
        cut = port.flow;
      }
      send(segment, port);
    }
  }

  void collect(Segment& segment) {
    for (const auto& [value, output] : buffers_.copied_outputs())
      emit(segment, copy({buffers_.place_of(graph_.root[value.index()], 0).buffer}, {output}, g_.value(value).name));
  }

  void reduce_gradients(Segment& segment, int stage) {
    if (reduced_.contains(stage)) return;  // while the last W went on, or every W
    moment_ = 0;
    for (const ReductionTurn& turn : l_.reductions[at(stage)].turns) take_turn(segment, stage, turn);
  }

  void take_turn(Segment& segment, int stage, const ReductionTurn& turn) {
    const Reduction& reduction = l_.reductions[at(stage)];
    const Bucket& bucket = reduction.buckets[turn.bucket];
    const auto member = std::ranges::find(reduction.group, d_) - reduction.group.begin();
    const Rounds& rounds = bucket.reduce.of_members[at(member)];
    const Operand gradients = reduction.keeps_share
                                  ? buffers_.in_room(stage, turn.bucket)
                                  : Operand{buffers_.gradients(stage).buffer, bucket.begin, bucket.end()};
    reduced_.try_emplace(stage, reduction.buckets.size());
    Reduced& here = reduced_[stage][turn.bucket];
    if (turn.round == 0) {
      here.collective = static_cast<int>(segment.collectives.size());
      segment.collectives.push_back(bucket.reduce.collective);
      if (l_.native) segment.collectives.back().native = {gradients, gradients};
      const std::string suffix = turn.bucket == 0 ? "" : fmt::format("_{}", turn.bucket);
      const int64_t elements = received_elements(rounds, static_cast<int>(member));
      if (elements > 0 && reduction.keeps_share)
        here.received = received_in_room(stage, room_of(turn.bucket));
      else if (elements > 0)
        here.received = buffers_.add_message(fmt::format("received_{}{}", stage, suffix), {DType::f32, {elements}});
    }
    const int tag = static_cast<int>(l_.flows.size()) + stage;
    const auto of_round = [&](size_t round, bool adds) {
      const Rounds one = {rounds[round]};
      const CollectivePlaces places{gradients, gradients, here.received, tag};
      std::vector<Instr> instrs = instructions_of(one, reduction.group, static_cast<int>(member), places);
      const auto sums = std::ranges::find(instrs, Opcode::reduce, &Instr::opcode);
      for (auto i = adds ? sums : instrs.begin(); i != (adds ? instrs.end() : sums); ++i) {
        i->collective = here.collective;
        emit(segment, std::move(*i));
      }
    };
    if (turn.round > 0) of_round(turn.round - 1, true);
    if (turn.round < rounds.size()) of_round(turn.round, false);
    if (turn.round == rounds.size() && reduction.keeps_share) keep_share(segment, stage, turn.bucket);
  }

  // What arrives of the buckets of a room, to be added.
  BufferId received_in_room(int stage, size_t room) {
    BufferId& buffer = received_[{stage, room}];
    if (buffer.valid()) return buffer;
    const Reduction& reduction = l_.reductions[at(stage)];
    const size_t member = l_.member_of(stage, d_);
    int64_t most = 0;
    for (size_t b = room; b < reduction.buckets.size(); b += rooms)
      most =
          std::max(most, received_elements(reduction.buckets[b].reduce.of_members[member], static_cast<int>(member)));
    return buffer = buffers_.add_message(fmt::format("received_{}_{}", stage, room), {DType::f32, {most}});
  }

  // ZeRO: the device updates the weights of its share. They go to the others bucket by bucket, each while the next one
  // is updated, by way of the places that their gradients had.
  void update_share(Segment& segment, int stage) {
    const StepNodes& step = l_.training->nodes;
    const Reduction& reduction = l_.reductions[at(stage)];
    const size_t member = l_.member_of(stage, d_);
    const auto move = [&](size_t t, bool here) {  // a new weight
      const ValueId weight = step.trained[t];
      const ValueId of = step.sums[step.parts[t][0]].state;
      const Operand sum = reduction.keeps_share ? buffers_.in_room(stage, of) : buffers_.state(stage, of);
      const Operand state = buffers_.state(stage, weight);
      const std::string label = fmt::format("new {}", g_.value(weight).name);
      begin_end();
      emit(segment, here ? copy(state, sum, label) : copy(sum, state, label));
    };
    const auto take = [&](const Bucket& bucket) {  // what others have updated
      for (const size_t t : l_.weights_of(stage, bucket)) {
        if (l_.owner_of(stage, bucket, t) != member) move(t, false);
      }
    };
    for (size_t b = 0; b < reduction.buckets.size(); ++b) {
      const Bucket& bucket = reduction.buckets[b];
      for (const size_t t : l_.weights_of(stage, bucket)) {
        if (l_.owner_of(stage, bucket, t) != member) continue;
        compute_all(segment, step.of_weights[t]);
        move(t, true);
      }
      const Operand all = reduction.keeps_share ? buffers_.in_room(stage, b)
                                                : Operand{buffers_.gradients(stage).buffer, bucket.begin, bucket.end()};
      const CollectivePlaces places{all, all, {}, static_cast<int>(l_.flows.size()) + stage};
      for (Instr& instr :
           instructions_of(bucket.gather->of_members[member], reduction.group, static_cast<int>(member), places)) {
        instr.collective = static_cast<int>(segment.collectives.size());
        emit(segment, std::move(instr));
      }
      segment.collectives.push_back(bucket.gather->collective);
      if (l_.native) segment.collectives.back().native = {all, all};
      if (reduction.keeps_share && b > 0) take(reduction.buckets[b - 1]);  // the next one comes to its room
    }
    const size_t left = reduction.keeps_share ? reduction.buckets.size() - 1 : 0;
    std::for_each(reduction.buckets.begin() + static_cast<std::ptrdiff_t>(left), reduction.buckets.end(), take);
  }

  std::string segment_name(const OrderedSlot& slot, int number) const {
    const std::string name =
        slot.stage == source_stage  ? "source"
        : slot.stage == ahead_stage ? "ahead"
        : slot.stage == l_.stages()
            ? (slot.phase == Phase::step ? "sink_step" : "sink")
            : fmt::format("{}{}{}{}", slot.joint ? "B" : name_of(slot.phase), slot.stage, first_ ? "_first" : "",
                          slot.reduces && shares_ == nullptr ? "_last" : "");
    return number == 1 ? name : fmt::format("{}_{}", name, number);
  }

  // [stage]
  const std::vector<std::vector<size_t>>& nodes_of(Phase phase) const {
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

  Segment make_segment(const OrderedSlot& slot, int number) {
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

  // Where steps wait for each other: the gradients of all stages here, with the parts of other devices, and the factor
  // that clips them.
  void begin_steps(Segment& segment) {
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

  void exchange_parts(Segment& segment) {
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

  // The squares of the gradients, and with those of other devices the factor.
  void clip(Segment& segment) {
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

  // Of a step, each once: a tied weight is of several stages, and has one copy here.
  void compute_all(Segment& segment, const std::vector<size_t>& nodes) {
    for (const size_t n : nodes) {
      if (stepped_.insert(n).second) compute(segment, n);
    }
  }
  // Of the device's slots that update weights: its number, from 1.
  int slot_of_step(const OrderedSlot& slot) const {
    int number = 0;
    for (const OrderedSlot& other : l_.slots[at(d_)]) {
      number += other.phase == Phase::step ? 1 : 0;
      if (&other == &slot) break;
    }
    return number;
  }

  // The segment of a slot: the one with the same work, peers and messages, made if there is none yet.
  int variant_of(const OrderedSlot& slot) {
    first_ = slot.phase == Phase::weight_gradient && begin_sums(slot.stage);
    const bool own = slot.stage >= 0 && slot.stage < l_.stages();
    shares_ = own && !l_.reductions.empty() && l_.reductions[at(slot.stage)].keeps_share
                  ? &l_.reductions[at(slot.stage)]
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
    out_.segments.push_back(make_segment(slot, number));
    variants_.push_back({&slot, segment, first_});
    return segment;
  }
  // Whether the same values come from other devices, converted, and the others from this one.
  bool is_given_alike(const OrderedSlot& a, const OrderedSlot& b) const {
    if (givers_.empty() || a.stage < 0 || a.stage == l_.stages()) return true;
    return std::ranges::all_of(givers_[at(a.stage)], [&](int stage) {
      const auto is_here = [&](int m) { return l_.device_of(stage, m) == d_; };
      return is_here(a.micro_batch) == is_here(b.micro_batch);
    });
  }
  // Whether the stage's sums had not begun; they have now.
  bool begin_sums(int stage) {
    if (std::ranges::find(begun_, stage) != begun_.end()) return false;
    begun_.push_back(stage);
    return true;
  }

  const Lowering& l_;
  const KernelGraph& graph_;
  const Graph& g_;
  const std::vector<int>& layouts_;
  int d_;
  Program& program_;
  DeviceProgram& out_;
  const Assignment* chosen_ = nullptr;
  const std::vector<NodeKernel>* kernels_ = nullptr;
  std::vector<int>* interned_ = nullptr;
  DeviceBuffers buffers_;
  std::vector<Available> available_;   // [root value]
  std::vector<ValueId> state_of_;      // [value]: the state whose new value it is; empty: inference
  int micro_batch_ = 0;                // of the slot that the segment being made is the first for
  std::vector<ValueId> converted_;     // in the segment being made, to be sent
  std::vector<std::set<int>> givers_;  // [stage]: stages whose results travel to it converted; empty: none do
  bool first_ = false;                 // the segment being made begins its stage's sums
  const Reduction* shares_ = nullptr;  // of its stage, if replicas keep shares of sums
  int steps_here_ = 0;                 // slots that update weights
  std::set<size_t> stepped_;           // nodes of the step that are computed
  std::vector<InPlace> in_place_;
  int64_t moment_ = 0;
  struct Variant {
    const OrderedSlot* slot;
    int segment;
    bool first;
  };
  std::vector<Variant> variants_;  // the slot a segment was made for
  std::vector<int> begun_;         // stages whose sums have begun
  struct Reduced {
    int collective = -1;  // of the segment
    BufferId received;
  };
  std::map<int, std::vector<Reduced>> reduced_;          // [stage][bucket]
  std::map<std::pair<int, size_t>, BufferId> received_;  // by stage and room
};

// Messages travel in the layout they are made in where all devices of the plan have one level, so blocks of one size;
// else row-major. Inputs, outputs, and all of training are row-major in any case.
std::vector<int> flow_layouts(const Lowering& lowering) {
  std::vector<int> layouts(lowering.flows.size(), 0);
  if (lowering.training != nullptr || lowering.row_major_messages) return layouts;
  const Level level = lowering.program.devices[0].level;
  const auto other_level = [&](DeviceId device) { return lowering.cluster->device(device).level != level; };
  if (std::ranges::any_of(lowering.devices, other_level)) return layouts;
  for (size_t f = 0; f < layouts.size(); ++f) {
    const Flow& flow = lowering.flows[f];
    if (flow.producer == source_stage || flow.consumers.back() == lowering.stages()) continue;
    layouts[f] = lowering.graph->chosen.at(level).made_in[flow.root.index()];
  }
  return layouts;
}

}  // namespace

void allocate(Lowering& lowering) {
  const std::vector<int> layouts = flow_layouts(lowering);
  Interned interned;
  for (size_t d = 0; d < lowering.program.devices.size(); ++d)
    DeviceWriter(lowering, layouts, static_cast<int>(d), interned, lowering.program).write();
}

}  // namespace nlsplit::inline compiler
