// What a table must be to be a plan's training schedule.
#include <fmt/format.h>

#include <algorithm>

#include "program/lower_training.h"

namespace nlsplit {
namespace {

// Which phases every micro-batch goes through.
constexpr Phase work_phases[] = {Phase::forward, Phase::input_gradient, Phase::weight_gradient};

class Table {
 public:
  Table(const TrainingInput& input, TrainingOrders& orders) : in_(input), orders_(orders) {}

  // The table is checked; recomputation before every I unless the table says where; and no step where there is nothing
  // to update.
  Result<SlotLists> complete() {
    const auto micro_batches = at(in_.plan->micro_batches);
    const size_t stages = in_.plan->stages.size();
    orders_.stage_device.assign(stages, std::vector<int>(micro_batches, -1));
    orders_.whole.assign(stages, std::vector<bool>(micro_batches, false));
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
    SlotLists complete(at(in_.schedule->devices));
    for (size_t d = 0; d < in_.table->devices.size(); ++d) {
      for (const ScheduledSlot& slot : in_.table->devices[d]) {
        const std::vector<int>& ring = orders_.rings[at(slot.stage)];
        if (slot.phase == Phase::step && std::ranges::find(ring, static_cast<int>(d)) == ring.end()) continue;
        if (recompute && !has_recompute && slot.phase == Phase::input_gradient)
          complete[d].push_back({slot.stage, Phase::recompute, slot.micro_batch});
        complete[d].push_back(slot);
        if (slot.phase == Phase::step) complete[d].back().micro_batch = 0;
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
    if (slot.phase == Phase::input_gradient) orders_.whole[at(slot.stage)][at(slot.micro_batch)] = slot.whole;
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

}  // namespace

std::string slot_text(const ScheduledSlot& slot) {
  return slot.phase == Phase::step
             ? fmt::format("the step of stage {}", slot.stage)
             : fmt::format("stage {} {} of micro-batch {}", slot.stage, name_of(slot.phase), slot.micro_batch);
}

Result<SlotLists> complete_table(const TrainingInput& input, TrainingOrders& orders) {
  return Table(input, orders).complete();
}

}  // namespace nlsplit
