// Looped breadth-first: every device hosts v stages, p apart, and takes all micro-batches through one before it begins
// the next. Lamy-Poirier, "Breadth-first pipeline parallelism", MLSys 2023, section 4.1, figure 4b: weights of a stage
// are gathered once, gradients reduced while the next stage runs. With equal stages and m >= p: bubble
// (p - 1)(T_F + T_I + T_W), which is (p - 1) / (v m) of the ideal time, as interleaved; but all v m are kept.
#include "schedule/placement.h"
#include "schedule/policies.h"

namespace nlsplit::inline schedules {

Result<SlotTable> schedule_looped_bfs(const ScheduleInput& input) {
  return schedule_lines("looped_bfs", StagePlacement::loop, input, [](const Line& line) -> Result<Orders> {
    Orders orders(static_cast<size_t>(line.devices));
    for (int i = 0; i < line.devices; ++i) {
      std::vector<ScheduledSlot>& order = orders[static_cast<size_t>(i)];
      for (int s = i; s < line.stages; s += line.devices) {
        for (int m = 0; m < line.micro_batches; ++m) add_forward(order, s, m);
      }
      for (int s = line.stages - line.devices + i; s >= 0; s -= line.devices) {
        for (int m = line.micro_batches - 1; m >= 0; --m) add_backward(order, s, m);
      }
    }
    return orders;
  });
}

}  // namespace nlsplit::inline schedules
