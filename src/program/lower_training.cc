// The order of a training step: the table's slots, what the source sends between them, and the messages of each slot.
//
// The table is first played through in time, every slot as soon as its device is free and its data is there. That gives
// a sequence of all slots in which each comes behind everything it needs. Messages are taken to pass in that sequence
// right behind the slot that sends them, and a bank is held from then on: so the sequence is a possible execution, in
// which every message passes at once, and what is lowered from it cannot deadlock.
#include "program/lower_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <queue>

namespace nlsplit {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }

std::string slot_text(const ScheduledSlot& slot) {
  return slot.phase == Phase::step
             ? fmt::format("the step of stage {}", slot.stage)
             : fmt::format("stage {} {} of micro-batch {}", slot.stage, name_of(slot.phase), slot.micro_batch);
}

// Which phases every micro-batch goes through.
constexpr Phase work_phases[] = {Phase::forward, Phase::input_gradient, Phase::weight_gradient};

class Table {
 public:
  Table(const TrainingInput& input, TrainingOrders& orders) : in_(input), orders_(orders) {}

  // The table is checked; recomputation before every I unless the table says where; and no step where there is nothing
  // to update.
  Result<std::vector<std::vector<ScheduledSlot>>> complete() {
    const auto micro_batches = at(in_.plan->micro_batches);
    const size_t stages = in_.plan->stages.size();
    orders_.stage_device.assign(stages, std::vector<int>(micro_batches, -1));
    orders_.rings.assign(stages, {});
    const bool recompute = in_.graph->training->options.recompute;
    bool has_recompute = false;
    if (in_.table->devices.size() > at(in_.schedule->devices)) return wrong("it has more devices than the plan");
    for (size_t d = 0; d < in_.table->devices.size(); ++d) {
      for (const ScheduledSlot& slot : in_.table->devices[d]) {
        RETURN_IF_ERROR(check_slot(static_cast<int>(d), slot));
        has_recompute = has_recompute || slot.phase == Phase::recompute;
      }
    }
    if (has_recompute && !recompute)
      return wrong("it recomputes, but the workload keeps all activations (recompute: full)");
    for (size_t s = 0; s < stages; ++s) {
      for (size_t m = 0; m < micro_batches; ++m) {
        for (const Phase phase : work_phases) {
          if (!seen(static_cast<int>(s), phase, static_cast<int>(m)))
            return wrong(fmt::format("micro-batch {} never runs through stage {} {}", m, s, name_of(phase)));
        }
        if (has_recompute && !seen(static_cast<int>(s), Phase::recompute, static_cast<int>(m)))
          return wrong(fmt::format("stage {} recomputes other micro-batches, but not {}", s, m));
      }
      for (const int device : in_.schedule->stage_devices[s]) {
        const std::vector<int>& of = orders_.stage_device[s];
        if (std::ranges::find(of, device) == of.end()) continue;  // no micro-batch came here: nothing to update
        const auto has_step = [&](const ScheduledSlot& slot) {
          return slot.stage == static_cast<int>(s) && slot.phase == Phase::step;
        };
        if (at(device) >= in_.table->devices.size() || std::ranges::none_of(in_.table->devices[at(device)], has_step))
          return wrong(fmt::format("device {} never steps stage {}", device, s));
        orders_.rings[s].push_back(device);
      }
    }
    std::vector<std::vector<ScheduledSlot>> complete(at(in_.schedule->devices));
    for (size_t d = 0; d < in_.table->devices.size(); ++d) {
      for (const ScheduledSlot& slot : in_.table->devices[d]) {
        const std::vector<int>& ring = orders_.rings[at(slot.stage)];
        if (slot.phase == Phase::step && std::ranges::find(ring, static_cast<int>(d)) == ring.end()) continue;
        if (recompute && !has_recompute && slot.phase == Phase::input_gradient)
          complete[d].push_back({slot.stage, Phase::recompute, slot.micro_batch});
        complete[d].push_back({slot.stage, slot.phase, slot.phase == Phase::step ? 0 : slot.micro_batch});
      }
    }
    return complete;
  }

 private:
  Error wrong(const std::string& why) const {
    return invalid_input(fmt::format("schedule {}: {}", in_.plan->schedule, why));
  }

