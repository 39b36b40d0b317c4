#include "cost/noise.h"

#include <algorithm>

namespace nlsplit::inline cost {

bool is_random(const Noise& noise) {
  return noise.compute_jitter > 0 || noise.link_jitter > 0 ||
         std::ranges::any_of(noise.stragglers, [](const Straggler& it) { return it.chance < 1; }) ||
         std::ranges::any_of(noise.background, [](const Background& it) { return it.on > 0; }) ||
         std::ranges::any_of(noise.degradations, [](const Degradation& it) { return it.chance < 1; });
}

bool disturbs_links(const Noise& noise) { return !noise.background.empty() || !noise.degradations.empty(); }

}  // namespace nlsplit::inline cost
