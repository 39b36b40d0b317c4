// Pass `exchange`: every device's slots, what source and sink do between them, and the messages of each slot, in an
// order that both ends of every FIFO agree on. Messages are taken to pass right behind the slot that sends them in the
// execution that play() found.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "compile/gathers.h"
#include "compile/lowering.h"

namespace nlsplit::inline compiler {
namespace {

constexpr size_t no_slot = std::numeric_limits<size_t>::max();

// At the sink the first output of a root is the root's storage. Others of the same root, and inputs that are outputs
// where source and sink are one device, are copied.
std::vector<size_t> find_copied_outputs(const Lowering& l) {
  const KernelGraph& graph = *l.graph;
  std::vector<size_t> copied;
  std::vector<bool> stored(graph.graph.values.size(), false);
  for (size_t i = 0; i < graph.graph.outputs.size(); ++i) {
    const ValueId root = graph.root[graph.graph.outputs[i].index()];
    const bool held = graph.graph.value(root).kind == ValueKind::input && l.source == l.sink;
    if (held || stored[root.index()])
      copied.push_back(i);
    else
      stored[root.index()] = true;
  }
  return copied;
}

// ---- Slots of source and sink between those of the table

struct Between {
  size_t before = 0;  // slot of the table, on its device
  double when = 0;
  int stage = 0, micro_batch = 0;
};

class Slots {
 public:
  Slots(const Lowering& lowering, const Played& played) : l_(lowering), played_(played) {}

  std::vector<std::vector<OrderedSlot>> all() {
    std::vector<std::vector<Between>> between(l_.program.devices.size());
    for (int m = 0; m < l_.micro_batches(); ++m) {
      if (const double when = played_.source[at(m)]; when == when)
        between[at(l_.source)].push_back({ends_after(when), when, source_stage, m});
      if (sink_acts(m)) between[at(l_.sink)].push_back(behind_gathers({sink_place(m), sink_time(m), l_.stages(), m}));
    }
    std::vector<std::vector<OrderedSlot>> slots(between.size());
    for (size_t d = 0; d < between.size(); ++d) slots[d] = merged(d, between[d]);
    return slots;
  }

 private:
  const std::vector<ScheduledSlot>& of_device(int d) const {
    static const std::vector<ScheduledSlot> none;  // an endpoint's own work
    return at(d) < l_.table.devices.size() ? l_.table.devices[at(d)] : none;
  }

  // The source's first slot that ends later.
  size_t ends_after(double when) const {
    const size_t count = of_device(l_.source).size();
    size_t i = 0;
    while (i < count && !(played_.ends[at(l_.source)][i] > when)) ++i;
    return i;
  }

  bool sink_acts(int m) const {
    if (!l_.copied_outputs.empty()) return true;
    return std::ranges::any_of(l_.flows, [&](const Flow& flow) {
      if (flow.consumers.back() != l_.stages() || l_.device_of(flow.producer, m) == l_.sink) return false;
      return std::none_of(flow.consumers.begin(), flow.consumers.end() - 1,
                          [&](int c) { return l_.device_of(c, m) == l_.sink; });
    });
  }
  double sink_time(int m) const {
    double when = 0;
    for (const Flow& flow : l_.flows) {
      if (flow.consumers.back() == l_.stages() && flow.producer != source_stage)
        when = std::max(when, played_.forward_end[at(flow.producer)][at(m)]);
    }
    return when;
  }
  // When the last message a slot waits for was sent.
  double fed(const ScheduledSlot& slot) const {
    const std::vector<int>& needs = l_.needs[at(slot.stage)];
    double last = 0;
    for (const int before : needs) last = std::max(last, played_.forward_end[at(before)][at(slot.micro_batch)]);
    if (!needs.empty()) return last;
    const double sent = played_.source[at(slot.micro_batch)];
    return sent == sent ? sent : played_.forward_start[at(slot.stage)][at(slot.micro_batch)];
  }
  // Whether all that a slot needs is on its device from the beginning.
  bool is_fed_here(const ScheduledSlot& slot) const {
    const double sent = played_.source[at(slot.micro_batch)];
    return l_.needs[at(slot.stage)].empty() && !(sent == sent);
  }
  // Behind slots that are over by then; in inference also behind those whose last message was sent before, and those
  // that need none and start then: the sink's message is still on its way. At equal times a source sends after stages
  // did.
  size_t sink_place(int m) const {
    const double when = sink_time(m);
    const std::vector<ScheduledSlot>& own = of_device(l_.sink);
    size_t i = own.size();
    const auto before = [&](size_t slot) {
      if (played_.ends[at(l_.sink)][slot] <= when) return true;
      if (l_.training != nullptr) return false;
      return is_fed_here(own[slot]) ? fed(own[slot]) <= when : fed(own[slot]) < when;
    };
    while (i > 0 && !before(i - 1)) --i;
    return i;
  }

