// Which stages stand on which device: what a policy needs, made for a shape and recognised in a plan.
//
//   ASSIGN_OR_RETURN(auto devices, make_placement(StagePlacement::v, 4, 8));   // {0} {1} {2} {3} {3} {2} {1} {0}
//   return schedule_lines("zb_v", StagePlacement::v, input, [](const Line& line) { … });
//
// A plan whose stages all have r replicas is r lines side by side, which share nothing until they all-reduce gradients:
// line k has the k-th device of every stage and takes micro-batches k, k + r, k + 2r, …
#pragma once

#include <functional>
#include <vector>

#include "schedule/schedules.h"

namespace nlsplit::inline schedules {

// [stage]: its devices. Error: the shape is none of this placement, and what it would need.
Result<std::vector<std::vector<int>>> make_placement(StagePlacement placement, int devices, int stages);

// One pipeline, its devices numbered 0 to devices - 1 in the order in which stages 0 to devices - 1 stand on them, its
// micro-batches from 0.
struct Line {
  int devices = 0;
  int stages = 0;
  int micro_batches = 0;
  // [stage], on the device that hosts it in this line; of placement mirrored on the device `stage`.
  std::vector<double> forward_seconds, input_gradient_seconds, weight_gradient_seconds;
  std::vector<double> message_seconds;                                       // [stage]: to the next one
  std::vector<Bytes> kept_until_input_gradient, kept_until_weight_gradient;  // [stage], or empty
};

using Orders = std::vector<std::vector<ScheduledSlot>>;  // [device of the line]

// The orders of `make` for every line of the plan, in the plan's devices and micro-batches, with a step for every stage
// at the end, and as many instances as they need. Errors: there are no such lines in the plan; those of `make`.
Result<SlotTable> schedule_lines(std::string_view policy, StagePlacement placement, const ScheduleInput& input,
                                 const std::function<Result<Orders>(const Line&)>& make);

// Steps at the end of every order, and the instances. For policies that do without lines.
void finish_training_table(const ScheduleInput& input, SlotTable& table);

// The most micro-batches that are between two stages, or in one of them, at a time when the table is played: so many
// instances of a buffer let it be run as it was played.
int instances_of(const ScheduleInput& input, const SlotTable& table);

// Adds F, I, W or a whole B to an order.
inline void add_forward(std::vector<ScheduledSlot>& order, int stage, int micro_batch) {
  order.push_back({stage, Phase::forward, micro_batch});
}
inline void add_input_gradient(std::vector<ScheduledSlot>& order, int stage, int micro_batch) {
  order.push_back({stage, Phase::input_gradient, micro_batch});
}
inline void add_weight_gradient(std::vector<ScheduledSlot>& order, int stage, int micro_batch) {
  order.push_back({stage, Phase::weight_gradient, micro_batch});
}
inline void add_backward(std::vector<ScheduledSlot>& order, int stage, int micro_batch) {
  order.push_back({stage, Phase::input_gradient, micro_batch, true});
  add_weight_gradient(order, stage, micro_batch);
}

}  // namespace nlsplit::inline schedules
