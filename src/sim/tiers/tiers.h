// All tiers of the simulator. To add one: a file here with its class, and a row in tiers.cc.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/tier.h"

namespace nlsplit::inline sim {

std::span<const Tier* const> all_tiers();
size_t judging_tier();  // index in all_tiers() of the tier whose result counts where several run: SimGrid
std::vector<std::string> tier_names();
const Tier* find_tier(std::string_view name);  // nullptr: there is none of this name

}  // namespace nlsplit::inline sim
