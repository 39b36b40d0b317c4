#include "compile/shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace nlsplit::inline compiler {

int64_t bucket_buffer_elements(const Reduction& reduction, size_t bucket_buffer) {
  int64_t most = 0;
  for (size_t b = bucket_buffer; b < reduction.buckets.size(); b += bucket_buffers)
    most = std::max(most, value_elements(reduction.buckets[b].reduce.collective));
  return most;
}

size_t bucket_of(const Reduction& reduction, int64_t element) {
  const auto behind = std::ranges::upper_bound(reduction.buckets, element, {}, &Bucket::begin);
  return static_cast<size_t>(behind - reduction.buckets.begin()) - 1;
}

KeptShare kept_share(const Reduction& reduction, size_t bucket, size_t member) {
  const auto shares_of = [&](size_t b) -> const std::vector<int64_t>& {
    return reduction.buckets[b].reduce.collective.elements;
  };
  const auto own = shares_of(bucket).begin() + static_cast<std::ptrdiff_t>(member);
  KeptShare share;
  share.begin = std::accumulate(shares_of(bucket).begin(), own, int64_t{0});
  share.end = share.begin + *own;
  for (size_t b = 0; b < bucket; ++b) share.kept += shares_of(b)[member];
  return share;
}

int64_t kept_elements(const Reduction& reduction, size_t member) {
  const size_t last = reduction.buckets.size() - 1;
  const KeptShare share = kept_share(reduction, last, member);
  return share.kept + share.end - share.begin;
}

Status check_shares(const Lowering& lowering, int stage) {
  const auto refused = [&](const std::string& why) {
    return unsupported(fmt::format("schedule {}: zero: {} {}", lowering.plan->schedule, lowering.zero, why));
  };
  if (lowering.online) return refused("needs an order of micro-batches, and this one decides while a step runs");
  std::map<int, int> counts;  // of micro-batches, by device
  for (int m = 0; m < lowering.micro_batches(); ++m) ++counts[lowering.device_of(stage, m)];
  const auto [least, most] =
      std::ranges::minmax_element(counts, {}, [](const std::pair<const int, int>& of) { return of.second; });
  const auto name = [&](int device) { return lowering.cluster->device(lowering.devices[at(device)]).name; };
  if (least->second != most->second) {
    return refused(
        fmt::format("{} of each micro-batch: all replicas need the same number of them, and {} has {}, {} has {}",
                    lowering.training == nullptr ? "gathers the weights" : "reduces the gradients", name(least->first),
                    least->second, name(most->first), most->second));
  }
  if (lowering.exact && most->second > 1) {
    return refused(
        "adds the replicas' gradients of a micro-batch before those of the next one: sums are not exact with several "
        "micro-batches a replica");
  }
  return ok_status();
}

}  // namespace nlsplit::inline compiler
