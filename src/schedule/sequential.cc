// Sequential: a micro-batch enters when the one before has left, so one device works at a time. What a network too
// large for one machine does without pipelining ("naive model parallelism": Huang et al., "GPipe", NeurIPS 2019,
// section 1, figure 2b). With S equal stages on S devices the bubble is 1 - 1/S, however many micro-batches there are.
#include "schedule/assign.h"
#include "schedule/policies.h"

namespace nlsplit::inline schedules {

Result<SlotTable> schedule_sequential(const ScheduleInput& input) {
  ASSIGN_OR_RETURN(SlotTable table, forward_table(input, 1));
  table.instances = 1;
  table.in_flight = 1;
  return table;
}

}  // namespace nlsplit::inline schedules
