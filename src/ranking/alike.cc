#include "ranking/alike.h"

#include <algorithm>
#include <cmath>

namespace nlsplit::inline ranking {
namespace {

std::vector<double> work_before(const std::vector<double>& node_shares) {
  std::vector<double> before = {0};
  for (const double share : node_shares) before.push_back(before.back() + share);
  return before;
}

}  // namespace

bool are_alike(const Plan& a, const Plan& b, const std::vector<double>& node_shares) {
  const std::vector<Stage>&x = a.stages, &y = b.stages;
  if (a.micro_batches != b.micro_batches || a.schedule != b.schedule || x.size() != y.size()) return false;
  if (x.empty() || x.back().end != node_shares.size() || y.back().end != node_shares.size()) return false;
  for (size_t s = 0; s < x.size(); ++s) {
    if (x[s].devices != y[s].devices || x[s].split != y[s].split) return false;
  }
  const std::vector<double> before = work_before(node_shares);
  for (size_t s = 0; s < x.size(); ++s) {
    if (std::abs(before[x[s].end] - before[y[s].end]) * static_cast<double>(x.size()) >= alike_cuts) return false;
  }
  return true;
}

Variants::Variants(const std::vector<double>& node_shares) : before_(work_before(node_shares)) {}

Variants::Kind Variants::kind_of(const ScoredPlan& plan, const std::string& schedule) const {
  std::vector<int64_t> kind = {plan.plan.micro_batches};
  for (const Stage& stage : plan.plan.stages) {
    kind.push_back(static_cast<int64_t>(stage.devices.size()));
    for (const DeviceId device : stage.devices) kind.push_back(static_cast<int64_t>(device.index()));
  }
  return {std::move(kind), schedule};
}

std::vector<double> Variants::cuts_of(const ScoredPlan& plan) const {
  std::vector<double> cuts;
  for (const Stage& stage : plan.plan.stages) cuts.push_back(before_.at(stage.end));
  return cuts;
}

bool Variants::enough(const ScoredPlan& plan, const std::string& schedule) const {
  if (has_splits(plan.plan)) return false;  // search finds few of them, each of another kind
  const auto at = seen_.find(kind_of(plan, schedule));
  if (at == seen_.end() || at->second.size() < most) return false;
  const std::vector<double> cuts = cuts_of(plan);
  const Respects mine = estimated(plan);
  const auto stands_for_it = [&](const Seen& other) {
    for (size_t s = 0; s < cuts.size(); ++s) {
      if (std::abs(cuts[s] - other.cuts[s]) * static_cast<double>(cuts.size()) >= alike_cuts) return false;
    }
    for (size_t r = 0; r < mine.size(); ++r) {
      if (other.respects[r] > mine[r] * clearly_faster) return false;
    }
    return true;
  };
  return static_cast<size_t>(std::ranges::count_if(at->second, stands_for_it)) >= most;
}

void Variants::note(const ScoredPlan& plan, const std::string& schedule) {
  seen_[kind_of(plan, schedule)].push_back({cuts_of(plan), estimated(plan)});
}

}  // namespace nlsplit::inline ranking
