// schedule_NAME() of each schedule, which schedules.def lists.
#pragma once

#include "schedule/schedules.h"

namespace nlsplit::inline schedules {

#define NLS_SCHEDULE(name, ...) Result<SlotTable> schedule_##name(const ScheduleInput& input);
#include "schedule/schedules.def"

}  // namespace nlsplit::inline schedules
