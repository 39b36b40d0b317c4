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
#include <set>

#include "base/limits.h"

namespace nlsplit {
namespace {

struct TrainingMessage {
  int flow = -1;  // -1: of a ring, received within its step
  int micro_batch = 0;
  double sent_at = 0;
  size_t needed = 0, received = 0;  // slot of the receiver
};

class Messages {
 public:
  Messages(const TrainingInput& input, const std::vector<Flow>& flows, TrainingOrders& orders)
      : in_(input), flows_(flows), orders_(orders) {}

  Status run(const SlotLists& table, const std::vector<std::vector<int>>& number, int devices) {
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

  std::vector<TrainingMessage>& fifo(int from, int to) { return fifos_[at(from) * orders_.devices.size() + at(to)]; }

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
      if (slot.phase == Phase::forward) send_values(d, slot, false, where);
      const bool backward = slot.phase == Phase::input_gradient || slot.phase == Phase::weight_gradient;
      const bool last_part = slot.phase == Phase::weight_gradient;
      if (backward && orders_.whole[at(slot.stage)][at(slot.micro_batch)] == last_part)
        send_values(d, slot, true, where);
      if (slot.phase != Phase::step) continue;
      const std::vector<int>& ring = orders_.rings[at(slot.stage)];
      if (ring.size() < 2) continue;
      const auto self = std::ranges::find(ring, d) - ring.begin();
      const int to = ring[(static_cast<size_t>(self) + 1) % ring.size()];
      fifo(d, to).push_back({-1, -1, slot.time, where[at(to)].at({slot.stage, Phase::step, 0}), 0});
    }
  }

  // What a slot has made, in the order of the flows.
  void send_values(int d, TrainingSlot& slot, bool back, const std::vector<std::map<SlotKey, size_t>>& where) {
    std::vector<int> sent;
    for (size_t f = 0; f < flows_.size(); ++f) {
      const Flow& flow = flows_[f];
      const bool goes_back = phase_of(*in_.graph->training, flow.root) == NodePhase::input;
      if (flow.producer != slot.stage || goes_back != back) continue;
      std::vector<int> consumers = flow.consumers;
      if (back) std::ranges::reverse(consumers);  // the first to need it
      sent.clear();
      for (const int c : consumers) {
        const int to = device_of(c, slot.micro_batch);
        if (to == d || std::ranges::find(sent, to) != sent.end()) continue;
        sent.push_back(to);
        slot.sends.push_back({static_cast<int>(f), to});
        const Phase phase = back ? Phase::input_gradient : Phase::forward;
        fifo(d, to).push_back(
            {static_cast<int>(f), slot.micro_batch, slot.time, where[at(to)].at({c, phase, slot.micro_batch}), 0});
      }
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
        std::vector<TrainingMessage>& messages = fifo(from, to);
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
            const TrainingMessage& message = messages[i];
            if (message.flow < 0) continue;
            const Port port{message.flow, from};
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
  std::vector<std::vector<TrainingMessage>> fifos_;  // [from * devices + to]
};

}  // namespace

Result<TrainingOrders> order_training(const TrainingInput& input, const std::vector<Flow>& flows, int devices) {
  TrainingOrders orders;
  ASSIGN_OR_RETURN(const SlotLists table, complete_table(input, orders));
  ASSIGN_OR_RETURN(const auto number, play_training(input, orders, table));
  RETURN_IF_ERROR(Messages(input, flows, orders).run(table, number, devices));
  return orders;
}

NodePhase phase_of(const Training& training, ValueId root) {
  const Value& value = training.step.graph.value(root);
  return value.kind == ValueKind::node ? training.nodes.phases[value.producer.index()] : NodePhase::forward;
}

Result<StepStages> step_stages(const Training& training, const Plan& plan) {
  const StepNodes& nodes = training.nodes;
  StepStages stages;
  std::vector<int> of_network(nodes.network, 0);
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    for (size_t n = plan.stages[s].begin; n < plan.stages[s].end; ++n) of_network[n] = static_cast<int>(s);
  }
  for (auto* lists : {&stages.forward, &stages.input, &stages.weight, &stages.trained})
    lists->resize(plan.stages.size());
  for (size_t n = 0; n < nodes.origins.size(); ++n) {
    const int stage = of_network[nodes.origins[n]];
    stages.of_node.push_back(stage);
    if (!nodes.computed[n] || nodes.phases[n] == NodePhase::step) continue;
    auto& lists = nodes.phases[n] == NodePhase::forward ? stages.forward
                  : nodes.phases[n] == NodePhase::input ? stages.input
                                                        : stages.weight;
    lists[at(stage)].push_back(n);
  }
  for (size_t t = 0; t < nodes.trained.size(); ++t) {
    const ValueId weight = nodes.trained[t];
    const std::vector<size_t>& readers = training.step.readers[weight.index()];
    const int first = stages.of_node[readers.front()];
    for (const size_t reader : readers) {
      if (stages.of_node[reader] == first) continue;
      return unsupported(
          fmt::format("weight '{}' is trained in stage {} and in stage {}: a weight that stages share is "
                      "not supported",
                      training.step.graph.value(weight).name, first, stages.of_node[reader]));
    }
    stages.trained[at(first)].push_back(t);
  }
  return stages;
}

std::vector<Flow> step_flows(const TrainingInput& input) {
  const Training& training = *input.graph->training;
  const Graph& g = training.step.graph;
  std::vector<Flow> flows;
  const auto add = [&](ValueId root, int producer) {
    std::set<int> consumers;
    for (const size_t reader : training.step.readers[root.index()]) consumers.insert(input.stages->of_node[reader]);
    consumers.erase(producer);
    if (!consumers.empty()) flows.push_back({root, producer, {consumers.begin(), consumers.end()}});
  };
  for (const ValueId value : g.inputs) add(value, source_stage);
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    if (!training.nodes.computed[n]) continue;
    for (const ValueId output : g.nodes[n].outputs) add(output, input.stages->of_node[n]);
  }
  return flows;
}

Status lower_training(TrainingInput input, Program& program) {
  ASSIGN_OR_RETURN(const StepStages stages, step_stages(*input.graph->training, *input.plan));
  input.stages = &stages;
  const std::vector<Flow> flows = step_flows(input);
  constexpr size_t most_tags = largest_tag + 1;
  if (flows.size() + input.plan->stages.size() > most_tags)
    return unsupported(fmt::format("{} values cross stages, more than there are tags", flows.size()));
  ASSIGN_OR_RETURN(const TrainingOrders orders, order_training(input, flows, static_cast<int>(program.devices.size())));
  std::map<Isa, std::vector<int>> interned;
  for (size_t d = 0; d < program.devices.size(); ++d)
    lower_training_device(input, flows, orders, static_cast<int>(d), interned, program);
  return ok_status();
}

}  // namespace nlsplit
