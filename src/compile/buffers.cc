#include "compile/buffers.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "compile/gathers.h"
#include "compile/shares.h"
#include "cost/messages.h"
#include "kernels/layout.h"

namespace nlsplit::inline compiler {
namespace {

std::string layout_suffix(int block) { return block == 0 ? "_rows" : fmt::format("_c{}", block); }

}  // namespace

DeviceBuffers::DeviceBuffers(const Lowering& lowering, const std::vector<int>& layouts, int device, DeviceProgram& out)
    : l_(lowering),
      g_(lowering.graph->graph),
      layouts_(layouts),
      d_(device),
      out_(out),
      row_major_(g_.values.size()),
      blocked_(g_.values.size()),
      named_(g_.values.size(), false),
      states_(g_.values.size(), false),
      changed_(g_.values.size(), false) {
  for (const OrderedSlot& slot : l_.slots[at(d_)]) {
    const bool own = slot.stage >= 0 && slot.stage < l_.stages();
    if (own && !runs_here(slot.stage)) stages_here_.push_back(slot.stage);
  }
  for (const ValueId state : l_.graph->states) states_[state.index()] = true;
  const std::vector<ValueId> changed = l_.training == nullptr ? l_.graph->states : changed_weights(l_.training->nodes);
  for (const ValueId weight : changed) changed_[weight.index()] = true;
}

bool DeviceBuffers::runs_here(int stage) const {
  return std::find(stages_here_.begin(), stages_here_.end(), stage) != stages_here_.end();
}

// How many micro-batches of a flow pass through this device.
int DeviceBuffers::uses_of(const Flow& flow) const {
  int uses = 0;
  for (int m = 0; m < l_.micro_batches(); ++m) {
    const bool here =
        l_.device_of(flow.producer, m) == d_ || std::any_of(flow.consumers.begin(), flow.consumers.end(),
                                                            [&](int stage) { return l_.device_of(stage, m) == d_; });
    if (here) ++uses;
  }
  return uses;
}

// As many as the inputs have where they are cut: a device that shares the work must not wait for a message to leave
// before it computes on.
int DeviceBuffers::instances_of(const Flow& flow) const {
  const bool cut_here = d_ == l_.source && l_.graph->is_input_part(flow.root);
  const int uses = uses_of(flow);
  return cut_here ? uses : std::min(std::max(l_.table.instances, l_.table.room), uses);
}

// By a stage that has it from this device itself.
bool DeviceBuffers::is_read_here(const Flow& flow) const {
  for (int m = 0; m < l_.micro_batches(); ++m) {
    if (l_.device_of(flow.producer, m) != d_) continue;
    if (std::ranges::any_of(flow.consumers,
                            [&](int stage) { return l_.device_of(stage, m) == d_ && !l_.is_sent_to(flow, stage, m); }))
      return true;
  }
  return false;
}

// ---- Names. A value's first buffer has the value's name, which no other value has, nor any name that is made up.

std::string DeviceBuffers::free_name(ValueId value) {
  return named_[value.index()] ? unique_name(g_.value(value).name) : own_name(value);
}

std::string DeviceBuffers::own_name(ValueId value) {
  named_[value.index()] = true;
  return g_.value(value).name;
}

std::string DeviceBuffers::unique_name(const std::string& wanted) {
  std::string name = wanted;
  for (int i = 2; l_.graph->names.contains(name) || made_up_.contains(name); ++i)
    name = fmt::format("{}_{}", wanted, i);
  made_up_.insert(name);
  return name;
}

BufferId DeviceBuffers::add_buffer(Buffer buffer) {
  out_.buffers.push_back(std::move(buffer));
  uses_.emplace_back();
  return BufferId(out_.buffers.size() - 1);
}

BufferId DeviceBuffers::add_stored(const std::string& name, const TensorType& type, BufferKind kind, int instances) {
  Buffer buffer;
  buffer.name = name;
  buffer.type = type;
  buffer.kind = kind;
  buffer.bytes = size_of(type);
  buffer.instances = instances;
  return add_buffer(std::move(buffer));
}

// Its kind is settled by its uses.
BufferId DeviceBuffers::add_open(const std::string& name, const TensorType& type, int instances) {
  const BufferId buffer = add_stored(name, type, BufferKind::scratch, instances);
  uses_[buffer.index()].open = true;
  return buffer;
}

// ---- Values

void DeviceBuffers::add_inputs() {
  for (const ValueId value : g_.inputs) {
    const TensorType& type = g_.value(value).type;
    place_of(value, 0) = {add_stored(own_name(value), type, BufferKind::input, l_.micro_batches()), value};
  }
}

void DeviceBuffers::add_outputs() {
  for (size_t i = 0; i < g_.outputs.size(); ++i) {
    const ValueId value = g_.outputs[i];
    const Value& output = g_.value(value);
    const ValueId root = l_.graph->root[value.index()];
    const bool copied = std::ranges::find(l_.copied_outputs, i) != l_.copied_outputs.end();
    const int instances = l_.phase_of(root) == NodePhase::step ? 1 : l_.micro_batches();
    const BufferId buffer = add_stored(free_name(value), output.type, BufferKind::output, instances);
    if (copied) {
      copies_.emplace_back(value, buffer);
    } else {
      place_of(root, 0) = {buffer, value};
    }
  }
}

// "conv1", or "conv1_c16" if the value lies here in another layout already.
std::string DeviceBuffers::layout_name(ValueId root, int block) {
  if (!(block == 0 ? blocked_ : row_major_)[root.index()].buffer.valid()) return own_name(root);
  return unique_name(g_.value(root).name + layout_suffix(block));
}

Stored DeviceBuffers::storage(ValueId root, int block, ValueId as) {
  Stored& place = place_of(root, block);
  if (place.buffer.valid()) return place;
  const int f = l_.flow_of[root.index()];
  int instances = 1;
  if (l_.training == nullptr && f >= 0 && layouts_[at(f)] == block) {  // a training schedule says how many by its order
    const Flow& flow = l_.flows[at(f)];
    if (!l_.is_converted(flow) || is_read_here(flow)) instances = instances_of(flow);
  }
  const std::string name = as == root ? layout_name(root, block) : free_name(as);
  if (l_.phase_of(root) == NodePhase::step) {  // once in a step, so that there is one
    const bool travels = l_.clipping && (root == l_.clipping->factor || root == l_.clipping->norm);
    place = {add_stored(name, g_.value(as).type, travels ? BufferKind::comm : BufferKind::stash, 1), as};
    return place;
  }
  place = {add_open(name, with_block(g_.value(as).type, block), instances), as};
  return place;
}

Stored DeviceBuffers::recomputed(ValueId root) {
  const auto [again, is_new] = recomputed_.try_emplace(root);
  if (is_new) again->second = {add_open(unique_name(g_.value(root).name), g_.value(root).type, 1), root};
  return again->second;
}

const Stored& DeviceBuffers::copy_of(const Segment& segment, ValueId root, int block) {
  const auto [copy, is_new] = segment_copies_.try_emplace({segment.stage, segment.phase, root, block});
  if (is_new) {
    const std::string name = unique_name(g_.value(root).name + layout_suffix(block));
    copy->second = {add_open(name, with_block(g_.value(root).type, block), 1), root};
  }
  return copy->second;
}

BufferId DeviceBuffers::seen_as(const Stored& stored, ValueId value) {
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

BufferId DeviceBuffers::weight(ValueId value, KernelId kernel, size_t input, Bytes packed) {
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

Operand DeviceBuffers::state(int stage, ValueId root) {
  const Value& value = g_.value(root);
  const Reduction& reduction = l_.reductions[at(stage)];
  if (const auto sum = reduction.begin.find(root); sum != reduction.begin.end()) {
    int64_t begin = sum->second;
    if (reduction.keeps_share) {
      const size_t bucket = bucket_of(reduction, begin);
      const KeptShare share = kept_share(reduction, bucket, l_.member_of(stage, d_));
      begin += share.kept - share.begin - reduction.buckets[bucket].begin;
    }
    return {gradients(stage).buffer, begin, begin + element_count(value.type.shape)};
  }
  for (const Tied& tied : l_.tied) {  // of another stage
    const auto part = std::ranges::find(tied.parts, root, &Tied::Part::sum);
    if (part == tied.parts.end()) continue;
    return runs_here(part->stage) ? state(part->stage, root) : received_part(root);
  }
  Stored& place = place_of(root, 0);
  if (place.buffer.valid()) return {place.buffer};
  // A network's own is of the samples it goes on with: each micro-batch has one.
  place = {add_stored(own_name(root), value.type, BufferKind::state, value.state ? l_.micro_batches() : 1), root};
  if (const auto part = l_.network->state_parts.find(value.name); part != l_.network->state_parts.end())
    out_.buffers[place.buffer.index()].part = part->second;
  // An optimizer's and a network's own begin as zeros.
  if (value.state || !changed_[root.index()]) return {place.buffer};
  Buffer& buffer = out_.buffers[place.buffer.index()];
  buffer.has_content = true;
  buffer.content = value.content;
  return {place.buffer};
}

Operand DeviceBuffers::gradients(int stage) {
  const Reduction& reduction = l_.reductions[at(stage)];
  BufferId& buffer = gradients_[stage];
  const int64_t elements =
      reduction.keeps_share ? kept_elements(reduction, l_.member_of(stage, d_)) : reduction.elements;
  if (!buffer.valid() && elements > 0) {
    const auto is_here = [&](const Tied& tied) { return std::ranges::find(tied.stages, stage) != tied.stages.end(); };
    const bool leaves = (!reduction.buckets.empty() && !reduction.keeps_share) || std::ranges::any_of(l_.tied, is_here);
    buffer = add_stored(unique_name(fmt::format("gradients_{}", stage)), {DType::f32, {elements}},
                        leaves ? BufferKind::comm : BufferKind::stash, 1);
  }
  return {buffer, 0, elements};
}

Operand DeviceBuffers::in_bucket_buffer(int stage, size_t bucket) {
  const Reduction& reduction = l_.reductions[at(stage)];
  const size_t which = bucket_buffer_of(bucket);
  BufferId& buffer = bucket_buffers_[{stage, which}];
  if (!buffer.valid()) {
    const TensorType type{DType::f32, {bucket_buffer_elements(reduction, which)}};
    buffer = add_stored(unique_name(fmt::format("bucket_{}_{}", stage, which)), type, BufferKind::comm, 1);
  }
  return {buffer, 0, value_elements(reduction.buckets[bucket].reduce.collective)};
}

Operand DeviceBuffers::in_bucket_buffer(int stage, ValueId sum) {
  const Reduction& reduction = l_.reductions[at(stage)];
  const int64_t begin = reduction.begin.at(sum);
  const size_t bucket = bucket_of(reduction, begin);
  const int64_t there = begin - reduction.buckets[bucket].begin;
  return {in_bucket_buffer(stage, bucket).buffer, there, there + element_count(g_.value(sum).type.shape)};
}

std::optional<Operand> DeviceBuffers::gathered(int stage, Phase phase, ValueId weight) {
  if (groups_of(l_, stage, phase).empty()) return std::nullopt;
  const int64_t elements =
      gathered_.valid() ? element_count(out_.buffer(gathered_).type.shape) : gathered_elements(l_, d_);
  const std::optional<GatheredPlace> place = gathered_place(l_, d_, stage, phase, weight, elements);
  if (!place) return std::nullopt;
  if (!gathered_.valid())
    gathered_ = add_stored(unique_name("gathered"), {DType::f32, {elements}}, BufferKind::comm, 1);
  return Operand{gathered_, place->begin, place->end};
}

Operand DeviceBuffers::received_part(ValueId sum) {
  BufferId& buffer = parts_[sum];
  if (!buffer.valid()) buffer = add_stored(unique_name(g_.value(sum).name), g_.value(sum).type, BufferKind::comm, 1);
  return {buffer};
}

BufferId DeviceBuffers::squares(int stage) {
  BufferId& buffer = squares_[stage];
  if (!buffer.valid()) {
    const auto count = static_cast<int64_t>(l_.clipping->sums[at(stage)].nodes.size());
    buffer = add_stored(unique_name(fmt::format("squares_{}", stage)), {DType::f64, {count}}, BufferKind::comm, 1);
  }
  return buffer;
}

std::optional<Operand> DeviceBuffers::sum_of_squares(ValueId value) {
  if (!l_.clipping || l_.phase_of(value) != NodePhase::step) return std::nullopt;
  const std::vector<Clipping::Sums>& sums = l_.clipping->sums;
  for (size_t s = 0; s < sums.size(); ++s) {
    const auto found = sums[s].place.find(value);
    if (found != sums[s].place.end()) return Operand{squares(static_cast<int>(s)), found->second, found->second + 1};
  }
  return std::nullopt;
}

// Under which of its types a message is stored here: that of its first reader on this device.
ValueId DeviceBuffers::received_as(const Flow& flow) const {
  for (const size_t n : l_.graph->readers[flow.root.index()]) {
    const int stage = l_.nodes.of_node[n];
    if (stage == flow.producer || !runs_here(stage)) continue;
    for (const ValueId value : reads_of(g_.nodes[n])) {
      if (l_.graph->root[value.index()] == flow.root) return value;
    }
  }
  return flow.root;
}

// "conv1_f16".
Stored DeviceBuffers::converted(const Flow& flow) {
  const auto [place, is_new] = converted_.try_emplace(flow.root);
  if (is_new) {
    const Value& value = g_.value(flow.root);
    const TensorType type =
        with_block(traveling(value.type, flow.travels_as), layouts_[at(l_.flow_of[flow.root.index()])]);
    const std::string name = unique_name(fmt::format("{}_{}", value.name, name_of(flow.travels_as)));
    place->second = {add_open(name, type, l_.training == nullptr ? instances_of(flow) : 1), flow.root};
  }
  return place->second;
}

BufferId DeviceBuffers::message(const Flow& flow) {
  if (l_.is_converted(flow)) return converted(flow).buffer;
  const int block = layouts_[at(l_.flow_of[flow.root.index()])];
  if (const Stored& known = place_of(flow.root, block); known.buffer.valid()) return known.buffer;
  return storage(flow.root, block, block > 0 ? flow.root : received_as(flow)).buffer;
}

BufferId DeviceBuffers::add_message(const std::string& name, const TensorType& type) {
  return add_stored(unique_name(name), type, BufferKind::comm, 1);
}

BufferId DeviceBuffers::workspace(Bytes needed) {
  if (!workspace_.valid()) workspace_ = add_stored(unique_name("workspace"), {DType::f32, {0}}, BufferKind::scratch, 1);
  Buffer& buffer = out_.buffers[workspace_.index()];
  buffer.bytes = std::max(buffer.bytes, needed);
  return workspace_;
}

BufferId DeviceBuffers::known(BufferId& buffer, std::string_view name, BufferKind kind) {
  if (!buffer.valid()) buffer = add_stored(unique_name(std::string(name)), {DType::f32, {1}}, kind, 1);
  return buffer;
}

// ---- Uses

void DeviceBuffers::note(const Segment& segment, const Instr& instr, int64_t moment) {
  const int group = segment.stage < 0 ? -1 : segment.stage * 8 + static_cast<int>(segment.phase);
  const auto use = [&](const Operand& operand) {
    if (!operand.buffer.valid()) return;
    Use& of = uses_[out_.root(operand.buffer).index()];
    if (group >= 0) {
      of.shared = of.shared || (of.group >= 0 && of.group != group);
      of.group = group;
    }
    of.first = std::min(of.first, moment);
    of.last = std::max(of.last, moment);
    of.transferred = of.transferred || is_transfer(instr.opcode);
  };
  for (const Operand& operand : instr.reads) use(operand);
  for (const Operand& operand : instr.writes) use(operand);
}

void DeviceBuffers::settle() {
  if (workspace_.valid()) {
    constexpr int64_t element = 4;  // f32
    Buffer& buffer = out_.buffers[workspace_.index()];
    buffer.type.shape = {(buffer.bytes.value() + element - 1) / element};
    buffer.bytes = size_of(buffer.type);
  }
  for (size_t b = 0; b < uses_.size(); ++b) {
    if (!uses_[b].open) continue;
    out_.buffers[b].kind = uses_[b].transferred ? BufferKind::comm
                           : uses_[b].shared    ? BufferKind::stash
                                                : BufferKind::scratch;
  }
}

std::vector<std::vector<ScratchLifetime>> DeviceBuffers::lifetimes() const {
  std::map<int, std::vector<ScratchLifetime>> of_group;
  for (size_t b = 0; b < uses_.size(); ++b) {
    const Use& use = uses_[b];
    if (use.open && out_.buffers[b].kind == BufferKind::scratch && use.group >= 0)
      of_group[use.group].push_back({BufferId(b), use.first, use.last});
  }
  std::vector<std::vector<ScratchLifetime>> all;
  for (auto& [group, lives] : of_group) all.push_back(std::move(lives));
  return all;
}

bool DeviceBuffers::has_instances(BufferId buffer) const {
  if (buffer == credit_in_ || buffer == credit_out_ || buffer == token_) return true;
  return uses_[buffer.index()].open && out_.buffer(buffer).kind != BufferKind::scratch;
}

}  // namespace nlsplit::inline compiler
