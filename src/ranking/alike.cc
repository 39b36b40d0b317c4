#include "ranking/alike.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace nlsplit::inline ranking {
namespace {

std::vector<double> work_before(const std::vector<double>& node_shares) {
  std::vector<double> before = {0};
  for (const double share : node_shares) before.push_back(before.back() + share);
  return before;
}

// Whether shares give each device as much of the stage, but for a little.
bool are_alike(const Split& a, const Split& b) {
  if (a.axis != b.axis || a.recompute_halo != b.recompute_halo || a.shares.size() != b.shares.size()) return false;
  const auto sum = [](const Split& split) {
    return static_cast<double>(std::accumulate(split.shares.begin(), split.shares.end(), int64_t{0}));
  };
  const double x = sum(a), y = sum(b);
  return std::ranges::equal(a.shares, b.shares, [&](int64_t s, int64_t t) {
    const double less = static_cast<double>(s) / x - static_cast<double>(t) / y;
    return std::abs(less) * static_cast<double>(a.shares.size()) < alike_cuts;
  });
}

// Without the stages that have next to no work; the last one left ends where the model does.
std::vector<Stage> that_matter(std::vector<Stage> stages, const std::vector<double>& before) {
  const size_t end = stages.back().end;
  const double least = alike_cuts * before[end] / static_cast<double>(stages.size());
  std::erase_if(stages, [&](const Stage& stage) { return before[stage.end] - before[stage.begin] < least; });
  if (!stages.empty()) stages.back().end = end;
  return stages;
}

bool are_alike(const std::vector<Stage>& a, const std::vector<Stage>& b, const std::vector<double>& before) {
  const size_t nodes = before.size() - 1;
  if (a.empty() || b.empty()) return a.empty() && b.empty();
  if (a.back().end != nodes || b.back().end != nodes) return false;
  const std::vector<Stage> x = that_matter(a, before), y = that_matter(b, before);
  return std::ranges::equal(x, y, [&](const Stage& s, const Stage& t) {
    return s.devices == t.devices && s.recompute == t.recompute && s.split.has_value() == t.split.has_value() &&
           (!s.split || are_alike(*s.split, *t.split)) &&
           std::abs(before[s.end] - before[t.end]) * static_cast<double>(x.size()) < alike_cuts;
  });
}

}  // namespace

bool are_alike(const Plan& a, const Plan& b, const std::vector<double>& node_shares) {
  if (a.micro_batches != b.micro_batches || a.schedule != b.schedule || a.stages.empty() || b.stages.empty())
    return false;
  const std::vector<double> before = work_before(node_shares);
  return are_alike(a.stages, b.stages, before) && are_alike(a.prefill, b.prefill, before);
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
  const PlanMetrics mine = estimated_metrics(plan);
  const auto stands_for_it = [&](const Seen& other) {
    for (size_t s = 0; s < cuts.size(); ++s) {
      if (std::abs(cuts[s] - other.cuts[s]) * static_cast<double>(cuts.size()) >= alike_cuts) return false;
    }
    for (size_t r = 0; r < mine.size(); ++r) {
      if (other.metrics[r] > mine[r] * clearly_faster) return false;
    }
    return true;
  };
  return static_cast<size_t>(std::ranges::count_if(at->second, stands_for_it)) >= most;
}

void Variants::note(const ScoredPlan& plan, const std::string& schedule) {
  seen_[kind_of(plan, schedule)].push_back({cuts_of(plan), estimated_metrics(plan)});
}

}  // namespace nlsplit::inline ranking
