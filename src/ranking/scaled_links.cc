#include "ranking/scaled_links.h"

#include <algorithm>
#include <cmath>

namespace nlsplit::inline ranking {

namespace {

// Of its busiest device or link.
double busiest_of_one(const LoweredPlan& lowered, const ScaledLinks& links) {
  double busiest = *std::max_element(lowered.load.device_seconds.begin(), lowered.load.device_seconds.end());
  for (const auto& [hop, busy] : lowered.load.link_seconds) busiest = std::max(busiest, busy / links.bandwidth);
  return busiest;
}

double makespan_of_one(const LoweredPlan& lowered, const ScaledLinks& links) {
  Timing timing;
  simulate_fast(lowered.timed, timing, links);
  return std::max(timing.makespan, busiest_of_one(lowered, links));
}

}  // namespace

double makespan_over(const LoweredPlan& lowered, const ScaledLinks& links) {
  double sum = lowered.weight * makespan_of_one(lowered, links);
  for (const LoweredPlan& other : lowered.others) sum += other.weight * makespan_of_one(other, links);
  return sum;
}

bool is_shorter_over(const LoweredPlan& lowered, const ScaledLinks& links, double seconds) {
  // Weights of shorter networks may be negative: then no bound follows.
  if (lowered.others.empty() && lowered.weight * busiest_of_one(lowered, links) >= seconds) return false;
  return makespan_over(lowered, links) < seconds;
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