  bool seen(int stage, Phase phase, int m) const {
    const size_t index = (at(stage) * phase_count + static_cast<size_t>(phase)) * at(in_.plan->micro_batches) + at(m);
    return index < seen_.size() && seen_[index];
  }

  Status check_slot(int d, const ScheduledSlot& slot) {
    const size_t stages = in_.plan->stages.size();
    if (slot.stage < 0 || at(slot.stage) >= stages)
      return wrong(fmt::format("device {} runs stage {}; the plan has {}", d, slot.stage, stages));
    const std::vector<int>& devices = in_.schedule->stage_devices[at(slot.stage)];
    if (std::ranges::find(devices, d) == devices.end())
      return wrong(fmt::format("device {} runs {}, but does not have that stage", d, slot_text(slot)));
    if (slot.phase == Phase::init) return wrong("it has an init slot, which is no work of a micro-batch");
    if (slot.phase == Phase::step) {
      std::pair<int, int> step{d, slot.stage};
      if (std::ranges::find(steps_, step) != steps_.end())
        return wrong(fmt::format("device {} runs {} twice", d, slot_text(slot)));
      steps_.push_back(step);
      return ok_status();
    }
    if (slot.micro_batch < 0 || slot.micro_batch >= in_.plan->micro_batches)
      return wrong(fmt::format("device {} runs {}; there are {}", d, slot_text(slot), in_.plan->micro_batches));
    if (seen_.empty()) seen_.assign(stages * phase_count * at(in_.plan->micro_batches), false);
    const size_t index =
        (at(slot.stage) * phase_count + static_cast<size_t>(slot.phase)) * at(in_.plan->micro_batches) +
        at(slot.micro_batch);
    if (seen_[index]) return wrong(fmt::format("{} runs twice, the second time on device {}", slot_text(slot), d));
    seen_[index] = true;
    int& device = orders_.stage_device[at(slot.stage)][at(slot.micro_batch)];
    if (device >= 0 && device != d)
      return wrong(
          fmt::format("{} runs on device {}, but another phase of it on device {}", slot_text(slot), d, device));
    device = d;
    return ok_status();
  }

  static constexpr size_t phase_count = static_cast<size_t>(Phase::step) + 1;
  const TrainingInput& in_;
  TrainingOrders& orders_;
  std::vector<bool> seen_;  // [stage][phase][micro-batch]
  std::vector<std::pair<int, int>> steps_;
};

// The sequence. Slots are numbered in the order in which they end; of those that end together the ones that free
// memory go first.
class Play {
 public:
  Play(const TrainingInput& input, const TrainingOrders& orders, const std::vector<std::vector<ScheduledSlot>>& table)
      : in_(input), orders_(orders), table_(table) {
    const std::vector<bool> none(at(input.plan->micro_batches), false);
    for (auto& phase : done_) phase.assign(input.plan->stages.size(), none);
    next_.assign(table.size(), 0);
    busy_.assign(table.size(), false);
    number.resize(table.size());
  }

  Status run() {
    size_t left = 0;
    for (size_t d = 0; d < table_.size(); ++d) {
      number[d].assign(table_[d].size(), 0);
      left += table_[d].size();
    }
    for (size_t d = 0; d < table_.size(); ++d) start(d, 0);
    int count = 0;
    while (!running_.empty()) {
      const Running slot = running_.top();
      running_.pop();
      number[slot.device][slot.index] = ++count;
      finish(slot);
      --left;
    }
    return left == 0 ? ok_status() : waiting();
  }

  std::vector<std::vector<int>> number;  // [device][slot of the table], from 1

 private:
  struct Running {
    double finish;
    int frees;  // smaller: earlier among equals
    size_t device, index;
    bool operator<(const Running& other) const {  // of a priority queue: the largest comes first
      return std::tie(finish, frees, device, index) > std::tie(other.finish, other.frees, other.device, other.index);
    }
  };

  static constexpr size_t phase_index(Phase phase) { return static_cast<size_t>(phase); }
  bool done(int stage, Phase phase, int m) const { return done_[phase_index(phase)][at(stage)][at(m)]; }

