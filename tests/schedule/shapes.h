// Plans of equal stages, as the papers draw them.
#pragma once

#include <fmt/format.h>

#include "schedule/evaluate.h"
#include "schedule/placement.h"
#include "schedule/schedules.h"

namespace nlsplit {

struct StageTimes {
  double forward = 1, input_gradient = 1, weight_gradient = 1;
  double backward() const { return input_gradient + weight_gradient; }
  double all() const { return forward + backward(); }
};

// Training of `stages` equal stages in the placement the policy needs.
inline ScheduleInput training_shape(std::string_view policy, int devices, int stages, int micro_batches,
                                    StageTimes times = {}, double message_seconds = 0) {
  ScheduleInput input;
  input.micro_batches = micro_batches;
  input.devices = devices;
  input.stage_devices = make_placement((*find_schedule(policy))->placement, devices, stages).value();
  for (const std::vector<int>& on : input.stage_devices) {
    input.stage_seconds.emplace_back(on.size(), times.forward);
    input.input_gradient_seconds.emplace_back(on.size(), times.input_gradient);
    input.weight_gradient_seconds.emplace_back(on.size(), times.weight_gradient);
    input.message_seconds.push_back(message_seconds);
  }
  return input;
}

inline std::string error_of(std::string_view policy, const ScheduleInput& input) {
  const auto table = make_schedule(policy, input);
  return table.ok() ? "" : table.error().message;
}

}  // namespace nlsplit
