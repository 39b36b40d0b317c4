// Plans that hardly differ: the same devices in the same way, cut a few layers further on. A deep network has hundreds
// of them, and a table should show different ones.
//
//   Variants variants(ranking.node_shares);
//   for (…) if (!variants.enough(scored, schedule)) { …; variants.note(scored, schedule); }
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ranking/pruning.h"

namespace nlsplit::inline ranking {

// Two plans are similar (alike) if all their cuts differ by less than this part of an even stage's work, and the shares
// inside their stages by less than this part of an even share.
inline constexpr double alike_cuts = 0.05;

// As many micro-batches, the same schedule, the same devices in the same way in each stage, cuts and shares that are
// alike. Stages with less than this part of an even stage's work are not looked at. node_shares: [node]: of the time of
// the whole model; none, or of another model: no two plans are alike.
bool are_alike(const Plan& a, const Plan& b, const std::vector<double>& node_shares);

// Limits how many similar plans of the search are timed.
class Variants {
 public:
  static constexpr size_t most = 3;

  explicit Variants(const std::vector<double>& node_shares);

  // Whether `most` similar plans were noted before that are, by the search's scores, at most 2 % worse in each metric.
  bool enough(const ScoredPlan& plan, const std::string& schedule) const;
  void note(const ScoredPlan& plan, const std::string& schedule);

 private:
  struct Seen {
    std::vector<double> cuts;  // share of the work before each
    PlanMetrics metrics;
  };
  using Kind = std::pair<std::vector<int64_t>, std::string>;  // micro-batches and devices of the stages; schedule
  Kind kind_of(const ScoredPlan& plan, const std::string& schedule) const;
  std::vector<double> cuts_of(const ScoredPlan& plan) const;

  std::vector<double> before_;  // [node]: share of the work before it
  std::map<Kind, std::vector<Seen>> seen_;
};

}  // namespace nlsplit::inline ranking
