// Streaming: every device runs its micro-batches as they come, and no buffer holds more than two, one being computed
// with while the other is under way. A device that is ahead waits (back-pressure), so memory does not grow with the
// number of micro-batches. Where a device hosts several stages, a micro-batch must get through all of them while others
// wait in front of each, so there are two in flight for each stage instead of two for each buffer.
#include <algorithm>

#include "schedule/assign.h"
#include "schedule/policies.h"

namespace nlsplit {

Result<SlotTable> schedule_streaming(const ScheduleInput& input) {
  RETURN_IF_ERROR(check_schedule_input(input));
  constexpr int64_t double_buffer = 2;
  const int64_t wanted =
      shares_devices(input) ? double_buffer * static_cast<int64_t>(input.stage_devices.size()) : double_buffer;
  const int banks = static_cast<int>(std::min<int64_t>(wanted, input.micro_batches));
  ASSIGN_OR_RETURN(SlotTable table, forward_table(input, banks));
  table.banks = banks;
  return table;
}

}  // namespace nlsplit
