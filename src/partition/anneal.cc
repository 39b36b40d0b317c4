#include "partition/anneal.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/random.h"
#include "partition/anneal_moves.h"
#include "partition/rename_alike.h"

namespace nlsplit::inline partition {
namespace {

constexpr double cooling = 100;          // how much colder the end is than the start
constexpr size_t most_proposals = 10;    // for each step: changes that come to nothing, or to a plan known already
constexpr size_t steps_for_a_plan = 10;  // search_anneal: of those wanted

// Two plans have the same key if they are the same.
std::vector<int64_t> key_of(const Plan& plan) {
  std::vector<int64_t> key = {plan.micro_batches};
  for (const Stage& stage : plan.stages) {
    key.push_back(static_cast<int64_t>(stage.end));
    key.push_back(static_cast<int64_t>(stage.devices.size()));
    for (const DeviceId device : stage.devices) key.push_back(static_cast<int64_t>(device.index()));
    if (!stage.split) {
      key.push_back(-1);
      continue;
    }
    key.push_back(static_cast<int64_t>(stage.split->axis) * 2 + (stage.split->recompute_halo ? 1 : 0));
    key.push_back(static_cast<int64_t>(stage.split->shares.size()));
    key.insert(key.end(), stage.split->shares.begin(), stage.split->shares.end());
  }
  return key;
}

class Annealing {
 public:
  Annealing(const AnnealSpace& space, const AnnealOptions& options) : space_(space), options_(options), moves_(space) {}

  void from(const Plan& start, size_t steps, uint64_t seed) {
    Random random(seed);
    Plan now = start;
    const size_t asked_before = tried_.size();
    double cost = cost_of(now, std::numeric_limits<double>::infinity());
    for (size_t proposal = 0; proposal < steps * most_proposals; ++proposal) {
      const size_t asked = tried_.size() - asked_before;
      if (asked >= steps) break;
      Plan next = now;
      if (!moves_.change(next, random)) continue;
      if (!space_.class_of.empty()) rename_alike(next.stages, space_.class_of);
      const double heat =
          options_.heat * std::pow(1 / cooling, static_cast<double>(asked) / static_cast<double>(steps));
      // Accepted with probability exp((1 - next / cost) / heat) if it is worse. A start that cannot be is left for
      // anything that can.
      const double most = std::isfinite(cost) ? cost * (1 - heat * std::log(1 - random.uniform())) : cost;
      const double next_cost = cost_of(next, most);
      const bool accepted = next_cost <= most;
      if (!accepted) continue;
      now = std::move(next);
      cost = next_cost;
    }
  }

  std::vector<TriedPlan> best_first() {
    std::vector<TriedPlan> plans;
    for (TriedPlan& tried : tried_) {
      if (std::isfinite(tried.cost)) plans.push_back(std::move(tried));
    }
    std::stable_sort(plans.begin(), plans.end(),
                     [](const TriedPlan& a, const TriedPlan& b) { return a.cost < b.cost; });
    return plans;
  }

 private:
  // Or something above `most`, if the cost is above it.
  double cost_of(const Plan& plan, double most) {
    const auto [at, added] = known_.try_emplace(key_of(plan), tried_.size());
    if (added) tried_.push_back({plan, std::numeric_limits<double>::infinity()});
    const size_t known = at->second;
    if (asked_.size() < tried_.size()) asked_.resize(tried_.size(), false);
    if (asked_[known]) return tried_[known].cost;
    if (space_.least_cost && std::isfinite(most) && space_.least_cost(plan) > most)
      return std::numeric_limits<double>::infinity();
    asked_[known] = true;
    return tried_[known].cost = space_.cost(plan);
  }

  const AnnealSpace& space_;
  const AnnealOptions& options_;
  AnnealMoves moves_;
  std::map<std::vector<int64_t>, size_t> known_;  // into tried_
  std::vector<TriedPlan> tried_;
  std::vector<bool> asked_;  // [tried_]: its cost; of others it is infinite
};

}  // namespace

std::vector<TriedPlan> anneal(const AnnealSpace& space, const std::vector<Plan>& starts, const AnnealOptions& options) {
  Annealing annealing(space, options);
  if (starts.empty()) return {};
  const size_t each = std::max<size_t>(1, options.steps / starts.size());
  Random seeds(options.seed);
  for (const Plan& start : starts) annealing.from(start, each, seeds.next());
  return annealing.best_first();
}

Result<FoundPlans> search_anneal(const SearchSpace& space) {
  AnnealSpace in;
  in.graph = space.graph;
  in.cuts = space.cuts;
  for (size_t i = 0; i < space.groups->size(); ++i) in.devices.push_back(space.groups->device(i));
  in.max_stages = space.max_stages;
  in.max_devices = space.max_devices;
  in.replicate = space.groups->most_replicas() > 1;
  in.cost = [&](const Plan& plan) { return space.interrupted() ? never : space.scorer->bound(plan.stages); };
  // The fastest device alone, and as many layers on each of the 2, 4, … fastest.
  std::vector<Plan> starts;
  for (size_t count = 1; count <= std::min({space.max_stages, space.max_devices, in.devices.size()}); count *= 2) {
    Plan& plan = starts.emplace_back();
    plan.micro_batches = space.costs->micro_batches;
    for (size_t d = 0; d < count; ++d) {
      const size_t begin = plan.stages.empty() ? 0 : plan.stages.back().end;
      plan.stages.push_back({begin, space.cuts[(d + 1) * space.cuts.size() / count - 1], {in.devices[d]}});
    }
  }
  AnnealOptions options;
  options.steps = steps_for_a_plan * std::max<size_t>(space.wanted, 100);
  options.seed = space.seed;
  FoundPlans found;
  for (TriedPlan& tried : anneal(in, starts, options)) {
    if (found.plans.size() >= space.wanted) break;
    found.plans.push_back(std::move(tried.plan.stages));
  }
  return found;
}

}  // namespace nlsplit::inline partition
