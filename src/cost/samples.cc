#include "cost/samples.h"

#include <algorithm>

#include "base/check.h"

namespace nlsplit::inline cost {

MeasuredCost cost_of_samples(std::vector<double> samples) {
  CHECK(!samples.empty(), "the median of nothing");
  std::ranges::sort(samples);
  const size_t n = samples.size();
  return {seconds((samples[(n - 1) / 2] + samples[n / 2]) / 2),
          seconds((samples[3 * (n - 1) / 4] - samples[(n - 1) / 4]) / 2), static_cast<int>(n)};
}

}  // namespace nlsplit::inline cost
