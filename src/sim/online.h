// What a TimedGraph that is run online (OnlineGraph) knows beforehand, and what a Timing of it says was decided.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "program/turns.h"
#include "sim/timed_graph.h"

namespace nlsplit::inline sim {

// Sets OnlineSlot::remaining: the longest way from the slot's start to the end of the run, along everything that must
// wait for something, without contention and with all receives posted.
void find_remaining(TimedGraph& graph);

// What an executor needs to be asked the same questions.
Online online_of(const TimedGraph& graph, const Program& program);

// [device]: the slots of its order that compute, in the order in which they ran. Of a Timing that simulated `graph`.
std::vector<std::vector<int>> decisions_of(const TimedGraph& graph, const Timing& timing, size_t devices);

// Who has the turn on each device, for a clock that drives the rest (sim/runner.h).
class Turns {
 public:
  explicit Turns(const TimedGraph& graph);

  bool begins_slot(uint32_t block) const { return slot_of(block).first == block; }
  void ready(uint32_t block, double now);  // all that the slot of this first block waits for is there
  void block_ended(uint32_t block);        // with the last one its device is free

  // When all of this moment is known: the first block of a slot that is to start now; none: nobody else has a turn. Its
  // place among its device's slots goes to `turn`.
  std::optional<uint32_t> next(double now, double& turn);
  bool may_have_next() const { return !ask_.empty(); }

  // Nothing is under way any more, and there are slots that did not run.
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
