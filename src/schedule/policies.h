// One function a policy, one file each; schedules.cc lists them.
#pragma once

#include "schedule/schedules.h"

namespace nlsplit::inline schedules {

Result<SlotTable> schedule_sequential(const ScheduleInput& input);
Result<SlotTable> schedule_streaming(const ScheduleInput& input);
Result<SlotTable> schedule_fill_drain(const ScheduleInput& input);

Result<SlotTable> schedule_gpipe(const ScheduleInput& input);
Result<SlotTable> schedule_1f1b(const ScheduleInput& input);
Result<SlotTable> schedule_interleaved(const ScheduleInput& input);
Result<SlotTable> schedule_looped_bfs(const ScheduleInput& input);
Result<SlotTable> schedule_zb_h1(const ScheduleInput& input);
Result<SlotTable> schedule_zb_h2(const ScheduleInput& input);
Result<SlotTable> schedule_zb_v(const ScheduleInput& input);
Result<SlotTable> schedule_dualpipe(const ScheduleInput& input);
Result<SlotTable> schedule_dualpipe_v(const ScheduleInput& input);

Result<SlotTable> schedule_list(const ScheduleInput& input);
Result<SlotTable> schedule_search(const ScheduleInput& input);

}  // namespace nlsplit::inline schedules