  bool ready(size_t d, const ScheduledSlot& slot) const {
    const int last = static_cast<int>(in_.plan->stages.size()) - 1;
    switch (slot.phase) {
      case Phase::forward:
        return slot.stage == 0 || done(slot.stage - 1, Phase::forward, slot.micro_batch);
      case Phase::recompute:
        return done(slot.stage, Phase::forward, slot.micro_batch);
      case Phase::input_gradient:
        return done(slot.stage, Phase::forward, slot.micro_batch) &&
               (slot.stage == last || done(slot.stage + 1, Phase::input_gradient, slot.micro_batch)) &&
               (!in_.graph->training->options.recompute || done(slot.stage, Phase::recompute, slot.micro_batch));
      case Phase::weight_gradient:
        return done(slot.stage, Phase::input_gradient, slot.micro_batch);
      case Phase::step:
        return steps_ready(d, slot.stage);
      case Phase::init:
        return true;
    }
    CHECK(false, "unknown phase");
  }

  // All who reduce its gradients have come to their step, having nothing of the stage left to do.
  bool steps_ready(size_t d, int stage) const {
    for (const int other : orders_.rings[at(stage)]) {
      const size_t next = next_[at(other)];
      const bool there =
          at(other) == d || (!busy_[at(other)] && next < table_[at(other)].size() &&
                             table_[at(other)][next].stage == stage && table_[at(other)][next].phase == Phase::step);
      if (!there && !(stepped(other, stage))) return false;
      for (size_t m = 0; m < orders_.stage_device[at(stage)].size(); ++m) {
        if (orders_.stage_device[at(stage)][m] == other && !done(stage, Phase::weight_gradient, static_cast<int>(m)))
          return false;
      }
    }
    return true;
  }
  bool stepped(int device, int stage) const {
    return std::ranges::find(stepping_, std::pair(device, stage)) != stepping_.end();
  }

  double seconds_of(size_t d, const ScheduledSlot& slot) const {
    const std::vector<int>& devices = in_.schedule->stage_devices[at(slot.stage)];
    const auto r = static_cast<size_t>(std::ranges::find(devices, static_cast<int>(d)) - devices.begin());
    switch (slot.phase) {
      case Phase::forward:
      case Phase::recompute:
        return in_.schedule->stage_seconds[at(slot.stage)][r];
      case Phase::input_gradient: {
        const double whole = in_.schedule->input_gradient_seconds[at(slot.stage)][r];
        const bool recompute = in_.graph->training->options.recompute;
        return recompute ? whole - in_.schedule->stage_seconds[at(slot.stage)][r] : whole;
      }
      case Phase::weight_gradient:
        return in_.schedule->weight_gradient_seconds[at(slot.stage)][r];
      case Phase::step:
      case Phase::init:
        return 0;
    }
    CHECK(false, "unknown phase");
  }

  void start(size_t d, double now) {
    if (busy_[d] || next_[d] == table_[d].size()) return;
    const ScheduledSlot& slot = table_[d][next_[d]];
    if (!ready(d, slot)) return;
    busy_[d] = true;
    if (slot.phase == Phase::step) stepping_.emplace_back(static_cast<int>(d), slot.stage);
    const bool takes = slot.phase == Phase::forward || slot.phase == Phase::recompute;
    running_.push({now + std::max(0.0, seconds_of(d, slot)), takes ? 1 : 0, d, next_[d]});
  }

  void finish(const Running& slot) {
    const ScheduledSlot& which = table_[slot.device][slot.index];
    busy_[slot.device] = false;
    ++next_[slot.device];
    if (which.phase != Phase::step) done_[phase_index(which.phase)][at(which.stage)][at(which.micro_batch)] = true;
    start(slot.device, slot.finish);
    const auto wake = [&](int stage) {
      if (stage < 0 || at(stage) >= orders_.stage_device.size()) return;
      start(at(orders_.stage_device[at(stage)][at(which.micro_batch)]), slot.finish);
    };
    if (which.phase == Phase::forward) wake(which.stage + 1);
    if (which.phase == Phase::input_gradient) wake(which.stage - 1);
    for (const std::vector<int>& ring : orders_.rings) {  // whoever waits for this device at a step
      if (ring.size() < 2 || std::ranges::find(ring, static_cast<int>(slot.device)) == ring.end()) continue;
      for (const int device : ring) start(at(device), slot.finish);
    }
  }

