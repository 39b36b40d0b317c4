#include "schedule/evaluate.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/index.h"
#include "schedule/assign.h"

namespace nlsplit::inline schedules {
namespace {

constexpr double not_yet = -1;

// Where each (phase, stage, micro-batch) stands in the table.
class Places {
 public:
  struct Place {
    int device = -1;
    int slot = -1;
  };

  Places(const ScheduleInput& input, const SlotTable& table, const SlotNames& names)
      : input_(input), table_(table), names_(names) {
    const size_t stages = input.stage_devices.size();
    places_.resize(3 * stages * at(input.micro_batches));
    steps_.resize(stages * at(input.devices));
  }

  std::optional<TableFault> read() {
    if (table_.devices.size() != at(input_.devices)) {
      return TableFault{
          -1, -1, fmt::format("the table has {} devices, the plan has {}", table_.devices.size(), input_.devices)};
    }
    for (int d = 0; d < input_.devices; ++d) {
      for (int i = 0; at(i) < table_.devices[at(d)].size(); ++i) {
        if (auto reason = add(d, i, table_.devices[at(d)][at(i)]); !reason.empty())
          return TableFault{d, i, std::move(reason)};
      }
    }
    return std::nullopt;
  }

  const Place& of(Phase phase, int stage, int micro_batch) const { return places_[index(phase, stage, micro_batch)]; }
  const Place& step(int stage, int device) const { return steps_[at(stage) * at(input_.devices) + at(device)]; }

 private:
  size_t index(Phase phase, int stage, int micro_batch) const {
    const size_t p = phase == Phase::forward ? 0 : phase == Phase::input_gradient ? 1 : 2;
    return (p * input_.stage_devices.size() + at(stage)) * at(input_.micro_batches) + at(micro_batch);
  }

  std::string add(int device, int i, const ScheduledSlot& slot) {
    const auto stages = static_cast<int>(input_.stage_devices.size());
    if (slot.phase == Phase::init || slot.phase == Phase::recompute)
      return fmt::format("phase {} has no place in a schedule", name_of(slot.phase));
    if (slot.phase != Phase::forward && !input_.training())
      return fmt::format("phase {} where there is no training", name_of(slot.phase));
    if (slot.stage < 0 || slot.stage >= stages) return fmt::format("no stage {}; there are {}", slot.stage, stages);
    const std::vector<int>& hosts = input_.stage_devices[at(slot.stage)];
    if (std::ranges::find(hosts, device) == hosts.end())
      return fmt::format("stage {} is not on this {} but on {}", slot.stage, names_.device, fmt::join(hosts, ", "));
    if (slot.phase != Phase::step && (slot.micro_batch < 0 || slot.micro_batch >= input_.micro_batches))
      return fmt::format("no micro-batch {}; there are {}", slot.micro_batch, input_.micro_batches);
    if (slot.whole) {
      const std::vector<ScheduledSlot>& order = table_.devices[at(device)];
      const ScheduledSlot rest = {slot.stage, Phase::weight_gradient, slot.micro_batch};
      if (slot.phase != Phase::input_gradient || at(i + 1) >= order.size() || order[at(i + 1)] != rest)
        return "a whole backward without its weight gradient directly after it";
    }
    Place& place = slot.phase == Phase::step ? steps_[at(slot.stage) * at(input_.devices) + at(device)]
                                             : places_[index(slot.phase, slot.stage, slot.micro_batch)];
    if (place.device >= 0) return fmt::format("a second time; first in {}", names_.of(place.device, place.slot));
    place = {device, i};
    return "";
  }

