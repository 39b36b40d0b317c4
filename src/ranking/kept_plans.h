// A cache of compiled plans: those with the best scores are kept, so that they need not be compiled again.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "ranking/evaluate.h"

namespace nlsplit::inline ranking {

// Empty once better ones took its place.
using KeptPlan = std::shared_ptr<std::optional<LoweredPlan>>;

// About, of what grows with its instructions.
size_t bytes_of(const LoweredPlan& lowered);

// The plans with the best scores. Thread-safe. The order of calls affects which plans are kept, but no result.
class KeptPlans {
 public:
  KeptPlans(size_t most_plans, size_t most_bytes) : most_plans_(most_plans), most_bytes_(most_bytes) {}
  // score: smaller is better. Whether a plan with this one would be kept now, unless it is too large.
  bool wants(double score);
  // nullptr: it is too large.
  KeptPlan keep(double score, LoweredPlan lowered);

 private:
  struct Kept {
    double score;
    size_t bytes;
    KeptPlan plan;
  };
  struct ByScore {
    bool operator()(const Kept& a, const Kept& b) const { return a.score < b.score; }
  };

  const size_t most_plans_, most_bytes_;
  std::mutex mutex_;
  std::multiset<Kept, ByScore> kept_;
  size_t bytes_ = 0;
};

}  // namespace nlsplit::inline ranking
