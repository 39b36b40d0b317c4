// Training schedules made by hand, for tests of what happens to a schedule afterwards.
#pragma once

#include <algorithm>
#include <vector>

#include "schedule/schedules.h"

namespace nlsplit::testing {

// whole: in one piece, its gradient leaves behind W.
inline void backward(std::vector<ScheduledSlot>& order, int stage, int m, bool whole = false) {
  order.push_back({stage, Phase::input_gradient, m, whole});
  order.push_back({stage, Phase::weight_gradient, m});
}

// One forward, one backward (PipeDream-flush: Narayanan et al., "Memory-efficient pipeline-parallel DNN training",
// 2021): stage s of p runs p - s - 1 micro-batches ahead, so it holds at most p - s of them. Device s has stage s.
inline SlotTable one_f_one_b(int stages, int micro_batches, bool whole = false) {
  SlotTable table;
  for (int s = 0; s < stages; ++s) {
    std::vector<ScheduledSlot>& order = table.devices.emplace_back();
    const int ahead = std::min(stages - s - 1, micro_batches);
    for (int m = 0; m < ahead; ++m) order.push_back({s, Phase::forward, m});
    for (int m = 0; m < micro_batches; ++m) {
      if (m + ahead < micro_batches) order.push_back({s, Phase::forward, m + ahead});
      backward(order, s, m, whole);
    }
    order.push_back({s, Phase::step, 0});
  }
  return table;
}

// All forward, then all backward (GPipe). Device s has stage s.
inline SlotTable all_forward_first(int stages, int micro_batches) {
  SlotTable table;
  for (int s = 0; s < stages; ++s) {
    std::vector<ScheduledSlot>& order = table.devices.emplace_back();
    for (int m = 0; m < micro_batches; ++m) order.push_back({s, Phase::forward, m});
    for (int m = 0; m < micro_batches; ++m) backward(order, s, m);
    order.push_back({s, Phase::step, 0});
  }
  return table;
}

// One stage, copied: device r takes micro-batches r, r + replicas, …
inline SlotTable copies(int replicas, int micro_batches) {
  SlotTable table;
  for (int r = 0; r < replicas; ++r) {
    std::vector<ScheduledSlot>& order = table.devices.emplace_back();
    for (int m = r; m < micro_batches; m += replicas) {
      order.push_back({0, Phase::forward, m});
      backward(order, 0, m);
    }
    order.push_back({0, Phase::step, 0});
  }
  return table;
}

}  // namespace nlsplit::testing
