// Of pass `schedule`: what a table must be to be a plan's schedule.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "compile/lowering.h"

namespace nlsplit::inline compiler {
namespace {

constexpr size_t phase_count = static_cast<size_t>(Phase::step) + 1;

class TableCheck {
 public:
  TableCheck(Lowering& lowering, SlotTable table) : lowering_(lowering), table_(std::move(table)) {}

  Status complete() {
    const auto micro_batches = at(lowering_.micro_batches());
    const size_t stages = at(lowering_.stages());
    lowering_.stage_device = Grid<int>(stages, micro_batches, -1);
    lowering_.whole = Grid<char>(stages, micro_batches, 0);
    lowering_.reductions.assign(stages, {});
    seen_.assign(stages * phase_count * micro_batches, false);
    if (table_.devices.size() > lowering_.devices.size()) return wrong("it has more devices than the plan");
    for (size_t d = 0; d < table_.devices.size(); ++d) {
      for (const ScheduledSlot& slot : table_.devices[d]) {
        RETURN_IF_ERROR(check_slot(static_cast<int>(d), slot));
      }
    }
    RETURN_IF_ERROR(check_all_run());
    if (lowering_.training != nullptr) RETURN_IF_ERROR(find_groups());
    if (lowering_.training != nullptr) complete_slots();
    if (lowering_.steps_together()) steps_last(table_);
    table_.devices.resize(lowering_.devices.size());
    lowering_.table = std::move(table_);
    return ok_status();
  }

 private:
  Error wrong(const std::string& why) const {
    return invalid_input(fmt::format("schedule {}: {}", lowering_.plan->schedule, why));
  }

  size_t index_of(int stage, Phase phase, int m) const {
    return (at(stage) * phase_count + static_cast<size_t>(phase)) * at(lowering_.micro_batches()) + at(m);
  }

  Status check_slot(int d, const ScheduledSlot& slot) {
    if (lowering_.training == nullptr && slot.phase != Phase::forward)
      return unsupported(fmt::format("schedule {}: only forward slots can be lowered", lowering_.plan->schedule));
    const int stages = lowering_.stages();
    if (slot.stage < 0 || slot.stage >= stages)
      return wrong(fmt::format("device {} runs stage {}; the plan has {}", d, slot.stage, stages));
    const std::vector<int>& devices = lowering_.stage_devices[at(slot.stage)];
    if (std::ranges::find(devices, d) == devices.end())
      return wrong(fmt::format("device {} runs {}, but does not have that stage", d, slot_text(slot)));
    if (slot.phase == Phase::init) return wrong("it has an init slot, which is not part of a micro-batch");
    if (slot.phase == Phase::step) {
      const std::pair<int, int> step{d, slot.stage};
      if (std::ranges::find(steps_, step) != steps_.end())
        return wrong(fmt::format("device {} runs {} twice", d, slot_text(slot)));
      steps_.push_back(step);
      return ok_status();
    }
    if (slot.micro_batch < 0 || slot.micro_batch >= lowering_.micro_batches())
      return wrong(fmt::format("device {} runs {}; there are {}", d, slot_text(slot), lowering_.micro_batches()));
    const size_t index = index_of(slot.stage, slot.phase, slot.micro_batch);
    if (seen_[index]) return wrong(fmt::format("{} runs twice, the second time on device {}", slot_text(slot), d));
    seen_[index] = true;
    if (slot.phase == Phase::input_gradient) lowering_.whole[at(slot.stage)][at(slot.micro_batch)] = slot.whole ? 1 : 0;
    if (slot.phase == Phase::recompute) {
      if (!lowering_.recomputes(slot.stage))
        return wrong(fmt::format("{}: the plan keeps all activations of stage {} (recompute: full)", slot_text(slot),
                                 slot.stage));
      recomputes_ = true;
    }
    int& device = lowering_.stage_device[at(slot.stage)][at(slot.micro_batch)];
    if (device >= 0 && device != d)
      return wrong(
          fmt::format("{} runs on device {}, but another phase of it on device {}", slot_text(slot), d, device));
    device = d;
    return ok_status();
  }

  // Every micro-batch goes through all phases of every stage.
  Status check_all_run() const {
    std::vector<Phase> phases{Phase::forward};
    if (lowering_.training != nullptr) phases.insert(phases.end(), {Phase::input_gradient, Phase::weight_gradient});
    for (int s = 0; s < lowering_.stages(); ++s) {
      for (int m = 0; m < lowering_.micro_batches(); ++m) {
        for (const Phase phase : phases) {
          if (!seen_[index_of(s, phase, m)])
            return wrong(fmt::format("micro-batch {} never runs through stage {} {}", m, s, name_of(phase)));
        }
        if (recomputes_ && lowering_.recomputes(s) && !seen_[index_of(s, Phase::recompute, m)])
          return wrong(fmt::format("stage {} recomputes other micro-batches, but not {}", s, m));
      }
    }
    return ok_status();
  }

  // Of each stage the devices that had a micro-batch; the others have nothing to update.
  Status find_groups() {
    for (int s = 0; s < lowering_.stages(); ++s) {
      for (const int device : lowering_.stage_devices[at(s)]) {
        const std::span<const int> of = lowering_.stage_device[at(s)];
        if (std::ranges::find(of, device) == of.end()) continue;
        if (std::ranges::find(steps_, std::pair(device, s)) == steps_.end())
          return wrong(fmt::format("device {} never steps stage {}", device, s));
        lowering_.reductions[at(s)].group.push_back(device);
      }
    }
    return ok_status();
  }

  void complete_slots() {
    for (size_t d = 0; d < table_.devices.size(); ++d) {
      std::vector<ScheduledSlot> slots;
      for (const ScheduledSlot& slot : table_.devices[d]) {
        const std::vector<int>& group = lowering_.reductions[at(slot.stage)].group;
        if (slot.phase == Phase::step && std::ranges::find(group, static_cast<int>(d)) == group.end()) continue;
        if (lowering_.recomputes(slot.stage) && !recomputes_ && slot.phase == Phase::input_gradient)
          slots.push_back({slot.stage, Phase::recompute, slot.micro_batch});
        slots.push_back(slot);
        if (slot.phase == Phase::step) slots.back().micro_batch = 0;
      }
      table_.devices[d] = std::move(slots);
    }
  }

  Lowering& lowering_;
  SlotTable table_;
  bool recomputes_ = false;                 // the table says where
  std::vector<bool> seen_;                  // [stage][phase][micro-batch]
  std::vector<std::pair<int, int>> steps_;  // device, stage
};

}  // namespace

void steps_last(SlotTable& table) {
  for (std::vector<ScheduledSlot>& slots : table.devices) {
    const auto steps = std::stable_partition(slots.begin(), slots.end(),
                                             [](const ScheduledSlot& s) { return s.phase != Phase::step; });
    std::ranges::sort(steps, slots.end(), {}, &ScheduledSlot::stage);
  }
}

std::string slot_text(const ScheduledSlot& slot) {
  return slot.phase == Phase::step
             ? fmt::format("the step of stage {}", slot.stage)
             : fmt::format("stage {} {} of micro-batch {}", slot.stage, name_of(slot.phase), slot.micro_batch);
}

Status complete_table(Lowering& lowering, SlotTable table) { return TableCheck(lowering, std::move(table)).complete(); }

}  // namespace nlsplit::inline compiler
