// For forward-only schedules: which replica takes which micro-batch, and the order of each device's slots.
#pragma once

#include "schedule/schedules.h"

namespace nlsplit::inline schedules {

// [stage][micro-batch]: the replica that takes it. Micro-batches go through the stages in order; each goes to the
// replica that would finish it first, including the messages there and to the sink; among equals to the one with the
// fewest (so equal replicas are used round-robin). Messages to the replicas of a stage pass a link one after the other.
std::vector<std::vector<int>> assign_replicas(const ScheduleInput& input);

// ScheduleInput::needs, or that each stage needs the one before it.
std::vector<std::vector<int>> stage_needs(const ScheduleInput& input);

// Whether some device hosts more than one stage.
bool shares_devices(const ScheduleInput& input);

// The order of every device. A device with one stage runs its micro-batches as they come. Devices with several stages
// get a static order by list scheduling: of the slots that could start first, the one of the latest stage; a
// micro-batch enters only while fewer than `in_flight` are between the first stage and the last. So no buffer needs
// more than `in_flight` instances, and since the list schedule is itself an execution, the orders cannot deadlock.
Result<SlotTable> forward_table(const ScheduleInput& input, int in_flight);

// Errors: no stages or micro-batches, a stage without devices or with one that does not exist, times missing or
// negative.
Status check_schedule_input(const ScheduleInput& input);

}  // namespace nlsplit::inline schedules
