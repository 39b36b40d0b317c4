// Streaming: every device runs its micro-batches as they come, and no buffer holds more than two (or in_flight), one
// being computed with while the other is under way. A device that is ahead waits (back-pressure), so memory does not
// grow with the number of micro-batches. Where a device hosts several stages, a micro-batch must get through all of
// them while others wait in front of each, so there are two in flight for each stage instead of two for each buffer.
#include <algorithm>

#include "schedule/assign.h"
#include "schedule/policies.h"

namespace nlsplit::inline schedules {

Result<SlotTable> schedule_streaming(const ScheduleInput& input) {
  RETURN_IF_ERROR(check_schedule_input(input));
  const int64_t to_a_buffer = input.in_flight > 0 ? input.in_flight : 2;  // one computed with, one under way
  const int64_t stages =
      input.pipeline_stages > 0 ? input.pipeline_stages : static_cast<int64_t>(input.stage_devices.size());
  const int64_t wanted = shares_devices(input) ? to_a_buffer * stages : to_a_buffer;
  const int instances = static_cast<int>(std::min<int64_t>(wanted, input.micro_batches));
  ASSIGN_OR_RETURN(SlotTable table, forward_table(input, instances));
  table.instances = instances;
  return table;
}

}  // namespace nlsplit::inline schedules
