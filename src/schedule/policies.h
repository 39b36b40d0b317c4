// One function a policy, one file each; schedules.cc lists them.
#pragma once

#include "schedule/schedules.h"

namespace nlsplit {

Result<SlotTable> schedule_streaming(const ScheduleInput& input);
Result<SlotTable> schedule_fill_drain(const ScheduleInput& input);

}  // namespace nlsplit