  Status waiting() const {
    std::string who;
    for (size_t d = 0; d < table_.size(); ++d) {
      if (next_[d] == table_[d].size()) continue;
      who += fmt::format("{}device {} waits at slot {} for what {} needs", who.empty() ? "" : "; ", d, next_[d],
                         slot_text(table_[d][next_[d]]));
    }
    return invalid_input(fmt::format("schedule {}: its orders wait for each other: {}", in_.plan->schedule, who));
  }

  const TrainingInput& in_;
  const TrainingOrders& orders_;
  const std::vector<std::vector<ScheduledSlot>>& table_;
  std::vector<std::vector<bool>> done_[static_cast<size_t>(Phase::step) + 1];  // [stage][micro-batch]
  std::vector<size_t> next_;
  std::vector<bool> busy_;
  std::vector<std::pair<int, int>> stepping_;  // (device, stage)
  std::priority_queue<Running> running_;
};

struct Message {
  int flow = -1;  // -1: of a ring, received within its step
  int of = -1;    // gradient: of this stage
  int micro_batch = 0;
  double sent_at = 0;
  size_t needed = 0, received = 0;  // slot of the receiver
};

class Messages {
 public:
  Messages(const TrainingInput& input, const std::vector<Flow>& flows, TrainingOrders& orders)
      : in_(input), flows_(flows), orders_(orders) {}

  Status run(const std::vector<std::vector<ScheduledSlot>>& table, const std::vector<std::vector<int>>& number,
             int devices) {
    orders_.devices.resize(at(devices));
    for (size_t d = 0; d < table.size(); ++d) {
      for (size_t i = 0; i < table[d].size(); ++i) {
        orders_.devices[d].push_back({table[d][i].stage,
                                      table[d][i].phase,
                                      table[d][i].micro_batch,
                                      static_cast<double>(number[d][i]),
                                      {},
                                      {},
                                      {}});
      }
    }
    add_source();
    send();
    return receive();
  }

 private:
  bool has_inputs() const { return !flows_.empty() && flows_.front().producer == source_stage; }
  int device_of(int stage, int m) const {
    return stage == source_stage ? in_.source : orders_.stage_device[at(stage)][at(m)];
  }

  // An input is sent one micro-batch ahead of its use on the receiving device: it can arrive while the one before is
  // computed with.
  void add_source() {
    if (!has_inputs()) return;
    std::vector<double> when(at(in_.plan->micro_batches), std::numeric_limits<double>::infinity());
    for (const std::vector<TrainingSlot>& order : orders_.devices) {
      std::map<int, double> before;  // stage: the forward slot before
      for (const TrainingSlot& slot : order) {
        if (slot.phase != Phase::forward) continue;
        const auto [previous, first] = before.try_emplace(slot.stage, 0.0);
        if (needs_message(slot))
          when[at(slot.micro_batch)] = std::min(when[at(slot.micro_batch)], first ? 0.0 : previous->second);
        previous->second = slot.time;
      }
    }
    std::vector<TrainingSlot> sources;
    for (int m = 0; m < in_.plan->micro_batches; ++m) {
      if (when[at(m)] == std::numeric_limits<double>::infinity()) continue;
      constexpr double just_before = 0.5;  // slots have whole numbers
      sources.push_back({source_stage, Phase::forward, m, when[at(m)] - just_before, {}, {}, {}});
    }
    std::ranges::stable_sort(sources, {}, &TrainingSlot::time);
    std::vector<TrainingSlot>& own = orders_.devices[at(in_.source)];
    own.insert(own.end(), sources.begin(), sources.end());
    std::ranges::stable_sort(own, {}, &TrainingSlot::time);
  }
  bool needs_message(const TrainingSlot& slot) const {
    return device_of(slot.stage, slot.micro_batch) != in_.source && std::ranges::any_of(flows_, [&](const Flow& flow) {
             return flow.producer == source_stage &&
                    std::ranges::find(flow.consumers, slot.stage) != flow.consumers.end();
           });
  }

  using SlotKey = std::tuple<int, Phase, int>;  // stage, phase, micro-batch

  std::vector<Message>& fifo(int from, int to) { return fifos_[at(from) * orders_.devices.size() + at(to)]; }

