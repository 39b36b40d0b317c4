#include "ranking/weighted_devices.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "partition/search.h"

namespace nlsplit::inline ranking {

std::vector<WeightedKind> weighted_kinds(const std::vector<std::vector<double>>& seconds_of,
                                         const std::vector<bool>& inside) {
  const std::vector<DeviceId> alike = device_kinds(seconds_of);
  std::vector<WeightedKind> kinds;
  for (size_t d = 0; d < seconds_of.size(); ++d) {
    const bool is_inside = d < inside.size() && inside[d];
    const std::vector<double>* seconds = &seconds_of[alike[d].index()];
    const auto known = std::ranges::find_if(
        kinds, [&](const WeightedKind& kind) { return kind.inside == is_inside && kind.seconds == seconds; });
    if (known == kinds.end())
      kinds.push_back({seconds, is_inside, 1});
    else
      ++known->count;
  }
  return kinds;
}

double largest_sum(const std::vector<WeightedKind>& kinds, const std::vector<double>& weights, double most) {
  std::vector<size_t> order(kinds.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, std::greater(), [&](size_t k) { return weights[k]; });
  double sum = 0;
  for (const size_t k : order) {
    const double taken = std::min(most, kinds[k].count);
    sum += taken * weights[k];
    most -= taken;
  }
  return sum;
}

std::vector<double> fair_weights(const std::vector<WeightedKind>& kinds) {
  std::vector<double> weights;
  for (const WeightedKind& kind : kinds) {
    const double whole = std::accumulate(kind.seconds->begin(), kind.seconds->end(), 0.0);
    if (whole <= 0) return {};
    weights.push_back(1 / whole);
  }
  return weights;
}

double better_weight(int round, double busy, double bound) {
  constexpr double first_step = 0.5;  // where it is busy twice as long
  return std::exp(first_step / std::sqrt(1.0 + round) * std::clamp(busy / bound - 1, -1.0, 1.0));
}

}  // namespace nlsplit::inline ranking
