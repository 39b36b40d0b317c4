#include "sim/tiers/tiers.h"

#include <algorithm>
#include <array>

#include "sim/fast.h"
#include "sim/simgrid/simgrid_tier.h"

namespace nlsplit::inline sim {

std::span<const Tier* const> all_tiers() {
  static const std::array tiers = {
      &fast_tier(),
      &simgrid_tier(),
  };
  return tiers;
}

size_t judging_tier() {
  return static_cast<size_t>(std::ranges::find(all_tiers(), &simgrid_tier()) - all_tiers().begin());
}

std::vector<std::string> tier_names() {
  std::vector<std::string> names;
  for (const Tier* tier : all_tiers()) names.emplace_back(tier->name());
  return names;
}

const Tier* find_tier(std::string_view name) {
  for (const Tier* tier : all_tiers()) {
    if (tier->name() == name) return tier;
  }
  return nullptr;
}

}  // namespace nlsplit::inline sim
