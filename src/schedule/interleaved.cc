// Interleaved 1F1B: every device hosts v stages, p apart, and works through them in groups of p micro-batches.
// Narayanan et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM", SC 2021, section
// 2.2, figure 4; the number of micro-batches is a multiple of p there. With equal stages of T_F, T_I and T_W: bubble
// (p - 1)(T_F + T_I + T_W), which is (p - 1) / (v m) of the ideal time. Device 0 keeps v p + p - 1 micro-batches of one
// stage, 1 + (p - 1) / (v p) of what 1F1B keeps (Korthikanti et al., "Reducing activation recomputation in large
// transformer models", MLSys 2023, section 4.2.3).
#include <fmt/format.h>

#include <algorithm>

#include "schedule/placement.h"
#include "schedule/policies.h"

namespace nlsplit::inline schedules {
namespace {

// The k-th forward of a device: which of its v stages, which micro-batch.
struct Turn {
  int chunk = 0;
  int micro_batch = 0;
};
Turn turn(int k, int devices, int chunks) {
  return {k % (devices * chunks) / devices, k / (devices * chunks) * devices + k % devices};
}

Result<Orders> make_interleaved(const Line& line) {
  const int p = line.devices, chunks = line.stages / p, total = chunks * line.micro_batches;
  if (line.micro_batches % p != 0) {
    return unsupported(
        fmt::format("schedule interleaved needs a multiple of {} micro-batches, one for each device; there are {}", p,
                    line.micro_batches));
  }
  Orders orders(static_cast<size_t>(p));
  for (int i = 0; i < p; ++i) {
    std::vector<ScheduledSlot>& order = orders[static_cast<size_t>(i)];
    // One more than the warm-up: the forward that comes before the first backward.
    const int ahead = chunks == 1 ? p - i : 2 * (p - i - 1) + (chunks - 1) * p + 1;
    const auto forward = [&](int k) {
      const Turn t = turn(k, p, chunks);
      add_forward(order, t.chunk * p + i, t.micro_batch);
    };
    for (int k = 0; k < std::min(ahead, total); ++k) forward(k);
    for (int k = 0; k < total; ++k) {
      const Turn t = turn(k, p, chunks);
      add_backward(order, (chunks - 1 - t.chunk) * p + i, t.micro_batch);
      if (k + ahead < total) forward(k + ahead);
    }
  }
  return orders;
}

}  // namespace

Result<SlotTable> schedule_interleaved(const ScheduleInput& input) {
  return schedule_lines("interleaved", StagePlacement::loop, input, make_interleaved);
}

}  // namespace nlsplit::inline schedules
