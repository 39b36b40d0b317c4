// List scheduling on real durations: whenever a device is free, of the slots whose inputs are there the one with the
// longest way to the end is next. Graham, "Bounds on multiprocessing timing anomalies", SIAM J. Appl. Math. 17 (1969);
// the way to the end as priority is the "upward rank" of HEFT: Topcuoglu et al., IEEE TPDS 13 (2002), section 4.1.
// Weight gradients have the shortest way, so they fill gaps as in the zero-bubble schedules. Any placement and mode.
//
// Alone this takes all forwards first. So it is played with several bounds on the micro-batches under way, and once
// more with input gradients first; the shortest that fits the memory is taken, of equally long ones the one with the
// fewest micro-batches under way.
#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "schedule/evaluate.h"
#include "schedule/online.h"
#include "schedule/policies.h"

namespace nlsplit::inline schedules {

Result<SlotTable> schedule_list(const ScheduleInput& input) {
  const int stages = static_cast<int>(input.stage_devices.size());
  std::set<int> windows = {0};
  if (input.training()) {
    windows.clear();
    for (const int window : {1, 2, input.devices, 2 * input.devices - 1, stages, 2 * stages - 1, input.micro_batches})
      windows.insert(std::clamp(window, 1, std::max(1, input.micro_batches)));
    for (int window = 4; window < std::min(input.micro_batches, 2 * stages); window *= 2) windows.insert(window);
  }
  // A makespan adds up at most all slots. n additions of positive numbers err by at most n half units in the last
  // place.
  const double slots = (input.training() ? 3.0 : 1.0) * stages * input.micro_batches + stages;
  const double rounding = slots * std::numeric_limits<double>::epsilon();
  std::optional<OnlineRun> best;
  std::optional<Error> refusal;
  for (const OnlinePolicy& policy : all_online_policies()) {
    for (const int window : windows) {
      auto run = run_online(input, policy, {.window = window});
      if (!run.ok()) {
        if (!refusal) refusal = run.error();  // of the narrowest window: what cannot fit at all
        continue;
      }
      if (!best || run->makespan < best->makespan * (1 - rounding)) best = std::move(*run);
    }
  }
  if (!best) return *refusal;
  // Shards send to others than the next stage, so their messages wait longer than instances_of() knows.
  if (!input.needs.empty()) best->table.instances = input.micro_batches;
  return std::move(best->table);
}

}  // namespace nlsplit::inline schedules