  void send() {
    fifos_.resize(orders_.devices.size() * orders_.devices.size());
    std::vector<std::map<SlotKey, size_t>> where(orders_.devices.size());
    for (size_t d = 0; d < orders_.devices.size(); ++d) {
      for (size_t i = 0; i < orders_.devices[d].size(); ++i) {
        const TrainingSlot& slot = orders_.devices[d][i];
        where[d].emplace(SlotKey{slot.stage, slot.phase, slot.micro_batch}, i);
      }
    }
    // In the sequence, so that every FIFO is in its order.
    std::vector<std::pair<int, size_t>> sequence;
    for (size_t d = 0; d < orders_.devices.size(); ++d) {
      for (size_t i = 0; i < orders_.devices[d].size(); ++i) sequence.emplace_back(static_cast<int>(d), i);
    }
    std::ranges::stable_sort(sequence, {},
                             [&](const auto& one) { return orders_.devices[at(one.first)][one.second].time; });
    for (const auto& [d, i] : sequence) {
      TrainingSlot& slot = orders_.devices[at(d)][i];
      if (slot.phase == Phase::forward) send_forward(d, slot, where);
      if (slot.phase == Phase::input_gradient) send_back(d, slot, where);
      if (slot.phase != Phase::step) continue;
      const std::vector<int>& ring = orders_.rings[at(slot.stage)];
      if (ring.size() < 2) continue;
      const auto self = std::ranges::find(ring, d) - ring.begin();
      const int to = ring[(static_cast<size_t>(self) + 1) % ring.size()];
      fifo(d, to).push_back({-1, -1, -1, slot.time, where[at(to)].at({slot.stage, Phase::step, 0}), 0});
    }
  }

  void send_forward(int d, TrainingSlot& slot, const std::vector<std::map<SlotKey, size_t>>& where) {
    std::vector<int> sent;
    for (size_t f = 0; f < flows_.size(); ++f) {
      if (flows_[f].producer != slot.stage) continue;
      sent.clear();
      for (const int c : flows_[f].consumers) {
        const int to = device_of(c, slot.micro_batch);
        if (to == d || std::ranges::find(sent, to) != sent.end()) continue;
        sent.push_back(to);
        slot.sends.push_back({static_cast<int>(f), -1, to});
        fifo(d, to).push_back({static_cast<int>(f), -1, slot.micro_batch, slot.time,
                               where[at(to)].at({c, Phase::forward, slot.micro_batch}), 0});
      }
    }
  }

  // Latest reader's first is not known here: the device builder sends each gradient when it is complete, and those that
  // complete together in the order of the flows. All of a slot pass together in the sequence, so their order among
  // themselves must only be the same at both ends: the flows' from the last to the first.
  void send_back(int d, TrainingSlot& slot, const std::vector<std::map<SlotKey, size_t>>& where) {
    for (size_t f = flows_.size(); f-- > 0;) {
      const Flow& flow = flows_[f];
      if (flow.producer < 0 || !in_.graph->training->has_gradient[flow.root.index()]) continue;
      if (std::ranges::find(flow.consumers, slot.stage) == flow.consumers.end()) continue;
      const int to = device_of(flow.producer, slot.micro_batch);
      if (to == d) continue;
      slot.sends.push_back({static_cast<int>(f), slot.stage, to});
      fifo(d, to).push_back({static_cast<int>(f), slot.stage, slot.micro_batch, slot.time,
                             where[at(to)].at({flow.producer, Phase::input_gradient, slot.micro_batch}), 0});
    }
  }

