// GPipe: all micro-batches forward, then all backward, the last one first; any placement. Huang et al., "GPipe:
// efficient training of giant neural networks using pipeline parallelism", NeurIPS 2019, section 2.3, figure 2c.
// With p equal stages on p devices: bubble (p - 1)(T_F + T_I + T_W), of the whole (p - 1) / (m + p - 1); every device
// keeps all m micro-batches.
//
// The backward half is the forward half mirrored: what may go first there must go last here, so where the forward
// orders cannot deadlock, these cannot.
#include <algorithm>

#include "schedule/assign.h"
#include "schedule/placement.h"
#include "schedule/policies.h"

namespace nlsplit::inline schedules {

Result<SlotTable> schedule_gpipe(const ScheduleInput& input) {
  ASSIGN_OR_RETURN(SlotTable table, forward_table(input, input.micro_batches));
  for (std::vector<ScheduledSlot>& order : table.devices) {
    const std::vector<ScheduledSlot> forward = order;
    for (auto slot = forward.rbegin(); slot != forward.rend(); ++slot)
      add_backward(order, slot->stage, slot->micro_batch);
  }
  finish_training_table(input, table);
  return table;
}

}  // namespace nlsplit::inline schedules
