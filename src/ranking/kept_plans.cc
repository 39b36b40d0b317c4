#include "ranking/kept_plans.h"

#include <vector>

namespace nlsplit::inline ranking {
namespace {

template <class T>
size_t bytes_of(const std::vector<T>& values) {
  return values.capacity() * sizeof(T);
}

size_t bytes_of(const Program& program) {
  size_t bytes = 0;
  for (const DeviceProgram& device : program.devices) {
    bytes += bytes_of(device.order) + bytes_of(device.buffers);
    for (const Segment& segment : device.segments) {
      bytes += bytes_of(segment.instrs);
      for (const Instr& instr : segment.instrs) bytes += bytes_of(instr.reads) + bytes_of(instr.writes);
    }
  }
  return bytes;
}

}  // namespace

size_t bytes_of(const LoweredPlan& lowered) {
  const Dependencies& deps = lowered.dependencies;
  const TimedGraph& timed = lowered.timed;
  size_t bytes = bytes_of(lowered.program) + bytes_of(deps.instances) + bytes_of(deps.match) +
                 bytes_of(deps.edge_begin) + bytes_of(deps.edges) + bytes_of(timed.activities) +
                 bytes_of(timed.edge_begin) + bytes_of(timed.edges) + bytes_of(timed.members) +
                 bytes_of(timed.member_offset);
  if (lowered.digest) bytes += bytes_of(lowered.digest->micro_batches);
  for (const LoweredPlan& other : lowered.others) bytes += bytes_of(other);
  return bytes;
}

bool KeptPlans::wants(double score) {
  const std::lock_guard lock(mutex_);
  return (kept_.size() < most_plans_ && bytes_ < most_bytes_) || (!kept_.empty() && score < kept_.rbegin()->score);
}

KeptPlan KeptPlans::keep(double score, LoweredPlan lowered) {
  lowered.dependencies.edges.shrink_to_fit();  // there is room for twice as many
  const size_t bytes = bytes_of(lowered);
  if (bytes > most_bytes_) return nullptr;
  auto plan = std::make_shared<std::optional<LoweredPlan>>(std::move(lowered));
  const std::lock_guard lock(mutex_);
  kept_.insert({score, bytes, plan});
  bytes_ += bytes;
  while (!kept_.empty() && (kept_.size() > most_plans_ || bytes_ > most_bytes_)) {
    const auto worst = std::prev(kept_.end());
    bytes_ -= worst->bytes;
    worst->plan->reset();
    kept_.erase(worst);
  }
  return plan;
}

}  // namespace nlsplit::inline ranking
