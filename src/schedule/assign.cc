#include "schedule/assign.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/index.h"

namespace nlsplit::inline schedules {
namespace {

// The slots that one device still has to run of one stage, micro-batches ascending.
struct Queue {
  int device = 0;
  int stage = 0;
  double seconds = 0;
  std::vector<int> micro_batches;
  size_t next = 0;
};

std::vector<Queue> queues_of(const ScheduleInput& input, const std::vector<std::vector<int>>& replica) {
  std::vector<Queue> queues;
  for (size_t s = 0; s < input.stage_devices.size(); ++s) {
    const size_t first = queues.size();
    for (size_t r = 0; r < input.stage_devices[s].size(); ++r) {
      queues.push_back({input.stage_devices[s][r], static_cast<int>(s), input.stage_seconds[s][r], {}, 0});
    }
    for (int m = 0; m < input.micro_batches; ++m) queues[first + at(replica[s][at(m)])].micro_batches.push_back(m);
  }
  return queues;
}

// When micro-batch m has left all of these stages; infinite: not known yet.
double ready_at(const std::vector<int>& stages, const std::vector<std::vector<double>>& finished, int m) {
  double ready = 0;
  for (const int stage : stages) ready = std::max(ready, finished[at(stage)][at(m)]);
  return ready;
}

SlotTable list_schedule(const ScheduleInput& input, int in_flight) {
  SlotTable table;
  table.devices.resize(at(input.devices));
  std::vector<Queue> queues = queues_of(input, assign_replicas(input));
  const size_t stages = input.stage_devices.size();
  constexpr double never = std::numeric_limits<double>::infinity();
  const std::vector<std::vector<int>> needs = stage_needs(input);
  std::vector<std::vector<double>> finished(stages, std::vector<double>(at(input.micro_batches), never));
  std::vector<size_t> stages_left(at(input.micro_batches), stages);
  std::vector<double> device_free(at(input.devices), 0);
  std::vector<double> left;  // when the i-th micro-batch left all stages, ascending
  const size_t slots = stages * at(input.micro_batches);
  std::vector<int> entered(stages, 0);  // of those that need no other
  for (size_t step = 0; step < slots; ++step) {
    Queue* best = nullptr;
    double best_start = never;
    for (Queue& queue : queues) {
      if (queue.next == queue.micro_batches.size()) continue;
      const int m = queue.micro_batches[queue.next];
      const double ready = ready_at(needs[at(queue.stage)], finished, m);
      if (ready == never) continue;
      double start = std::max(device_free[at(queue.device)], ready);
      if (needs[at(queue.stage)].empty()) {
        if (m != entered[at(queue.stage)]) continue;  // they enter in order, so that "in flight" is a window
        if (m >= in_flight) {
          if (left.size() <= at(m - in_flight)) continue;
          start = std::max(start, left[at(m - in_flight)]);
        }
      }
      if (start < best_start || (start == best_start && queue.stage > best->stage)) {
        best = &queue;
        best_start = start;
      }
    }
    CHECK(best != nullptr, "list scheduling found nothing to run");
    const int m = best->micro_batches[best->next++];
    const double finish = best_start + best->seconds;
    table.devices[at(best->device)].push_back({best->stage, Phase::forward, m});
    device_free[at(best->device)] = finish;
    finished[at(best->stage)][at(m)] = finish;
    if (needs[at(best->stage)].empty()) ++entered[at(best->stage)];
    if (--stages_left[at(m)] > 0) continue;
    double last = 0;
    for (const std::vector<double>& stage : finished) last = std::max(last, stage[at(m)]);
    left.insert(std::upper_bound(left.begin(), left.end(), last), last);
  }
  return table;
}

}  // namespace

std::vector<std::vector<int>> stage_needs(const ScheduleInput& input) {
  if (!input.needs.empty()) return input.needs;
  std::vector<std::vector<int>> needs(input.stage_devices.size());
  for (size_t s = 1; s < needs.size(); ++s) needs[s] = {static_cast<int>(s) - 1};
  return needs;
}

std::vector<std::vector<int>> assign_replicas(const ScheduleInput& input) {
  std::vector<std::vector<int>> replica(input.stage_devices.size(), std::vector<int>(at(input.micro_batches), 0));
  const std::vector<std::vector<int>> needs = stage_needs(input);
  std::vector<std::vector<double>> finished(input.stage_devices.size(),
                                            std::vector<double>(at(input.micro_batches), 0));
  for (size_t s = 0; s < input.stage_devices.size(); ++s) {
    const std::vector<double>& seconds = input.stage_seconds[s];
    std::vector<double> free(seconds.size(), 0);
    std::vector<int> taken(seconds.size(), 0);
    for (size_t m = 0; m < finished[s].size(); ++m) {
      const double arrives = ready_at(needs[s], finished, static_cast<int>(m));
      size_t best = 0;
      double best_finish = std::numeric_limits<double>::infinity();
      for (size_t r = 0; r < seconds.size(); ++r) {
        const double finish = std::max(free[r], arrives) + seconds[r];
        if (finish < best_finish || (finish == best_finish && taken[r] < taken[best])) {
          best = r;
          best_finish = finish;
        }
      }
      free[best] = best_finish;
      ++taken[best];
      replica[s][m] = static_cast<int>(best);
      finished[s][m] = best_finish;
    }
  }
  return replica;
}

bool shares_devices(const ScheduleInput& input) {
  std::vector<int> stages(at(input.devices), 0);
  for (const std::vector<int>& devices : input.stage_devices) {
    for (const int device : devices) {
      if (++stages[at(device)] > 1) return true;
    }
  }
  return false;
}

Result<SlotTable> forward_table(const ScheduleInput& input, int in_flight) {
  RETURN_IF_ERROR(check_schedule_input(input));
  if (shares_devices(input)) return list_schedule(input, in_flight);
  SlotTable table;
  table.devices.resize(at(input.devices));
  for (Queue& queue : queues_of(input, assign_replicas(input))) {
    for (const int m : queue.micro_batches) table.devices[at(queue.device)].push_back({queue.stage, Phase::forward, m});
  }
  return table;
}

Status check_schedule_input(const ScheduleInput& input) {
  if (input.micro_batches < 1) return invalid_input("a schedule needs at least one micro-batch");
  if (input.stage_devices.empty()) return invalid_input("a schedule needs at least one stage");
  if (input.stage_seconds.size() != input.stage_devices.size())
    return invalid_input("a schedule needs the times of every stage");
  if (input.in_flight < 0) return invalid_input("a schedule cannot have fewer than no micro-batches in flight");
  const size_t stages = input.stage_devices.size();
  if (!input.needs.empty() && input.needs.size() != stages)
    return invalid_input("a schedule needs to know of every stage which others it needs, or of none");
  for (size_t s = 0; s < input.needs.size(); ++s) {
    for (const int before : input.needs[s]) {
      if (before < 0 || at(before) >= s) return invalid_input(fmt::format("stage {} needs stage {}", s, before));
    }
  }
  const bool training = input.training();
  if ((training && (input.input_gradient_seconds.size() != stages || input.weight_gradient_seconds.size() != stages)) ||
      (!input.step_seconds.empty() && input.step_seconds.size() != stages) ||
      (!input.message_seconds.empty() && input.message_seconds.size() != stages) ||
      (!input.kept_until_input_gradient.empty() && input.kept_until_input_gradient.size() != stages) ||
      (!input.kept_until_weight_gradient.empty() && input.kept_until_weight_gradient.size() != stages))
    return invalid_input("a schedule for training needs the times and bytes of every stage");
  if (!input.device_memory.empty() && input.device_memory.size() != at(input.devices))
    return invalid_input("a schedule needs the memory of every device, or of none");
  for (size_t s = 0; s < stages; ++s) {
    const std::vector<int>& devices = input.stage_devices[s];
    if (devices.empty()) return invalid_input(fmt::format("stage {} has no device", s));
    for (size_t r = 0; r < devices.size(); ++r) {
      if (devices[r] < 0 || devices[r] >= input.devices)
        return invalid_input(fmt::format("stage {}: no device {}", s, devices[r]));
      if (std::count(devices.begin(), devices.end(), devices[r]) > 1) {
        return invalid_input(fmt::format("stage {}: device {} twice", s, devices[r]));
      }
      for (const auto* times :
           {&input.stage_seconds, &input.input_gradient_seconds, &input.weight_gradient_seconds, &input.step_seconds}) {
        if (times->empty()) continue;
        if ((*times)[s].size() != devices.size()) {
          return invalid_input(
              fmt::format("stage {} has {} devices, but times for {}", s, devices.size(), (*times)[s].size()));
        }
        if (!((*times)[s][r] >= 0) || !std::isfinite((*times)[s][r]))
          return invalid_input(fmt::format("stage {}: impossible time {}", s, (*times)[s][r]));
      }
    }
  }
  return ok_status();
}

}  // namespace nlsplit::inline schedules