  // Adds every slot's recvs. A message that was sent before one that an earlier slot needs is received in a slot of its
  // own ahead, and so is all that comes before a ring's messages, which are received inside their step.
  Status receive() {
    struct Ahead {
      size_t before;
      TrainingSlot slot;
    };
    const int devices = static_cast<int>(orders_.devices.size());
    for (int to = 0; to < devices; ++to) {
      std::vector<TrainingSlot>& order = orders_.devices[at(to)];
      std::vector<Ahead> aheads;
      for (int from = 0; from < devices; ++from) {
        std::vector<Message>& messages = fifo(from, to);
        size_t earliest = std::numeric_limits<size_t>::max();
        for (size_t i = messages.size(); i-- > 0;) {
          messages[i].received = earliest = std::min(earliest, messages[i].needed);
          if (messages[i].flow < 0 && messages[i].received != messages[i].needed)
            return failed(
                fmt::format("schedule {}: a message overtakes the reduction of gradients", in_.plan->schedule));
        }
        for (size_t begin = 0; begin < messages.size();) {
          size_t end = begin, own = begin;
          for (; end < messages.size() && messages[end].received == messages[begin].received; ++end) {
            if (messages[end].needed != messages[end].received || messages[end].flow < 0) own = end + 1;
          }
          for (size_t i = begin; i < end; ++i) {
            const Message& message = messages[i];
            if (message.flow < 0) continue;
            const TrainingPort port{message.flow, message.of, from};
            if (i >= own) {
              order[message.received].recvs.push_back(port);
              order[message.received].received_at.push_back(message.sent_at);
            } else {
              aheads.push_back({message.received,
                                {ahead_stage,
                                 Phase::forward,
                                 message.micro_batch,
                                 order[message.received].time,
                                 {port},
                                 {message.sent_at},
                                 {}}});
            }
          }
          begin = end;
        }
      }
      if (aheads.empty()) continue;
      std::ranges::stable_sort(aheads, {}, &Ahead::before);
      std::vector<TrainingSlot> merged;
      size_t a = 0;
      for (size_t i = 0; i < order.size(); ++i) {
        for (; a < aheads.size() && aheads[a].before == i; ++a) merged.push_back(std::move(aheads[a].slot));
        merged.push_back(std::move(order[i]));
      }
      order = std::move(merged);
    }
    return ok_status();
  }

  const TrainingInput& in_;
  const std::vector<Flow>& flows_;
  TrainingOrders& orders_;
  std::vector<std::vector<Message>> fifos_;  // [from * devices + to]
};

// One weight in two stages would have two gradients that nobody adds.
Status check_shared_weights(const KernelGraph& graph, const Plan& plan) {
  std::vector<int> stage_of(graph.graph.values.size(), -1);
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    for (size_t n = plan.stages[s].begin; n < plan.stages[s].end; ++n) {
      if (is_view(graph.graph.nodes[n].op)) continue;
      for (const ValueId read : reads_of(graph.graph.nodes[n])) {
        const ValueId root = graph.root[read.index()];
        if (!graph.training->trained[root.index()]) continue;
        int& known = stage_of[root.index()];
        if (known >= 0 && known != static_cast<int>(s)) {
          return unsupported(
              fmt::format("weight '{}' is trained in stage {} and in stage {}: a weight that stages share "
                          "is not supported",
                          graph.graph.value(root).name, known, s));
        }
        known = static_cast<int>(s);
      }
    }
  }
  return ok_status();
}

}  // namespace

Result<TrainingOrders> order_training(const TrainingInput& input, const std::vector<Flow>& flows, int devices) {
  TrainingOrders orders;
  ASSIGN_OR_RETURN(const auto table, Table(input, orders).complete());
  Play play(input, orders, table);
  RETURN_IF_ERROR(play.run());
  RETURN_IF_ERROR(Messages(input, flows, orders).run(table, play.number, devices));
  return orders;
}

Status lower_training(const TrainingInput& input, Program& program) {
  RETURN_IF_ERROR(check_shared_weights(*input.graph, *input.plan));
  ASSIGN_OR_RETURN(const std::vector<Flow> flows, find_flows(*input.graph, *input.plan));
  constexpr size_t most_tags = 32768;  // program/program.h: what MPI guarantees
  if (2 * flows.size() + input.plan->stages.size() > most_tags)
    return unsupported(fmt::format("{} values cross stages, more than there are tags", flows.size()));
  ASSIGN_OR_RETURN(const TrainingOrders orders, order_training(input, flows, static_cast<int>(program.devices.size())));
  InternedDescs interned;
  const size_t nodes = input.graph->graph.nodes.size();
  interned.input_gradients.assign(nodes, -1);
  interned.weight_gradients.assign(nodes, -1);
  for (size_t d = 0; d < program.devices.size(); ++d)
    lower_training_device(input, flows, orders, static_cast<int>(d), interned, program);
  return ok_status();
}

}  // namespace nlsplit