  const ScheduleInput& input_;
  const SlotTable& table_;
  const SlotNames& names_;
  std::vector<Place> places_, steps_;
};

std::optional<TableFault> missing_or_misplaced(const ScheduleInput& input, const Places& places,
                                               const SlotNames& names) {
  const std::vector<Phase> phases =
      input.training() ? std::vector<Phase>{Phase::forward, Phase::input_gradient, Phase::weight_gradient}
                       : std::vector<Phase>{Phase::forward};
  for (int s = 0; at(s) < input.stage_devices.size(); ++s) {
    for (int m = 0; m < input.micro_batches; ++m) {
      const Places::Place& forward = places.of(Phase::forward, s, m);
      const Places::Place* before = nullptr;
      for (const Phase phase : phases) {
        const Places::Place& here = places.of(phase, s, m);
        if (here.device < 0) {
          return TableFault{forward.device, forward.slot,
                            fmt::format("{} is missing: micro-batch {} never goes through {} of stage {}",
                                        to_string({s, phase, m}), m, name_of(phase), s)};
        }
        if (here.device != forward.device) {
          return TableFault{here.device, here.slot,
                            fmt::format("{} was in {}: what it kept is there", to_string({s, Phase::forward, m}),
                                        names.of(forward.device, forward.slot))};
        }
        if (before != nullptr && here.slot < before->slot)
          return TableFault{here.device, here.slot,
                            fmt::format("before what it needs, {}", names.of(before->device, before->slot))};
        before = &here;
      }
      if (!input.training()) continue;
      const Places::Place& step = places.step(s, forward.device);
      if (step.device >= 0 && step.slot < before->slot) {
        return TableFault{step.device, step.slot,
                          fmt::format("the update comes before {} in {}", to_string({s, Phase::weight_gradient, m}),
                                      names.of(before->device, before->slot))};
      }
    }
    if (!input.training()) continue;
    for (const int device : input.stage_devices[at(s)]) {
      if (places.step(s, device).device < 0)
        return TableFault{device, -1, fmt::format("stage {} has no step slot on {} {}", s, names.device, device)};
    }
  }
  return std::nullopt;
}

// Device a waits for a slot of device b, whose turn is behind the slot at which b waits for … a.
TableFault circle(const SlotPlayer& player, const SlotTable& table, const Places& places, const SlotNames& names) {
  int device = -1;
  for (int d = 0; at(d) < table.devices.size() && device < 0; ++d) {
    if (player.reached()[at(d)] < table.devices[at(d)].size()) device = d;
  }
  CHECK(device >= 0, "a table that can be played has no circle");
  std::vector<int> seen;
  while (std::ranges::find(seen, device) == seen.end()) {
    seen.push_back(device);
    const ScheduledSlot& stuck = table.devices[at(device)][player.reached()[at(device)]];
    const std::optional<ScheduledSlot> needed = player.waits_for(table, stuck);
    CHECK(needed.has_value(), "a slot that waits for nothing is stuck");
    device = places.of(needed->phase, needed->stage, needed->micro_batch).device;
  }
  std::vector<int> members(std::ranges::find(seen, device), seen.end());
  std::string text = "deadlock: ";
  for (const int d : members) {
    const auto slot = static_cast<int>(player.reached()[at(d)]);
    const ScheduledSlot& stuck = table.devices[at(d)][at(slot)];
    const ScheduledSlot needed = *player.waits_for(table, stuck);
    const Places::Place& there = places.of(needed.phase, needed.stage, needed.micro_batch);
    if (d != members[0]) text += "; ";
    text += fmt::format("{} ({}) waits for {} in {}", names.of(d, slot), to_string(stuck), to_string(needed),
                        names.of(there.device, there.slot));
  }
  return {members[0], static_cast<int>(player.reached()[at(members[0])]), text};
}

// What a device keeps as it goes through its order; calls grown(slot, micro-batches, bytes) after every slot's start
// and end.
template <class Grown>
void walk_kept(const ScheduleInput& input, const std::vector<ScheduledSlot>& order, const Grown& grown) {
  int micro_batches = 0;
  int64_t kept = 0;
  const auto value = [](const std::vector<Bytes>& bytes, int stage) {
    return bytes.empty() ? int64_t{0} : bytes[at(stage)].value();
  };
  for (size_t i = 0; i < order.size(); ++i) {
    const ScheduledSlot& slot = order[i];
    switch (slot.phase) {
      case Phase::forward:
        ++micro_batches;
        kept += value(input.kept_until_input_gradient, slot.stage);
        break;
      case Phase::input_gradient:
        kept +=
            value(input.kept_until_weight_gradient, slot.stage) - value(input.kept_until_input_gradient, slot.stage);
        break;
      case Phase::weight_gradient:
        --micro_batches;
        kept -= value(input.kept_until_weight_gradient, slot.stage);
        break;
      case Phase::init:
      case Phase::recompute:
      case Phase::step:
        break;
    }
    grown(static_cast<int>(i), micro_batches, kept);
  }
}

std::optional<TableFault> too_much_kept(const ScheduleInput& input, const SlotTable& table) {
  if (input.device_memory.empty() || !input.training()) return std::nullopt;
  for (int d = 0; d < input.devices; ++d) {
    const int64_t limit = input.device_memory[at(d)].value();
    std::optional<TableFault> fault;
    walk_kept(input, table.devices[at(d)], [&](int slot, int micro_batches, int64_t kept) {
      if (fault || kept <= limit) return;
      fault = TableFault{d, slot,
                         fmt::format("memory: {} would be kept of {} micro-batches, and there are {}",
                                     to_string(bytes(kept)), micro_batches, to_string(bytes(limit)))};
    });
    if (fault) return fault;
  }
  return std::nullopt;
}

}  // namespace

Bytes most_kept(const ScheduleInput& input, const std::vector<ScheduledSlot>& order) {
  int64_t most = 0;
  walk_kept(input, order, [&](int, int, int64_t kept) { most = std::max(most, kept); });
  return bytes(most);
}

std::string to_string(const ScheduledSlot& slot) {
  if (slot.phase == Phase::step) return fmt::format("{}step", slot.stage);
  return fmt::format("{}{}{}", slot.stage, name_of(slot.phase), slot.micro_batch);
}

std::string SlotNames::of(int device_index, int slot) const {
  const int column = columns == nullptr ? slot : (*columns)[at(device_index)][at(slot)];
  return fmt::format("slot {} of {} {}", column + 1, device, device_index);
}

double SlotTiming::bubble() const {
  double sum = 0;
  for (const double seconds : busy) sum += seconds;
  return makespan > 0 ? 1 - sum / (makespan * static_cast<double>(busy.size())) : 0;
}

double SlotTiming::inner_bubble() const {
  return idle_between.empty() ? 0 : *std::max_element(idle_between.begin(), idle_between.end());
}

SlotPlayer::SlotPlayer(const ScheduleInput& input)
    : input_(input), stages_(static_cast<int>(input.stage_devices.size())), micro_batches_(input.micro_batches) {
  replica_of_.assign(at(stages_), std::vector<int>(at(input.devices), -1));
  for (size_t s = 0; s < at(stages_); ++s) {
    for (size_t r = 0; r < input.stage_devices[s].size(); ++r)
      replica_of_[s][at(input.stage_devices[s][r])] = static_cast<int>(r);
  }
  const size_t runs = at(stages_) * at(micro_batches_);
  finish_.resize((input.training() ? 2 : 1) * runs);
  device_of_.resize(runs);
  next_.resize(at(input.devices));
  free_.resize(at(input.devices));
  spans_.resize(at(input.devices));
}

// W has no key: only its own device waits for it.
size_t SlotPlayer::key(Phase phase, int stage, int micro_batch) const {
  const size_t p = phase == Phase::forward ? 0 : 1;
  return (p * at(stages_) + at(stage)) * at(micro_batches_) + at(micro_batch);
}

double SlotPlayer::message(int from_stage, int from_device, int to_device) const {
  return from_device == to_device || input_.message_seconds.empty() ? 0 : input_.message_seconds[at(from_stage)];
}

double SlotPlayer::seconds(int device, const ScheduledSlot& slot) const {
  const int replica = replica_of_[at(slot.stage)][at(device)];
  switch (slot.phase) {
    case Phase::forward:
      return input_.stage_seconds[at(slot.stage)][at(replica)];
    case Phase::input_gradient:
      return input_.input_gradient_seconds[at(slot.stage)][at(replica)];
    case Phase::weight_gradient:
      return input_.weight_gradient_seconds[at(slot.stage)][at(replica)];
    case Phase::step:
      return input_.step_seconds.empty() ? 0 : input_.step_seconds[at(slot.stage)][at(replica)];
    case Phase::init:
    case Phase::recompute:
      return 0;
  }
  CHECK(false, "unknown phase");
}

std::optional<ScheduledSlot> SlotPlayer::waits_for(const SlotTable& table, const ScheduledSlot& slot) const {
  if (slot.phase == Phase::forward) {
    if (slot.stage > 0) return ScheduledSlot{slot.stage - 1, Phase::forward, slot.micro_batch};
    if (table.in_flight > 0 && slot.micro_batch >= table.in_flight)
      return ScheduledSlot{stages_ - 1, Phase::forward, slot.micro_batch - table.in_flight};
  }
  if (slot.phase == Phase::input_gradient && slot.stage + 1 < stages_)
    return ScheduledSlot{slot.stage + 1, Phase::input_gradient, slot.micro_batch};
  return std::nullopt;
}

bool SlotPlayer::play(const SlotTable& table, const std::vector<std::vector<double>>* slot_seconds) {
  std::ranges::fill(finish_, not_yet);
  sleepers_.reset(finish_.size(), next_.size());
  std::ranges::fill(next_, 0);
  std::ranges::fill(free_, 0.0);
  makespan_ = 0;
  runnable_.clear();
  size_t left = 0;
  for (int d = input_.devices - 1; d >= 0; --d) {
    runnable_.push_back(static_cast<uint32_t>(d));
    left += table.devices[at(d)].size();
    spans_[at(d)].resize(table.devices[at(d)].size());
  }
  while (!runnable_.empty()) {
    const auto d = static_cast<int>(runnable_.back());
    runnable_.pop_back();
    const std::vector<ScheduledSlot>& order = table.devices[at(d)];
    for (; next_[at(d)] < order.size(); ++next_[at(d)], --left) {
      const ScheduledSlot& slot = order[next_[at(d)]];
      double start = free_[at(d)];
      if (const std::optional<ScheduledSlot> needed = waits_for(table, slot)) {
        const size_t wanted = key(needed->phase, needed->stage, needed->micro_batch);
        if (finish_[wanted] == not_yet) {
          sleepers_.sleep(static_cast<uint32_t>(d), wanted);
          break;
        }
        const int from = device_of_[at(needed->stage) * at(micro_batches_) + at(needed->micro_batch)];
        const bool window = slot.phase == Phase::forward && slot.stage == 0;  // word of it costs no time
        start = std::max(start, finish_[wanted] + (window ? 0 : message(std::min(needed->stage, slot.stage), from, d)));
      }
      const double finish = start + (slot_seconds == nullptr ? seconds(d, slot) : (*slot_seconds)[at(d)][next_[at(d)]]);
      spans_[at(d)][next_[at(d)]] = {start, finish};
      free_[at(d)] = finish;
      makespan_ = std::max(makespan_, finish);
      const bool ends_whole = slot.phase == Phase::weight_gradient && next_[at(d)] > 0 && order[next_[at(d)] - 1].whole;
      const bool ends_input_gradient = ends_whole || (slot.phase == Phase::input_gradient && !slot.whole);
      if (slot.phase != Phase::forward && !ends_input_gradient) continue;
      const size_t done =
          key(ends_input_gradient ? Phase::input_gradient : Phase::forward, slot.stage, slot.micro_batch);
      finish_[done] = finish;
      device_of_[at(slot.stage) * at(micro_batches_) + at(slot.micro_batch)] = d;
      sleepers_.wake(done, [this](uint32_t device) { runnable_.push_back(device); });
    }
  }
  return left == 0;
}

std::optional<TableFault> find_fault(const ScheduleInput& input, const SlotTable& table, const SlotNames& names) {
  if (const Status status = check_schedule_input(input); !status.ok())
    return TableFault{-1, -1, status.error().message};
  Places places(input, table, names);
  if (auto fault = places.read()) return fault;
  if (auto fault = missing_or_misplaced(input, places, names)) return fault;
  SlotPlayer player(input);
  if (!player.play(table)) return circle(player, table, places, names);
  return too_much_kept(input, table);
}

Result<SlotTiming> evaluate(const ScheduleInput& input, const SlotTable& table) {
  if (const auto fault = find_fault(input, table)) {
    if (fault->device < 0 || fault->slot < 0) return invalid_input(fault->reason);
    const ScheduledSlot& slot = table.devices[at(fault->device)][at(fault->slot)];
    return invalid_input(
        fmt::format("{} ({}): {}", SlotNames().of(fault->device, fault->slot), to_string(slot), fault->reason));
  }
  SlotPlayer player(input);
  player.play(table);
  SlotTiming timing;
  timing.slots = player.spans();
  timing.makespan = player.makespan();
  for (int d = 0; d < input.devices; ++d) {
    const std::vector<SlotSpan>& spans = timing.slots[at(d)];
    double busy = 0;
    for (size_t i = 0; i < spans.size(); ++i) busy += player.seconds(d, table.devices[at(d)][i]);
    timing.busy.push_back(busy);
    // A device that has nothing to wait for idles for nothing, not for the rounding of a sum.
    double idle = 0;
    for (size_t i = 1; i < spans.size(); ++i) idle += spans[i].start - spans[i - 1].finish;
    timing.idle_between.push_back(idle);
    int peak = 0;
    int64_t peak_kept = 0;
    if (input.training()) {
      walk_kept(input, table.devices[at(d)], [&](int, int micro_batches, int64_t kept) {
        peak = std::max(peak, micro_batches);
        peak_kept = std::max(peak_kept, kept);
      });
    }
    timing.peak_micro_batches.push_back(peak);
    timing.peak_kept.push_back(bytes(peak_kept));
  }
  return timing;
}

}  // namespace nlsplit::inline schedules
