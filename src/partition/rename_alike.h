// Plans that differ only in the order of interchangeable devices are one plan under different names.
#pragma once

#include <vector>

#include "partition/plan.h"

namespace nlsplit::inline partition {

// Takes the lowest-numbered devices of each class, in the order in which the stages name its devices: plans that differ
// only by names become equal. class_of: as interchangeable_devices() answers it.
//
//   {{..5, {3}}, {rest, {1}}}, 1 to 3 alike   →   {{..5, {1}}, {rest, {2}}}
void rename_alike(std::vector<Stage>& stages, const std::vector<size_t>& class_of);

}  // namespace nlsplit::inline partition