  // Where replicas gather weights in each slot the sink may be one of them. Then it collects behind its own slot that
  // gathers with the one that made the result: its messages come before the result.
  Between behind_gathers(Between slot) const {
    for (const Flow& flow : l_.flows) {
      if (flow.consumers.back() != l_.stages()) continue;
      const std::optional<size_t> own = gathers_with(l_, l_.sink, flow.producer, slot.micro_batch);
      if (!own) continue;
      slot.before = std::max(slot.before, *own + 1);
      slot.when = std::max(slot.when, played_.ends[at(l_.sink)][*own]);
    }
    return slot;
  }

  std::vector<OrderedSlot> merged(size_t d, std::vector<Between>& extra) const {
    std::ranges::stable_sort(extra, [](const Between& a, const Between& b) {
      return a.before != b.before ? a.before < b.before : a.when < b.when;
    });
    const std::vector<ScheduledSlot>& own = of_device(static_cast<int>(d));
    std::vector<OrderedSlot> slots;
    slots.reserve(own.size() + extra.size());
    size_t e = 0;
    double joint_until = -std::numeric_limits<double>::infinity();  // what is placed between I and W comes behind both
    for (size_t i = 0; i <= own.size(); ++i) {
      for (; e < extra.size() && extra[e].before == i; ++e)
        slots.push_back(
            {extra[e].stage, Phase::forward, extra[e].micro_batch, std::max(extra[e].when, joint_until), {}, {}, {}});
      if (i == own.size()) break;
      const bool joint = own[i].phase != Phase::step && l_.joint[at(own[i].stage)];
      if (joint && own[i].phase == Phase::weight_gradient) continue;  // in its I, which is the one before
      const bool both = joint && own[i].phase == Phase::input_gradient;
      const double time = played_.ends[d][both ? i + 1 : i];
      if (both) joint_until = time;
      slots.push_back(
          {own[i].stage, both ? Phase::weight_gradient : own[i].phase, own[i].micro_batch, time, {}, {}, {}});
      slots.back().joint = both;
    }
    return slots;
  }

  const Lowering& l_;
  const Played& played_;
};

// ---- Messages

struct Message {
  int flow = 0;  // reduction: of gradients, or of steps that wait for each other; received within its step
  int micro_batch = 0;
  double sent_at = 0;
  size_t needed = 0;    // slot of the receiver that first needs it
  size_t received = 0;  // slot before which it must be received, so that both ends have the same order
};
constexpr int reduction = -1;

class Messages {
 public:
  explicit Messages(Lowering& lowering)
      : l_(lowering),
        devices_(lowering.slots.size()),
        fifos_(devices_ * devices_),
        made_by_(at(lowering.stages()) + 1),
        slot_of_(phase_count() * (at(lowering.stages()) + 1) * at(lowering.micro_batches()), no_slot) {
    for (size_t f = 0; f < l_.flows.size(); ++f) made_by_[at(l_.flows[f].producer + 1)].push_back(static_cast<int>(f));
    for (const std::vector<OrderedSlot>& order : l_.slots) {
      for (size_t i = 0; i < order.size(); ++i) {
        if (order[i].stage < 0 || order[i].phase == Phase::step) continue;
        slot_of_[index_of(order[i].stage, order[i].phase, order[i].micro_batch)] = i;
        if (order[i].joint) slot_of_[index_of(order[i].stage, Phase::input_gradient, order[i].micro_batch)] = i;
      }
    }
  }

