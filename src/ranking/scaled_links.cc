#include "ranking/scaled_links.h"

#include <algorithm>
#include <cmath>

namespace nlsplit::inline ranking {

namespace {

double makespan_of_one(const LoweredPlan& lowered, const ScaledLinks& links) {
  TimedGraph graph = lowered.timed;
  for (Activity& activity : graph.activities) {
    if (!activity.is_transfer) continue;
    activity.duration /= links.bandwidth;
    activity.latency *= links.latency;
    activity.handshake *= links.latency;
    activity.clear_to_send_delay /= links.bandwidth;
  }
  Timing timing;
  simulate_fast(graph, timing);
  double bound = *std::max_element(lowered.load.device_seconds.begin(), lowered.load.device_seconds.end());
  for (const auto& [hop, busy] : lowered.load.link_seconds) bound = std::max(bound, busy / links.bandwidth);
  return std::max(timing.makespan, bound);
}

}  // namespace

double makespan_over(const LoweredPlan& lowered, const ScaledLinks& links) {
  double sum = lowered.weight * makespan_of_one(lowered, links);
  for (const LoweredPlan& other : lowered.others) sum += other.weight * makespan_of_one(other, links);
  return sum;
}

std::optional<double> where_it_changes(const std::function<bool(double)>& wins, bool rising) {
  double low = 1e-3, high = 1e6;
  if (wins(low) == rising || wins(high) != rising) return std::nullopt;
  while (high / low > 1.001) {
    const double middle = std::sqrt(low * high);
    (wins(middle) == rising ? high : low) = middle;
  }
  return rising ? high : low;
}

}  // namespace nlsplit::inline ranking
