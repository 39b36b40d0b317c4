// Beam search over (devices used, last stage's devices, cut): stage by stage, keeping the most promising partial
// plans. Stages whose weights alone exceed a device's memory are left out.
#pragma once

#include "partition/search_methods.h"

namespace nlsplit::inline partition {

// Stages of the plans that look best; their order means nothing. Never `proved`.
Result<FoundPlans> search_beam(const SearchSpace& space);

}  // namespace nlsplit::inline partition
