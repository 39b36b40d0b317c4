// Of pass `schedule`: training under a plan that splits layers. The devices that share a stage do the same slots in the
// same order, so for a policy they are one device, and the stages that a stage was expanded to are one stage. Its table
// is then written out for each device: what the device has of a stage in the order of the stages, backward in the
// reverse order, each W behind the I it goes with. So a policy is given the shape it is made for, and the exchange of a
// gradient goes on while its W is computed.
#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "compile/lowering.h"

namespace nlsplit::inline compiler {
namespace {

// Devices that share some stage, each device in one group, numbered in the order of the stages.
class Groups {
 public:
  Groups(const std::vector<std::vector<int>>& parts, const std::vector<std::vector<int>>& stage_devices, int devices)
      : leader_(at(devices)), number_(at(devices), -1) {
    std::iota(leader_.begin(), leader_.end(), 0);
    for (const std::vector<int>& stages : parts) {
      for (const int stage : stages) {
        for (size_t r = 0; r < stage_devices[at(stage)].size(); ++r)
          join(stage_devices[at(stages[0])][r], stage_devices[at(stage)][r]);
      }
    }
    for (const std::vector<int>& on : stage_devices) {
      for (const int device : on) {
        int& number = number_[at(leader(device))];
        if (number < 0) number = count_++;
      }
    }
  }
  int count() const { return count_; }
  int of(int device) const { return number_[at(leader(device))]; }

 private:
  int leader(int device) const {
    while (leader_[at(device)] != device) device = leader_[at(device)];
    return device;
  }
  void join(int a, int b) { leader_[at(leader(b))] = leader(a); }

  std::vector<int> leader_;  // [device]
  std::vector<int> number_;  // [leader]
  int count_ = 0;
};

class GroupedStages {
 public:
  GroupedStages(const Plan& plan, const ScheduleInput& input)
      : input_(input), parts_(parts_of(plan)), groups_(parts_, input.stage_devices, input.devices) {}

  // Of each stage the stages it was expanded to.
  const std::vector<std::vector<int>>& parts() const { return parts_; }

  // Without messages. None: a stage has two replicas in one group, so that its devices do not all do the same.
  std::optional<ScheduleInput> input() const {
    ScheduleInput grouped;
    grouped.micro_batches = input_.micro_batches;
    grouped.devices = groups_.count();
    for (const std::vector<int>& stages : parts_) {
      std::vector<int>& on = grouped.stage_devices.emplace_back();
      for (const int device : input_.stage_devices[at(stages[0])]) on.push_back(groups_.of(device));
      if (std::set(on.begin(), on.end()).size() != on.size()) return std::nullopt;
      grouped.stage_seconds.push_back(longest(stages, input_.stage_seconds));
      grouped.input_gradient_seconds.push_back(longest(stages, input_.input_gradient_seconds));
      grouped.weight_gradient_seconds.push_back(longest(stages, input_.weight_gradient_seconds));
      grouped.kept_until_input_gradient.push_back(most(stages, input_.kept_until_input_gradient));
      grouped.kept_until_weight_gradient.push_back(most(stages, input_.kept_until_weight_gradient));
    }
    grouped.device_memory.assign(at(grouped.devices), bytes(std::numeric_limits<int64_t>::max()));
    for (int d = 0; d < input_.devices; ++d) {
      Bytes& least = grouped.device_memory[at(groups_.of(d))];
      least = std::min(least, input_.device_memory[at(d)]);
    }
    return grouped;
  }

  SlotTable written_out(const SlotTable& table) const {
    SlotTable out;
    out.in_flight = table.in_flight;
    out.room = table.room;
    out.instances = input_.micro_batches;  // messages go to others than the next stage, and wait longer
    for (int d = 0; d < input_.devices; ++d) out.devices.push_back(order_of(d, table.devices[at(groups_.of(d))]));
    return out;
  }

 private:
  // [stage of the plan before it was expanded]: its stages, ascending.
  static std::vector<std::vector<int>> parts_of(const Plan& plan) {
    std::map<int, std::vector<int>> parts;
    for (size_t s = 0; s < plan.stages.size(); ++s) parts[plan.stages[s].part_of].push_back(static_cast<int>(s));
    std::vector<std::vector<int>> in_order;
    for (auto& [whole, stages] : parts) in_order.push_back(std::move(stages));
    return in_order;
  }

