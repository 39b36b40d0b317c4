// Fill and drain: all micro-batches may be in flight at once, no slot waits for a buffer. The forward half of GPipe:
// Huang et al., "GPipe: efficient training of giant neural networks using pipeline parallelism", NeurIPS 2019. With S
// equal stages and M micro-batches the bubble is (S - 1) / (M + S - 1), and a buffer holds M micro-batches.
#include "schedule/assign.h"
#include "schedule/policies.h"

namespace nlsplit::inline schedules {

Result<SlotTable> schedule_fill_drain(const ScheduleInput& input) {
  ASSIGN_OR_RETURN(SlotTable table, forward_table(input, input.micro_batches));
  table.instances = input.micro_batches;
  return table;
}

}  // namespace nlsplit::inline schedules