  Status run() {
    for (size_t d = 0; d < devices_; ++d) {
      for (OrderedSlot& slot : l_.slots[d]) {
        if (slot.phase == Phase::step) step(static_cast<int>(d), slot);
        gather_weights(static_cast<int>(d), slot);
        if (slot.reduces) reduce(static_cast<int>(d), slot, slot.stage);  // before what it sends behind its work
        if (slot.phase != Phase::step && slot.stage != l_.stages()) send(static_cast<int>(d), slot);
      }
    }
    for (size_t to = 0; to < devices_; ++to) RETURN_IF_ERROR(receive(to));
    return ok_status();
  }

 private:
  size_t phase_count() const { return l_.training == nullptr ? 1 : static_cast<size_t>(Phase::step); }
  size_t index_of(int stage, Phase phase, int m) const {
    const size_t p = phase_count() == 1 ? 0 : static_cast<size_t>(phase);
    return (p * (at(l_.stages()) + 1) + at(stage)) * at(l_.micro_batches()) + at(m);
  }
  std::vector<Message>& fifo(int from, int to) {
    std::vector<Message>& messages = fifos_[at(from) * devices_ + at(to)];
    if (messages.empty()) messages.reserve(at(l_.micro_batches()));
    return messages;
  }

  // What a slot has made, in the order of the flows. A gradient leaves with I, or with W of a backward in one piece.
  void send(int d, OrderedSlot& slot) {
    const bool forward = slot.phase == Phase::forward;
    const bool last_part = slot.phase == Phase::weight_gradient;
    const bool backward = (slot.phase == Phase::input_gradient || last_part) &&
                          (l_.whole[at(slot.stage)][at(slot.micro_batch)] != 0) == last_part;
    if (!forward && !backward) return;
    for (const int f : made_by_[at(slot.stage + 1)]) {
      if (l_.flows[at(f)].backward == backward) send_flow(d, slot, f);
    }
    const int enters = slot.micro_batch + l_.table.in_flight;
    if (l_.table.in_flight > 0 && slot.stage == l_.stages() - 1 && enters < l_.micro_batches()) {
      const int to = l_.device_of(0, enters), credit = static_cast<int>(l_.flows.size());
      if (to == d) return;
      slot.sends.push_back({credit, to});
      fifo(d, to).push_back({credit, enters, slot.time, slot_of_[index_of(0, Phase::forward, enters)], 0});
    }
  }

  void send_flow(int d, OrderedSlot& slot, int f) {
    const Flow& flow = l_.flows[at(f)];
    const Phase phase = flow.backward ? Phase::input_gradient : Phase::forward;  // who takes it
    const auto count = flow.consumers.size();
    sent_.clear();
    for (size_t i = 0; i < count; ++i) {  // first to those that need it first
      const int c = flow.consumers[flow.backward ? count - 1 - i : i];
      const int to = l_.device_of(c, slot.micro_batch);
      if (to == d || std::ranges::find(sent_, to) != sent_.end()) continue;
      sent_.push_back(to);
      slot.sends.push_back({f, to});
      size_t first = no_slot;
      for (const int other : flow.consumers) {
        if (l_.device_of(other, slot.micro_batch) == to)
          first = std::min(first, slot_of_[index_of(other, phase, slot.micro_batch)]);
      }
      CHECK(first != no_slot, "a message that no slot receives");
      fifo(d, to).push_back({f, slot.micro_batch, slot.time, first, 0});
    }
  }

