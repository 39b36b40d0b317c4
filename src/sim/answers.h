// The answers to requests of messages that wait for their receivers, and what keeps these answers back
// (sim/timed_graph.h, "How the parts of a message's time grow").
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "sim/runner_state.h"
#include "sim/timed_graph.h"

namespace nlsplit::inline sim {

// From one device to another.
class DevicePair {
 public:
  DevicePair(int from, int to) : key_(static_cast<uint64_t>(from) << 32 | static_cast<uint32_t>(to)) {}
  explicit DevicePair(const Activity& transfer) : DevicePair(transfer.device, transfer.peer) {}
  friend bool operator==(DevicePair, DevicePair) = default;
  struct Hash {
    size_t operator()(DevicePair pair) const { return std::hash<uint64_t>()(pair.key_); }
  };

 private:
  uint64_t key_;
};

// All it borrows must outlive it.
class Answers {
 public:
  Answers(const TimedGraph& graph, const Timing& timing, const std::vector<Life>& life)
      : graph_(graph), timing_(timing), life_(life) {
    if (graph.clear_to_send_waits) late_.assign(graph.activities.size(), 0);
  }

  // Message i is requested, and will move; or it moves without a request.
  void add(uint32_t i) {
    if (graph_.clear_to_send_waits && graph_.activities[i].duration > 0) moving_[ends_of(i)].push_back(i);
  }
  // Its last byte has moved.
  void remove(uint32_t i) {
    if (graph_.clear_to_send_waits) std::erase(moving_[ends_of(i)], i);
  }

  // Seconds by which what moves from the receiver of message i to its sender keeps the receiver's answer back.
  double delay(uint32_t i) const {
    const Activity& transfer = graph_.activities[i];
    double wait = 0;
    for (const uint32_t other : against(i)) {
      if (!is_answered_later(other, i))
        wait += std::max(0.0, timing_.moves[other] + graph_.activities[other].duration - answered(i));
    }
    return std::min(wait, transfer.clear_to_send_delay);
  }

  // What is answered after i was asked for moves after that answer, which travels behind the request of i: it is late.
  void hold_up_others(uint32_t i) {
    for (const uint32_t other : against(i)) {
      if (!is_answered_later(other, i)) continue;
      const double waits = timing_.moves[other] - graph_.activities[other].handshake -
                           std::max(life_[other].ready, timing_.posted[other]);
      late_[other] = std::max(0.0, requested(i) - (answered(other) + waits));
    }
  }

  // Seconds by which the answer to message i came behind another message's request.
  double late(uint32_t i) const { return late_.empty() ? 0 : late_[i]; }

 private:
  DevicePair ends_of(uint32_t i) const { return DevicePair(graph_.activities[i]); }
  // What moves the other way, or will; none where answers do not wait.
  std::span<const uint32_t> against(uint32_t i) const {
    const Activity& transfer = graph_.activities[i];
    if (transfer.clear_to_send_delay <= 0) return {};
    const auto found = moving_.find(DevicePair(transfer.peer, transfer.device));
    return found == moving_.end() ? std::span<const uint32_t>() : found->second;
  }
  // When the request for a message is at its receiver, and when that answers.
  double requested(uint32_t i) const { return life_[i].ready + graph_.activities[i].request; }
  double answered(uint32_t i) const { return std::max(requested(i), timing_.posted[i]); }
  bool is_answered_later(uint32_t other, uint32_t i) const {
    return graph_.activities[other].waits && answered(other) > timing_.start[i];
  }

  const TimedGraph& graph_;
  const Timing& timing_;
  const std::vector<Life>& life_;
  std::unordered_map<DevicePair, std::vector<uint32_t>, DevicePair::Hash> moving_;
  std::vector<double> late_;  // by activity; empty where no answer waits
};

}  // namespace nlsplit::inline sim
