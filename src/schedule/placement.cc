#include "schedule/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/index.h"
#include "schedule/assign.h"
#include "schedule/evaluate.h"

namespace nlsplit::inline schedules {
namespace {

std::string_view need_of(StagePlacement placement) {
  switch (placement) {
    case StagePlacement::any:
      return "any placement";
    case StagePlacement::chain:
      return "one stage a device";
    case StagePlacement::loop:
      return "stages dealt out in turn: p devices, a multiple of p stages, stage s on device s mod p";
    case StagePlacement::v:
      return "the stages in a V: p devices, 2p stages, stages s and 2p - 1 - s on device s";
    case StagePlacement::mirrored:
      return "two pipelines against each other: an even number p of devices, p stages, stage s on devices s and p - 1 "
             "- s";
  }
  CHECK(false, "unknown placement");
}

std::optional<std::vector<int>> stages_of_device(StagePlacement placement, int devices, int stages, int d) {
  switch (placement) {
    case StagePlacement::any:
    case StagePlacement::loop: {
      if (placement == StagePlacement::loop && stages % devices != 0) return std::nullopt;
      std::vector<int> of;
      for (int s = d; s < stages; s += devices) of.push_back(s);
      return of;
    }
    case StagePlacement::chain:
      if (stages != devices) return std::nullopt;
      return std::vector{d};
    case StagePlacement::v:
      if (stages != 2 * devices) return std::nullopt;
      return std::vector{d, stages - 1 - d};
    case StagePlacement::mirrored:
      if (stages != devices || devices % 2 != 0) return std::nullopt;
      return std::vector{d, devices - 1 - d};
  }
  CHECK(false, "unknown placement");
}

// The plan's devices in a line's order, nothing if the line is not of this placement.
std::optional<std::vector<int>> in_order(StagePlacement placement, const std::vector<int>& stage_device) {
  const auto stages = static_cast<int>(stage_device.size());
  std::vector<int> order;
  for (const int device : stage_device) {
    if (std::ranges::find(order, device) == order.end()) order.push_back(device);
  }
  const auto devices = static_cast<int>(order.size());
  for (int d = 0; d < devices; ++d) {
    const auto wanted = stages_of_device(placement, devices, stages, d);
    if (!wanted) return std::nullopt;
    for (const int s : *wanted) {
      if (stage_device[at(s)] != order[at(d)]) return std::nullopt;
    }
  }
  return order;
}

std::optional<std::vector<int>> mirrored_order(const ScheduleInput& input) {
  const size_t stages = input.stage_devices.size();
  if (stages % 2 != 0) return std::nullopt;
  std::vector<int> order(stages);
  for (size_t s = 0; s < stages; ++s) {
    const std::vector<int>& here = input.stage_devices[s];
    const std::vector<int>& there = input.stage_devices[stages - 1 - s];
    if (here.size() != 2 || there.size() != 2 ||
        std::set(here.begin(), here.end()) != std::set(there.begin(), there.end()))
      return std::nullopt;
    if (s < stages / 2) {
      order[s] = here[0];
      order[stages - 1 - s] = here[1];
    }
  }
  if (std::set(order.begin(), order.end()).size() != stages) return std::nullopt;
  return order;
}

Error misplaced(std::string_view policy, StagePlacement placement, std::string_view why) {
  return unsupported(fmt::format("schedule {} needs {}{}", policy, need_of(placement), why));
}

// [stage] of one line: device -> its seconds.
std::vector<double> seconds_on(const ScheduleInput& input, const std::vector<std::vector<double>>& seconds,
                               const std::vector<int>& stage_device) {
  std::vector<double> of;
  if (seconds.empty()) return of;
  for (size_t s = 0; s < stage_device.size(); ++s) {
    const std::vector<int>& hosts = input.stage_devices[s];
    of.push_back(seconds[s][static_cast<size_t>(std::ranges::find(hosts, stage_device[s]) - hosts.begin())]);
  }
  return of;
}

Line line_of(const ScheduleInput& input, const std::vector<int>& stage_device, size_t devices, int micro_batches) {
  Line line;
  line.devices = static_cast<int>(devices);
  line.stages = static_cast<int>(stage_device.size());
  line.micro_batches = micro_batches;
  line.forward_seconds = seconds_on(input, input.stage_seconds, stage_device);
  line.input_gradient_seconds = seconds_on(input, input.input_gradient_seconds, stage_device);
  line.weight_gradient_seconds = seconds_on(input, input.weight_gradient_seconds, stage_device);
  line.message_seconds = input.message_seconds;
  if (line.message_seconds.empty()) line.message_seconds.assign(stage_device.size(), 0);
  line.kept_until_input_gradient = input.kept_until_input_gradient;
  line.kept_until_weight_gradient = input.kept_until_weight_gradient;
  return line;
}

}  // namespace

Result<std::vector<std::vector<int>>> make_placement(StagePlacement placement, int devices, int stages) {
  if (devices < 1 || stages < 1) return invalid_input("a placement needs at least one device and one stage");
  std::vector<std::vector<int>> stage_devices(at(stages));
  for (int d = 0; d < devices; ++d) {
    const auto wanted = stages_of_device(placement, devices, stages, d);
    if (!wanted) {
      return unsupported(fmt::format("{} stages on {} devices: placement {} means {}", stages, devices,
                                     name_of(placement), need_of(placement)));
    }
    for (const int s : *wanted) stage_devices[at(s)].push_back(d);
  }
  if (placement == StagePlacement::mirrored) {
    for (int s = devices / 2; s < stages; ++s) std::ranges::reverse(stage_devices[at(s)]);
  }
  return stage_devices;
}

Result<SlotTable> schedule_lines(std::string_view policy, StagePlacement placement, const ScheduleInput& input,
                                 const std::function<Result<Orders>(const Line&)>& make) {
  RETURN_IF_ERROR(check_schedule_input(input));
  SlotTable table;
  table.devices.resize(at(input.devices));
  if (placement == StagePlacement::mirrored) {
    const auto order = mirrored_order(input);
    if (!order) return misplaced(policy, placement, "");
    ASSIGN_OR_RETURN(const Orders orders, make(line_of(input, *order, order->size(), input.micro_batches)));
    for (size_t d = 0; d < order->size(); ++d) table.devices[at((*order)[d])] = orders[d];
    finish_training_table(input, table);
    return table;
  }
  const size_t lines = input.stage_devices[0].size();
  std::set<int> used;
  for (size_t k = 0; k < lines; ++k) {
    std::vector<int> stage_device;
    for (const std::vector<int>& devices : input.stage_devices) {
      if (devices.size() != lines)
        return misplaced(policy, placement, ", and the same number of replicas in every stage");
      stage_device.push_back(devices[k]);
    }
    const auto order = in_order(placement, stage_device);
    if (!order) return misplaced(policy, placement, lines > 1 ? ", in every replica" : "");
    for (const int device : *order) {
      if (!used.insert(device).second) return misplaced(policy, placement, ", and replicas on devices of their own");
    }
    const int first = static_cast<int>(k);
    const int share = (input.micro_batches - first + static_cast<int>(lines) - 1) / static_cast<int>(lines);
    if (share < 1) continue;  // more replicas than micro-batches: this one only updates its weights
    ASSIGN_OR_RETURN(Orders orders, make(line_of(input, stage_device, order->size(), share)));
    for (size_t d = 0; d < order->size(); ++d) {
      for (ScheduledSlot& slot : orders[d]) slot.micro_batch = first + slot.micro_batch * static_cast<int>(lines);
      table.devices[at((*order)[d])] = std::move(orders[d]);
    }
  }
  finish_training_table(input, table);
  return table;
}

void finish_training_table(const ScheduleInput& input, SlotTable& table) {
  for (size_t s = 0; s < input.stage_devices.size(); ++s) {
    for (const int device : input.stage_devices[s])
      table.devices[at(device)].push_back({static_cast<int>(s), Phase::step, 0});
  }
  table.instances = instances_of(input, table);
}

int instances_of(const ScheduleInput& input, const SlotTable& table) {
  SlotPlayer player(input);
  if (!player.play(table)) return input.micro_batches;  // the check of the table reports the error
  // A message is there from the start of the slot that makes it until the end of the one that reads it.
  struct Life {
    double from = 0, until = 0;
  };
  std::map<std::pair<Phase, int>, std::vector<Life>> lives;  // by the stage before the message's boundary
  const auto life = [&](Phase phase, int boundary, int micro_batch) -> Life& {
    std::vector<Life>& of = lives[{phase, boundary}];
    of.resize(at(input.micro_batches));
    return of[at(micro_batch)];
  };
  for (size_t d = 0; d < table.devices.size(); ++d) {
    for (size_t i = 0; i < table.devices[d].size(); ++i) {
      const ScheduledSlot& slot = table.devices[d][i];
      const SlotSpan& span = player.spans()[d][i];
      if (slot.phase == Phase::forward) {
        life(Phase::forward, slot.stage, slot.micro_batch).from = span.start;
        if (slot.stage > 0) life(Phase::forward, slot.stage - 1, slot.micro_batch).until = span.finish;
      } else if (slot.phase == Phase::input_gradient) {
        life(Phase::input_gradient, slot.stage, slot.micro_batch).from = span.start;
        const int next = slot.stage + 1;
        if (at(next) < input.stage_devices.size())
          life(Phase::input_gradient, next, slot.micro_batch).until = span.finish;
      }
    }
  }
  int most = 1;
  for (const auto& [where, of] : lives) {
    std::vector<std::pair<double, int>> events;
    for (const Life& one : of) {
      if (one.until <= one.from) continue;
      events.emplace_back(one.from, 1);
      events.emplace_back(one.until, -1);
    }
    std::ranges::sort(events);  // an end before a start at the same time
    int now = 0;
    for (const auto& event : events) most = std::max(most, now += event.second);
  }
  return most;
}

}  // namespace nlsplit::inline schedules