  // Where steps wait for each other a device's first step has the messages of all its steps.
  void step(int d, const OrderedSlot& slot) {
    if (!l_.steps_together()) {
      if (reduces_in(d, slot, slot.stage)) reduce(d, slot, slot.stage);
      return gather(d, slot);
    }
    if (slot.stage == l_.stages()) return;
    if (&slot == &*first_step(d)) begin_steps(d, slot);
    gather(d, slot);
  }
  void begin_steps(int d, const OrderedSlot& slot) {
    for (const OrderedSlot& other : l_.slots[at(d)]) {
      if (other.phase == Phase::step && other.stage < l_.stages() && reduces_in(d, slot, other.stage))
        reduce(d, slot, other.stage);
    }
    for (const Tied& tied : l_.tied) {
      for (const Tied::Part& part : tied.parts) {
        if (l_.group(part.stage)[0] != d) continue;
        for (const int to : l_.part_goes_to(tied, part)) send_in_step(d, slot, to);
      }
    }
    if (!l_.clipping) return;
    for (const Clipping::Part& part : l_.clipping->parts) {
      if (part.device != d) continue;
      for (const int to : part.to) send_in_step(d, slot, to);
    }
    if (l_.group(l_.clipping->stage)[0] != d) return;
    for (const int to : l_.factor_goes_to()) send_in_step(d, slot, to);
    if (l_.sends_norm()) send_in_step(d, slot, l_.sink);
  }
  std::vector<OrderedSlot>::const_iterator first_step(int d) const {
    return std::ranges::find(l_.slots[at(d)], Phase::step, &OrderedSlot::phase);
  }
  void send_in_step(int d, const OrderedSlot& slot, int to) {
    const auto needed = static_cast<size_t>(first_step(to) - l_.slots[at(to)].begin());
    fifo(d, to).push_back({reduction, -1, slot.time, needed, 0});
  }

  bool reduces_in(int d, const OrderedSlot& slot, int stage) const {
    return &slot == &l_.slots[at(d)][reduced_at(d, stage)];
  }
  // The slot in which a device reduces the gradients of a stage.
  size_t reduced_at(int d, int stage) const {
    const std::vector<OrderedSlot>& slots = l_.slots[at(d)];
    const auto early = std::ranges::find_if(slots, [&](const OrderedSlot& s) { return s.reduces && s.stage == stage; });
    if (early != slots.end()) return static_cast<size_t>(early - slots.begin());
    return l_.steps_together() ? static_cast<size_t>(first_step(d) - slots.begin()) : step_of(d, stage);
  }
  size_t step_of(int d, int stage) const {
    const std::vector<OrderedSlot>& slots = l_.slots[at(d)];
    const auto is_step = [&](const OrderedSlot& s) { return s.phase == Phase::step && s.stage == stage; };
    return static_cast<size_t>(std::ranges::find_if(slots, is_step) - slots.begin());
  }

  void reduce(int d, const OrderedSlot& slot, int stage) {
    sent_.clear();
    const bool each = l_.reductions[at(stage)].keeps_share;
    const size_t number = each ? number_of(d, slot) : 0;
    for (const Bucket& bucket : l_.reductions[at(stage)].buckets) {
      messages_of(d, slot, bucket.reduce,
                  [&](int to) { return each ? slot_with_number(to, slot, number) : reduced_at(to, stage); });
    }
  }

