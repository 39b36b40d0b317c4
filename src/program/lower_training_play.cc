// A table played through in time.
#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <tuple>

#include "program/lower_training.h"

namespace nlsplit {
namespace {

// The sequence. Slots are numbered in the order in which they end; of those that end together the ones that free
// memory go first.
class Play {
 public:
  Play(const TrainingInput& input, const TrainingOrders& orders, const SlotLists& table)
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

  // Of a backward in one piece the gradient leaves with W.
  bool gradient_left(int stage, int m) const {
    const bool whole = orders_.whole[at(stage)][at(m)];
    return done(stage, whole ? Phase::weight_gradient : Phase::input_gradient, m);
  }

  bool ready(size_t d, const ScheduledSlot& slot) const {
    const int last = static_cast<int>(in_.plan->stages.size()) - 1;
    switch (slot.phase) {
      case Phase::forward:
        return slot.stage == 0 || done(slot.stage - 1, Phase::forward, slot.micro_batch);
      case Phase::recompute:
        return done(slot.stage, Phase::forward, slot.micro_batch);
      case Phase::input_gradient:
        return done(slot.stage, Phase::forward, slot.micro_batch) &&
               (slot.stage == last || gradient_left(slot.stage + 1, slot.micro_batch)) &&
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
    if (which.phase == Phase::input_gradient || which.phase == Phase::weight_gradient) wake(which.stage - 1);
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
  const SlotLists& table_;
  std::vector<std::vector<bool>> done_[static_cast<size_t>(Phase::step) + 1];  // [stage][micro-batch]
  std::vector<size_t> next_;
  std::vector<bool> busy_;
  std::vector<std::pair<int, int>> stepping_;  // (device, stage)
  std::priority_queue<Running> running_;
};

}  // namespace

Result<std::vector<std::vector<int>>> play_training(const TrainingInput& input, const TrainingOrders& orders,
                                                    const SlotLists& table) {
  Play play(input, orders, table);
  RETURN_IF_ERROR(play.run());
  return std::move(play.number);
}

}  // namespace nlsplit
