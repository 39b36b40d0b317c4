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

#include "base/limits.h"

namespace nlsplit {
namespace {

struct TrainingMessage {
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
      if (slot.phase == Phase::forward) send_forward(d, slot, where);
      const bool backward = slot.phase == Phase::input_gradient || slot.phase == Phase::weight_gradient;
      const bool last_part = slot.phase == Phase::weight_gradient;
      if (backward && orders_.whole[at(slot.stage)][at(slot.micro_batch)] == last_part) send_back(d, slot, where);
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

  // The device sends each gradient as soon as it is whole. All of a slot pass together in the sequence, so their order
  // must only be the same at both ends: by flow, from the last to the first.
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
  std::vector<std::vector<TrainingMessage>> fifos_;  // [from * devices + to]
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
  ASSIGN_OR_RETURN(const SlotLists table, complete_table(input, orders));
  ASSIGN_OR_RETURN(const auto number, play_training(input, orders, table));
  RETURN_IF_ERROR(Messages(input, flows, orders).run(table, number, devices));
  return orders;
}

Status lower_training(const TrainingInput& input, Program& program) {
  RETURN_IF_ERROR(check_shared_weights(*input.graph, *input.plan));
  ASSIGN_OR_RETURN(const std::vector<Flow> flows, find_flows(*input.graph, *input.plan));
  constexpr size_t most_tags = largest_tag + 1;
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