  // Of a device's slots of a stage and phase, in their order: where replicas do something in each of them, those with
  // one number belong together.
  static bool alike(const OrderedSlot& a, const OrderedSlot& b) { return a.stage == b.stage && a.phase == b.phase; }
  size_t number_of(int d, const OrderedSlot& slot) const {
    const OrderedSlot* first = l_.slots[at(d)].data();
    return static_cast<size_t>(
        std::count_if(first, &slot, [&](const OrderedSlot& other) { return alike(other, slot); }));
  }
  size_t slot_with_number(int d, const OrderedSlot& like, size_t number) const {
    const std::vector<OrderedSlot>& slots = l_.slots[at(d)];
    size_t i = 0;
    for (; !alike(slots[i], like) || number > 0; ++i) number -= alike(slots[i], like) ? 1 : 0;
    return i;
  }
  void gather_weights(int d, const OrderedSlot& slot) {
    const std::span<const Gathers::Group> groups = groups_of(l_, slot.stage, slot.phase);
    if (groups.empty()) return;
    sent_.clear();
    const size_t number = number_of(d, slot);
    for (const Gathers::Group& group : groups) {
      for (const ValueId weight : group.weights) {
        messages_of(d, slot, l_.gathers[at(slot.stage)].broadcasts.at(weight),
                    [&](int to) { return slot_with_number(to, slot, number); });
      }
    }
  }
  void gather(int d, const OrderedSlot& slot) {
    sent_.clear();
    for (const Bucket& bucket : l_.reductions[at(slot.stage)].buckets) {
      if (bucket.gather) messages_of(d, slot, *bucket.gather, [&](int to) { return step_of(to, slot.stage); });
    }
  }
  // One to each device stands for all: they are received within the slot that needs them.
  template <class Needed>
  void messages_of(int d, const OrderedSlot& slot, const ExpandedCollective& of, Needed needed) {
    const std::vector<int>& group = of.collective.group;
    const auto member = static_cast<size_t>(std::ranges::find(group, d) - group.begin());
    for (const std::vector<Piece>& round : of.of_members[member]) {
      for (const Piece& piece : round) {
        const int to = group[at(piece.to)];
        if (to == d || std::ranges::find(sent_, to) != sent_.end()) continue;
        sent_.push_back(to);
        fifo(d, to).push_back({reduction, -1, slot.time, needed(to), 0});
      }
    }
  }

  struct Ahead {
    size_t before;
    OrderedSlot slot;
  };

  // Adds every slot's recvs. A message that was sent before one that an earlier slot needs is received in a slot of its
  // own ahead, and so is all that comes before the messages of a reduction.
  Status receive(size_t to) {
    std::vector<OrderedSlot>& order = l_.slots[to];
    std::vector<Ahead> aheads;
    for (size_t from = 0; from < devices_; ++from) {
      std::vector<Message>& messages = fifos_[from * devices_ + to];
      size_t earliest = no_slot;
      for (size_t i = messages.size(); i-- > 0;) {
        messages[i].received = earliest = std::min(earliest, messages[i].needed);
        if (messages[i].flow == reduction && messages[i].received != messages[i].needed)
          return unsupported(
              fmt::format("schedule {}: a message overtakes what replicas send each other", l_.plan->schedule));
      }
      for (size_t begin = 0; begin < messages.size();) {
        size_t end = begin, own = begin;  // messages received at one slot; from `own` on they are all its own
        for (; end < messages.size() && messages[end].received == messages[begin].received; ++end) {
          if (messages[end].needed != messages[end].received || messages[end].flow == reduction) own = end + 1;
        }
        for (size_t i = begin; i < end; ++i) {
          const Message& message = messages[i];
          if (message.flow == reduction) continue;
          OrderedSlot& slot = order[message.received];
          const Port port{message.flow, static_cast<int>(from)};
          if (i >= own) {
            slot.recvs.push_back(port);
            if (l_.training != nullptr) slot.received_at.push_back(message.sent_at);
          } else {
            aheads.push_back(
                {message.received,
                 {ahead_stage, Phase::forward, message.micro_batch, slot.time, {port}, {message.sent_at}, {}}});
          }
        }
        begin = end;
      }
    }
    add_aheads(order, aheads);
    return ok_status();
  }

