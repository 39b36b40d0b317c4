// Online runs of a TimedGraph (OnlineGraph): the policies' knowledge, their calls, and the decisions in a Timing.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "program/turns.h"
#include "sim/timed_graph.h"

namespace nlsplit::inline sim {

// Sets OnlineSlot::remaining: the length of the critical path from the slot's start to the end of the run, without
// contention and with all receives posted.
void find_remaining(TimedGraph& graph);

// The Online that an executor needs to call the policy with the same knowledge.
Online online_of(const TimedGraph& graph, const Program& program);

// [device]: the slots of its order that compute, in the order in which they ran. Of a Timing that simulated `graph`.
std::vector<std::vector<int>> decisions_of(const TimedGraph& graph, const Timing& timing, size_t devices);

// The next slot of each device, by its policy; used by Runner (sim/runner.h).
class Turns {
 public:
  explicit Turns(const TimedGraph& graph);

  bool begins_slot(uint32_t block) const { return slot_of(block).first == block; }
  void ready(uint32_t block, double now);  // all inputs of the slot of this first block are there
  void block_ended(uint32_t block);        // after the slot's last block its device is free

  // After all events of this time: the first block of a slot to start now; none: no slot starts. Sets `turn` to the
  // slot's place among its device's slots.
  std::optional<uint32_t> next(double now, double& turn);
  bool may_have_next() const { return !ask_.empty(); }

  // The error if nothing is in progress although some slots have not run.
  Error stuck() const;

 private:
  const OnlineSlot& slot_of(uint32_t block) const { return online_.slots[static_cast<size_t>(online_.slot_of[block])]; }

  const OnlineGraph& online_;
  std::vector<DeviceTurns> devices_;
  std::vector<bool> busy_;  // [device]
  std::vector<int> count_;  // [device]: slots it ran
  std::set<size_t> ask_;    // devices for which something has changed
};

}  // namespace nlsplit::inline sim
