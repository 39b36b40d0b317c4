#include "exec/refills.h"

#include <utility>

namespace nlsplit::inline exec {

Refills::Refills(const Sequence& sequence)
    : refillings_(sequence.refillings),
      waiting_(sequence.dependencies.device_begin[1]),
      missing_(sequence.refillings.size()) {
  for (uint32_t r = 0; r < refillings_.size(); ++r) {
    for (const uint32_t instance : refillings_[r].after) waiting_[instance].push_back(r);
  }
}

void Refills::begin(std::function<void(int execution, int micro_batch)> write) {
  const std::lock_guard lock(mutex_);
  write_ = std::move(write);
  for (size_t r = 0; r < refillings_.size(); ++r) missing_[r] = refillings_[r].after.size();
}

void Refills::ended(uint32_t instance) {
  if (waiting_[instance].empty()) return;
  const std::lock_guard lock(mutex_);
  for (const uint32_t r : waiting_[instance]) {
    if (--missing_[r] == 0) write_(refillings_[r].execution, refillings_[r].micro_batch);
  }
}

}  // namespace nlsplit::inline exec
