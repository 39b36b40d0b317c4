#include "program/lower_buffers.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/layout.h"

namespace nlsplit {
namespace {

std::string layout_suffix(int block) { return block == 0 ? "_rows" : fmt::format("_c{}", block); }

}  // namespace

DeviceBuffers::DeviceBuffers(const LowerInput& input, const std::vector<OrderedSlot>& order, int d, DeviceProgram& out)
    : in_(input),
      g_(input.graph->graph),
      placement_(*input.placement),
      flows_(*input.flows),
      d_(d),
      out_(out),
      transferred_(flows_.size(), false),
      row_major_(g_.values.size()),
      blocked_(g_.values.size()),
      named_(g_.values.size(), false) {
  const auto note_transfer = [&](const Port& port) {
    if (at(port.flow) < flows_.size()) transferred_[at(port.flow)] = true;  // else a credit
  };
  for (const OrderedSlot& slot : order) {
    for (const Port& port : slot.recvs) note_transfer(port);
    for (const Port& port : slot.sends) note_transfer(port);
    const bool own = slot.stage >= 0 && slot.stage < placement_.stages;
    if (own && !runs_here(slot.stage)) stages_here_.push_back(slot.stage);
  }
}

bool DeviceBuffers::runs_here(int stage) const {
  return std::find(stages_here_.begin(), stages_here_.end(), stage) != stages_here_.end();
}

// How many micro-batches of a flow pass through this device.
int DeviceBuffers::uses_of(const Flow& flow) const {
  int uses = 0;
  for (int m = 0; m < placement_.micro_batches; ++m) {
    const bool here = placement_.device_of(flow.producer, m) == d_ ||
                      std::any_of(flow.consumers.begin(), flow.consumers.end(),
                                  [&](int stage) { return placement_.device_of(stage, m) == d_; });
    if (here) ++uses;
  }
  return uses;
}

// A value's first buffer has its name, which no other value has, nor any name that is made up.
std::string DeviceBuffers::free_name(ValueId value) {
  return named_[value.index()] ? unique_name(g_.value(value).name) : own_name(value);
}

std::string DeviceBuffers::own_name(ValueId value) {
  named_[value.index()] = true;
  return g_.value(value).name;
}

std::string DeviceBuffers::unique_name(const std::string& wanted) const {
  const auto taken = [&](const std::string& name) {
    return std::any_of(out_.buffers.begin(), out_.buffers.end(),
                       [&](const Buffer& buffer) { return buffer.name == name; }) ||
           std::any_of(g_.values.begin(), g_.values.end(), [&](const Value& value) { return value.name == name; });
  };
  std::string name = wanted;
  for (int i = 2; taken(name); ++i) name = fmt::format("{}_{}", wanted, i);
  return name;
}

BufferId DeviceBuffers::add_buffer(Buffer buffer) {
  out_.buffers.push_back(std::move(buffer));
  return BufferId(out_.buffers.size() - 1);
}

BufferId DeviceBuffers::add_stored(const std::string& name, const TensorType& type, BufferKind kind, int banks) {
  Buffer buffer;
  buffer.name = name;
  buffer.type = type;
  buffer.kind = kind;
  buffer.bytes = size_of(type);
  buffer.banks = banks;
  return add_buffer(std::move(buffer));
}

void DeviceBuffers::add_inputs() {
  for (const ValueId value : g_.inputs) {
    const TensorType& type = g_.value(value).type;
    place_of(value, 0) = {add_stored(own_name(value), type, BufferKind::input, placement_.micro_batches), value};
  }
}

void DeviceBuffers::add_outputs() {
  for (size_t i = 0; i < g_.outputs.size(); ++i) {
    const ValueId value = g_.outputs[i];
    const Value& output = g_.value(value);
    const ValueId root = in_.graph->root[value.index()];
    const bool copied = std::find(in_.copied_outputs.begin(), in_.copied_outputs.end(), i) != in_.copied_outputs.end();
    const BufferId buffer = add_stored(free_name(value), output.type, BufferKind::output, placement_.micro_batches);
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
  const int f = in_.flow_of[root.index()];
  BufferKind kind = BufferKind::scratch;
  int banks = 1;
  if (f >= 0 && in_.flow_block[at(f)] == block) {
    kind = transferred_[at(f)] ? BufferKind::comm : BufferKind::stash;
    banks = uses_of(flows_[at(f)]);
    // As many as the inputs have where they are cut: a device that shares the work must not wait for a message to
    // leave before it computes on.
    const bool cut_here = d_ == placement_.source && in_.graph->is_input_part(root);
    if (!cut_here) banks = std::min(in_.banks, banks);
  }
  const std::string name = as == root ? layout_name(root, block) : free_name(as);
  place = {add_stored(name, with_block(g_.value(as).type, block), kind, banks), as};
  return place;
}

const Stored& DeviceBuffers::copy_of_stage(int stage, ValueId root, int block) {
  const auto [copy, is_new] = copies_of_stage_.try_emplace({stage, root, block});
  if (is_new) {
    const std::string name = unique_name(g_.value(root).name + layout_suffix(block));
    copy->second = {add_stored(name, with_block(g_.value(root).type, block), BufferKind::scratch, 1), root};
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

BufferId DeviceBuffers::weight(ValueId value, const std::string& kernel, size_t input, Bytes packed) {
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
ValueId DeviceBuffers::received_as(const Flow& flow) const {
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

BufferId DeviceBuffers::message(const Flow& flow) {
  const int block = in_.flow_block[at(in_.flow_of[flow.root.index()])];
  if (const Stored& known = place_of(flow.root, block); known.buffer.valid()) return known.buffer;
  return storage(flow.root, block, block > 0 ? flow.root : received_as(flow)).buffer;
}

BufferId DeviceBuffers::workspace(Bytes needed) {
  if (!workspace_.valid()) workspace_ = add_stored(unique_name("workspace"), {DType::f32, {0}}, BufferKind::scratch, 1);
  Buffer& buffer = out_.buffers[workspace_.index()];
  buffer.bytes = std::max(buffer.bytes, needed);
  return workspace_;
}

void DeviceBuffers::finish_workspace() {
  if (!workspace_.valid()) return;
  constexpr int64_t element = 4;  // f32
  Buffer& buffer = out_.buffers[workspace_.index()];
  buffer.type.shape = {(buffer.bytes.value() + element - 1) / element};
  buffer.bytes = size_of(buffer.type);
}

BufferId DeviceBuffers::known(BufferId& buffer, std::string_view name, BufferKind kind) {
  if (!buffer.valid()) buffer = add_stored(unique_name(std::string(name)), {DType::f32, {1}}, kind, 1);
  return buffer;
}

}  // namespace nlsplit
