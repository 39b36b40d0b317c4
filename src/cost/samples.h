// What samples of one computation's time say of it.
#pragma once

#include <vector>

#include "cost/profile.h"

namespace nlsplit::inline cost {

MeasuredCost cost_of_samples(std::vector<double> seconds);  // of at least one; without a mean

}  // namespace nlsplit::inline cost
