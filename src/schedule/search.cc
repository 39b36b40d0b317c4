// Search: starts from the shortest table that any other policy makes of this plan and fits its memory, and looks for a
// shorter one on the evaluated makespan. Simulated annealing over the orders of the devices (van Laarhoven et al., "Job
// shop scheduling by simulated annealing", Operations Research 40 (1992)): a slot goes to another place of its device's
// order, never before what it needs there. Only tables that can be played and fit are kept. Seeded and bounded in slots
// played, so the same on every machine.
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/index.h"
#include "base/random.h"
#include "schedule/assign.h"
#include "schedule/evaluate.h"
#include "schedule/placement.h"
#include "schedule/policies.h"

namespace nlsplit::inline schedules {
namespace {

constexpr uint64_t seed = 1;
constexpr size_t slots_to_play = 40'000'000;  // about half a second
constexpr size_t least_tries = 200;

class Annealing {
 public:
  Annealing(const ScheduleInput& input, SlotTable table)
      : input_(input), player_(input), random_(seed), now_(std::move(table)) {
    for (std::vector<ScheduledSlot>& order : now_.devices) {
      for (ScheduledSlot& slot : order) slot.whole = false;  // a gradient that leaves earlier delays no slot
    }
    CHECK(player_.play(now_), "a policy's table can be played");
    length_ = player_.makespan();
    best_ = now_;
    least_ = length_;
    for (const auto& order : now_.devices) slots_ += order.size();
  }

  SlotTable run() {
    const size_t tries = std::max(least_tries, slots_to_play / std::max<size_t>(1, slots_));
    const double hot = least_ * 0.02;
    for (size_t i = 0; i < tries; ++i) {
      const double left = 1 - static_cast<double>(i) / static_cast<double>(tries);
      step(hot * left * left);
    }
    return std::move(best_);
  }

 private:
  struct Choice {
    int device = 0;
    int slot = 0;
  };
  std::optional<Choice> pick() {
    const auto device = static_cast<int>(random_.below(now_.devices.size()));
    const std::vector<ScheduledSlot>& order = now_.devices[at(device)];
    size_t movable = order.size();
    while (movable > 0 && order[movable - 1].phase == Phase::step) --movable;
    if (movable < 2) return std::nullopt;
    return Choice{device, static_cast<int>(random_.below(movable))};
  }

  // Where a slot may stand: after what it needs on its device, before what needs it there.
  std::pair<int, int> room(const std::vector<ScheduledSlot>& order, int place) const {
    const ScheduledSlot& slot = order[at(place)];
    const auto bound = [&](const ScheduledSlot& other) { return related(other, slot); };
    int first = place, last = place;
    while (first > 0 && !bound(order[at(first - 1)])) --first;
    while (at(last + 1) < order.size() && order[at(last + 1)].phase != Phase::step && !bound(order[at(last + 1)]))
      ++last;
    return {first, last};
  }
  // Micro-batches of one stage and phase are alike but for W and the memory: they keep their order.
  static bool related(const ScheduledSlot& a, const ScheduledSlot& b) {
    return (a.stage == b.stage && (a.micro_batch == b.micro_batch || a.phase == b.phase)) ||
           (a.micro_batch == b.micro_batch && a.phase == b.phase);
  }

  void step(double temperature) {
    const auto chosen = pick();
    if (!chosen) return;
    std::vector<ScheduledSlot>& order = now_.devices[at(chosen->device)];
    const auto [first, last] = room(order, chosen->slot);
    if (first == last) return;
    // Near places more often: half the moves are by one or two.
    int to = first + static_cast<int>(random_.below(static_cast<uint64_t>(last - first) + 1));
    if (random_.below(2) == 0) {
      const int by = 1 + static_cast<int>(random_.below(2));
      to = std::clamp(chosen->slot + (random_.below(2) == 0 ? by : -by), first, last);
    }
    if (to == chosen->slot) return;
    move(order, chosen->slot, to);
    if (fits(chosen->device) && player_.play(now_)) {
      const double length = player_.makespan();
      if (length <= length_ || random_.uniform() < std::exp((length_ - length) / temperature)) {
        length_ = length;
        if (length < least_) {
          least_ = length;
          best_ = now_;
        }
        return;
      }
    }
    move(order, to, chosen->slot);
  }

  static void move(std::vector<ScheduledSlot>& order, int from, int to) {
    const auto begin = order.begin();
    if (from < to)
      std::rotate(begin + from, begin + from + 1, begin + to + 1);
    else
      std::rotate(begin + to, begin + from, begin + from + 1);
  }

  bool fits(int device) const {
    if (input_.device_memory.empty() || !input_.training()) return true;
    return most_kept(input_, now_.devices[at(device)]) <= input_.device_memory[at(device)];
  }

  const ScheduleInput& input_;
  SlotPlayer player_;
  Random random_;
  SlotTable now_, best_;
  double length_ = 0, least_ = 0;
  size_t slots_ = 0;
};

}  // namespace

Result<SlotTable> schedule_search(const ScheduleInput& input) {
  RETURN_IF_ERROR(check_schedule_input(input));
  std::optional<SlotTable> best;
  std::optional<Error> refusal;
  double least = 0;
  for (const SchedulePolicy& policy : all_schedules()) {
    if (policy.make == schedule_search) continue;
    if (policy.mode != ScheduleMode::both && (policy.mode == ScheduleMode::training) != input.training()) continue;
    auto table = policy.make(input);
    if (!table.ok()) {
      if (policy.make == schedule_list) refusal = table.error();  // the others may only not suit the placement
      continue;
    }
    const auto timing = evaluate(input, *table);
    if (!timing.ok()) continue;
    if (!best || timing->makespan < least) {
      least = timing->makespan;
      best = std::move(*table);
    }
  }
  if (!best) return refusal ? *refusal : unsupported("schedule search finds no policy whose table fits");
  SlotTable found = Annealing(input, *best).run();
  found.instances = instances_of(input, found);
  return found;
}

}  // namespace nlsplit::inline schedules