  // [replica]: of the device that takes longest.
  std::vector<double> longest(const std::vector<int>& stages, const std::vector<std::vector<double>>& seconds) const {
    std::vector<double> of;
    for (size_t r = 0; r < input_.stage_devices[at(stages[0])].size(); ++r) {
      std::map<int, double> by_device;
      for (const int s : stages) by_device[input_.stage_devices[at(s)][r]] += seconds[at(s)][r];
      of.push_back(std::ranges::max_element(by_device, {}, &std::pair<const int, double>::second)->second);
    }
    return of;
  }

  Bytes most(const std::vector<int>& stages, const std::vector<Bytes>& kept) const {
    std::map<int, int64_t> by_device;
    for (const int s : stages) by_device[input_.stage_devices[at(s)][0]] += kept[at(s)].value();
    return bytes(std::ranges::max_element(by_device, {}, &std::pair<const int, int64_t>::second)->second);
  }

  std::vector<ScheduledSlot> order_of(int device, const std::vector<ScheduledSlot>& slots) const {
    std::vector<ScheduledSlot> order;
    for (size_t i = 0; i < slots.size(); ++i) {
      const ScheduledSlot& slot = slots[i];
      std::vector<int> here;
      for (const int s : parts_[at(slot.stage)]) {
        const std::vector<int>& on = input_.stage_devices[at(s)];
        if (std::ranges::find(on, device) != on.end()) here.push_back(s);
      }
      const bool backward = slot.phase == Phase::input_gradient || slot.phase == Phase::weight_gradient;
      if (backward) std::ranges::reverse(here);
      const bool both = slot.whole && slot.phase == Phase::input_gradient;  // the next slot is its W
      for (const int s : here) {
        order.push_back({s, slot.phase, slot.micro_batch});
        if (both) order.push_back({s, Phase::weight_gradient, slot.micro_batch});
      }
      if (both) ++i;
    }
    return order;
  }

  const ScheduleInput& input_;
  std::vector<std::vector<int>> parts_;
  Groups groups_;
};

// [stage before it was expanded]: what the device that is sent most gets of a micro-batch from there for the next one.
Result<std::vector<double>> message_seconds(const Lowering& lowering, const std::vector<std::vector<int>>& parts) {
  std::vector<double> seconds(parts.size(), 0);
  for (size_t p = 0; p + 1 < parts.size(); ++p) {
    std::map<int, double> by_device;
    for (const Flow& flow : lowering.flows) {
      if (flow.backward || std::ranges::find(parts[p], flow.producer) == parts[p].end()) continue;
      const int from = lowering.stage_devices[at(flow.producer)][0];
      std::set<int> to;
      for (const int consumer : flow.consumers) {
        if (std::ranges::find(parts[p + 1], consumer) != parts[p + 1].end())
          to.insert(lowering.stage_devices[at(consumer)][0]);
      }
      for (const int device : to) {
        ASSIGN_OR_RETURN(const double one, flow_seconds(lowering, flow, from, device));
        by_device[device] += one;
      }
    }
    for (const auto& [device, sum] : by_device) seconds[p] = std::max(seconds[p], sum);
  }
  return seconds;
}

}  // namespace

Result<std::optional<ScheduleInput>> grouped_input(const Lowering& lowering, const ScheduleInput& input) {
  if (lowering.training == nullptr || lowering.plan->stages.front().part_of < 0) return std::optional<ScheduleInput>();
  const GroupedStages grouped(*lowering.plan, input);
  std::optional<ScheduleInput> made = grouped.input();
  if (made && lowering.costs != nullptr) {
    ASSIGN_OR_RETURN(made->message_seconds, message_seconds(lowering, grouped.parts()));
  }
  return made;
}

SlotTable written_out(const Lowering& lowering, const SlotTable& table) {
  return GroupedStages(*lowering.plan, lowering.schedule).written_out(table);
}

}  // namespace nlsplit::inline compiler
