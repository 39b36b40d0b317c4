// 1F1B: after p - i micro-batches forward, device i alternates one backward with one forward. Narayanan et al.,
// "Memory-efficient pipeline-parallel DNN training", ICML 2021 (PipeDream-flush), section 3.2, figure 2b.
// With p equal stages: bubble (p - 1)(T_F + T_I + T_W) as GPipe's, but device i keeps at most p - i micro-batches.
#include <algorithm>

#include "schedule/placement.h"
#include "schedule/policies.h"

namespace nlsplit::inline schedules {

Result<SlotTable> schedule_1f1b(const ScheduleInput& input) {
  return schedule_lines("1f1b", StagePlacement::chain, input, [](const Line& line) -> Result<Orders> {
    Orders orders(static_cast<size_t>(line.devices));
    for (int i = 0; i < line.devices; ++i) {
      std::vector<ScheduledSlot>& order = orders[static_cast<size_t>(i)];
      const int ahead = std::min(line.micro_batches, line.devices - i);
      for (int m = 0; m < ahead; ++m) add_forward(order, i, m);
      for (int m = 0; m < line.micro_batches; ++m) {
        add_backward(order, i, m);
        if (m + ahead < line.micro_batches) add_forward(order, i, m + ahead);
      }
    }
    return orders;
  });
}

}  // namespace nlsplit::inline schedules
