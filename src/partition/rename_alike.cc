#include "partition/rename_alike.h"

#include <algorithm>

namespace nlsplit::inline partition {

void rename_alike(std::vector<Stage>& stages, const std::vector<size_t>& class_of) {
  constexpr size_t none = static_cast<size_t>(-1);
  std::vector<size_t> next(class_of.size());  // [class]: the first device that no name has yet
  for (size_t d = 0; d < class_of.size(); ++d) next[d] = d;
  std::vector<size_t> name(class_of.size(), none);
  for (Stage& stage : stages) {
    for (DeviceId& device : stage.devices) {
      const size_t cls = class_of[device.index()];
      size_t& taken = name[device.index()];
      if (taken == none) {
        while (class_of[next[cls]] != cls) ++next[cls];
        taken = next[cls]++;
      }
      device = DeviceId(taken);
    }
    // Replicas take turns, in whatever order; shards have their places.
    if (!stage.split) std::ranges::sort(stage.devices);
  }
}

}  // namespace nlsplit::inline partition
