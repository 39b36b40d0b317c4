// ZB-H1 and ZB-H2: the weight gradient waits until there is nothing more urgent. Qi et al., "Zero bubble pipeline
// parallelism", ICLR 2024 (arXiv 2401.10241), section 2, figures 2 and 3, table 2; T_B there is T_I here.
//   ZB-H1  keeps p micro-batches as 1F1B does; device i is i micro-batches late with W.
//          Bubble (p - 1)(T_F + T_I - T_W).
//   ZB-H2  keeps 2p - 1; device i takes 2(p - i) - 1 ahead and is 2i late with W.
//          Bubble (p - 1)(T_F + T_I - 2 T_W), 0 for equal times: every device starts a T_F after the one before and
//          ends as much later, so its optimizer step must not wait for the others (section 4).
// Bubble there is what a device idles between its first slot and its last.
#include <algorithm>

#include "schedule/placement.h"
#include "schedule/policies.h"

namespace nlsplit::inline schedules {
namespace {

struct Lead {
  int ahead = 0;  // forwards before the first backward
  int late = 0;   // input gradients before the first weight gradient, less one
};

Result<Orders> make_zero_bubble(const Line& line, Lead (*lead)(int devices, int i)) {
  Orders orders(static_cast<size_t>(line.devices));
  for (int i = 0; i < line.devices; ++i) {
    std::vector<ScheduledSlot>& order = orders[static_cast<size_t>(i)];
    const auto [wanted, late] = lead(line.devices, i);
    const int ahead = std::min(wanted, line.micro_batches);
    for (int m = 0; m < ahead; ++m) add_forward(order, i, m);
    for (int m = 0; m < line.micro_batches; ++m) {
      add_input_gradient(order, i, m);
      if (m >= late) add_weight_gradient(order, i, m - late);
      if (m + ahead < line.micro_batches) add_forward(order, i, m + ahead);
    }
    for (int m = std::max(0, line.micro_batches - late); m < line.micro_batches; ++m) add_weight_gradient(order, i, m);
  }
  return orders;
}

}  // namespace

Result<SlotTable> schedule_zb_h1(const ScheduleInput& input) {
  return schedule_lines("zb_h1", StagePlacement::chain, input, [](const Line& line) {
    return make_zero_bubble(line, [](int p, int i) { return Lead{p - i, i}; });
  });
}

Result<SlotTable> schedule_zb_h2(const ScheduleInput& input) {
  return schedule_lines("zb_h2", StagePlacement::chain, input, [](const Line& line) {
    return make_zero_bubble(line, [](int p, int i) { return Lead{2 * (p - i) - 1, 2 * i}; });
  });
}

}  // namespace nlsplit::inline schedules