  static void add_aheads(std::vector<OrderedSlot>& order, std::vector<Ahead>& aheads) {
    if (aheads.empty()) return;
    std::ranges::stable_sort(aheads, {}, &Ahead::before);
    std::vector<OrderedSlot> merged;
    merged.reserve(order.size() + aheads.size());
    size_t a = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      for (; a < aheads.size() && aheads[a].before == i; ++a) merged.push_back(std::move(aheads[a].slot));
      merged.push_back(std::move(order[i]));
    }
    order = std::move(merged);
  }

  Lowering& l_;
  size_t devices_;
  std::vector<std::vector<Message>> fifos_;  // [from * devices + to]
  std::vector<std::vector<int>> made_by_;    // [stage + 1]: flows
  std::vector<size_t> slot_of_;              // see index_of
  std::vector<int> sent_;
};

// Where replicas keep shares of sums, every W reduces the gradients of its micro-batch.
void mark_reductions(Lowering& lowering) {
  for (std::vector<OrderedSlot>& slots : lowering.slots) {
    for (OrderedSlot& slot : slots) {
      const bool own = slot.stage >= 0 && slot.stage < lowering.stages();
      slot.reduces = own && slot.phase == Phase::weight_gradient && !lowering.reductions.empty() &&
                     lowering.reductions[at(slot.stage)].keeps_share;
    }
  }
}

// Gradients in several buckets are reduced during their last W, if there is only the sink's work between that W and the
// step. Then a device that waits in the W waits only for devices that also wait for it.
void find_early_reductions(Lowering& lowering) {
  const auto one_stage = [&](int device) {
    const auto steps = [](const OrderedSlot& slot) { return slot.phase == Phase::step; };
    return std::ranges::count_if(lowering.slots[at(device)], steps) == 1;
  };
  for (int s = 0; s < lowering.stages(); ++s) {
    if (lowering.reductions[at(s)].buckets.size() < 2 || lowering.reductions[at(s)].keeps_share) continue;
    // Where all stages of a device are reduced together, replicas of several would have to agree on their order.
    if (lowering.steps_together() && !std::ranges::all_of(lowering.group(s), one_stage)) continue;
    for (const int device : lowering.group(s)) {
      OrderedSlot* last = nullptr;
      bool waits = false;  // for something between
      for (OrderedSlot& slot : lowering.slots[at(device)]) {
        if (slot.stage == s && slot.phase == Phase::weight_gradient) {
          last = &slot;
          waits = false;
        } else if (slot.stage == s && slot.phase == Phase::step) {
          break;
        } else if (slot.stage != lowering.stages()) {
          waits = true;
        }
      }
      CHECK(last != nullptr, "a device that reduces what it has not made");
      const bool whole = lowering.whole[at(s)][at(last->micro_batch)] != 0;  // its gradient leaves behind W
      last->reduces = !waits && (!whole || last->joint);
    }
  }
}

}  // namespace

Status exchange(Lowering& lowering) {
  lowering.copied_outputs = find_copied_outputs(lowering);
  ASSIGN_OR_RETURN(const Played played, play(lowering));
  lowering.slots = Slots(lowering, played).all();
  if (lowering.sends_norm()) {  // behind all else that the sink's device does
    double last = 0;
    for (const std::vector<OrderedSlot>& slots : lowering.slots) {
      for (const OrderedSlot& slot : slots) last = std::max(last, slot.time);
    }
    lowering.slots[at(lowering.sink)].push_back({lowering.stages(), Phase::step, 0, last + 1, {}, {}, {}});
  }
  mark_reductions(lowering);
  std::vector<std::vector<OrderedSlot>> late;
  if (lowering.training != nullptr) late = lowering.slots;
  find_early_reductions(lowering);
  Status sound = Messages(lowering).run();
  if (sound.ok() || lowering.training == nullptr) return sound;
  lowering.slots = std::move(late);  // a message would overtake an early reduction
  return Messages(lowering).run();
}

}  // namespace nlsplit::inline compiler
