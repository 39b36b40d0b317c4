// The best candidates, simulated over links that share their bandwidth: the order of the table.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "base/cores.h"
#include "base/random.h"
#include "ranking/lower_bound.h"
#include "ranking/ranker.h"

// jemalloc's, in a program that links it.
extern "C" int mallctl(const char* name, void* old, size_t* old_size, void* given, size_t given_size)
    __attribute__((weak));

namespace nlsplit::inline ranking {
namespace {

constexpr size_t judged_by_bound = 8;

double score_of(const Goal& goal, const NoisyEstimate& estimate) {
  return score_of(goal, estimate.makespan_s.p95, estimate.latency_s.p95);
}

// Simulations of noisy links are children of this process, and a fork takes as long as there are pages.
void return_freed_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  if (mallctl != nullptr) mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);  // 4096: all arenas
}

}  // namespace

Status Ranker::judge() {
  std::stable_sort(candidates_.begin(), candidates_.end(),
                   [](const Candidate& a, const Candidate& b) { return a.fast_score < b.fast_score; });
  choose_by_bound();
  draw_samples();
  if (noise_bound_) choose_robust(wanted());
  choose_for_requirements();
  std::vector<Judging> plans;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (i < wanted() || candidates_[i].must_judge) plans.emplace_back(std::move(candidates_[i]));
  }
  candidates_ = {};
  kept_ = nullptr;
  scorers_.clear();
  RETURN_IF_ERROR(simulate(plans));
  for (Judging& plan : plans) RETURN_IF_ERROR(note_judged(plan));
  if (wants_noise()) {
    return_freed_memory();
    ASSIGN_OR_RETURN(const NoiseRuns noisy, run_noise(scenario_, judged_, options_));
    ranking_.noise_runs = noisy.runs;
    for (size_t i = 0; i < noisy.plans.size(); ++i) ranking_.judged[i].noisy = noisy.plans[i];
  }
  measure_judged();
  sort_judged();
  return ok_status();
}

// As the user wants to see them.
void Ranker::order_judged() {
  ranking_.order.resize(ranking_.judged.size());
  std::iota(ranking_.order.begin(), ranking_.order.end(), size_t{0});
  if (options_.robust && ranking_.noise_runs > 0) {
    ranking_.robust = true;
    std::ranges::stable_sort(ranking_.order, {},
                             [&](size_t i) { return score_of(goal_, ranking_.judged[i].noisy.value()); });
  }
}

void Ranker::draw_samples() {
  Random random(options_.seed);
  std::vector<size_t> order(candidates_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = 0; i < std::min(options_.samples, order.size()); ++i) {
    std::swap(order[i], order[i + random.below(order.size() - i)]);
    candidates_[order[i]].ranked.sampled = candidates_[order[i]].must_judge = true;
  }
}

// The fast tier does not share links. Bounds do, so a few plans are judged that are best by the larger of both.
void Ranker::choose_by_bound() {
  if (scenario_.objective != Objective::throughput || scenario_.generation || !options_.tier->shares_links()) return;
  const auto least = [&](size_t i) {
    const Candidate& candidate = candidates_[i];
    return std::max(candidate.fast_score, candidate.found ? candidate.found->bound_seconds : 0);
  };
  std::vector<size_t> order(candidates_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, least);
  for (size_t i = 0; i < std::min(judged_by_bound, order.size()); ++i) candidates_[order[i]].must_judge = true;
}

// Also without --robust: a plan's number must not depend on that option.
void Ranker::choose_robust(size_t most) {
  std::vector<size_t> order(candidates_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return candidates_[i].noisy_score; });
  for (size_t i = 0; i < std::min(most, order.size()); ++i) candidates_[order[i]].must_judge = true;
}

// Best first, and the lowered plans with them. Of plans that are as good as the best of those left one device comes
// first, for it needs no others; then the one that leaves the most memory.
void Ranker::sort_judged() {
  sort_judged_by([&](size_t i) { return score_of(goal_, ranking_.judged[i].estimate); },
                 [&](size_t i) { return fullest_device(scenario_, ranking_.judged[i].estimate).share; });
}

void Ranker::sort_judged_by(const std::function<double(size_t)>& score, const std::function<double(size_t)>& fullest) {
  std::vector<size_t> order(judged_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, score);
  for (auto begin = order.begin(); begin != order.end();) {
    const double least = score(*begin);
    const auto end = std::find_if(begin, order.end(), [&](size_t i) { return score(i) > least * as_good; });
    std::ranges::stable_sort(begin, end, {},
                             [&](size_t i) { return std::pair(!is_single(ranking_.judged[i].plan), fullest(i)); });
    begin = end;
  }
  arrange_judged(order);
}

void Ranker::arrange_judged(const std::vector<size_t>& order) {
  std::vector<RankedPlan> plans;
  std::vector<LoweredPlan> lowered;
  std::vector<std::vector<DeviceNeeds>> needed;
  for (const size_t i : order) {
    if (!needed_.empty()) needed.push_back(std::move(needed_[i]));
    plans.push_back(std::move(ranking_.judged[i]));
    lowered.push_back(std::move(judged_[i]));
  }
  ranking_.judged = std::move(plans);
  judged_ = std::move(lowered);
  needed_ = std::move(needed);
}

// The least of all micro-batch counts that are looked at.
Status Ranker::find_bound() {
  const bool inside =
      inside_ || std::ranges::any_of(ranking_.judged, [](const RankedPlan& p) { return has_splits(p.plan); });
  if (ranking_.judged.empty() || (inside && ranking_.measured_costs + ranking_.predicted_costs > 0)) return ok_status();
  // Nearer to the best plan there is nothing to say; nor is there of a count that is beyond another's bound, or of
  // makespans where latencies are wanted.
  constexpr double near = 0.995, beyond = 1 + 1e-6;
  double enough_s = goal_.objective == Objective::latency ? 0 : std::numeric_limits<double>::infinity();
  for (const RankedPlan& plan : ranking_.judged) enough_s = std::min(enough_s, near * plan.estimate.makespan_s);
  std::mutex mutex;  // of enough_s
  std::vector<std::optional<Result<LowerBound>>> bounds(prepared_.size());
  on_all_cores(
      prepared_.size(),
      [&](size_t k) {
        const size_t i = prepared_.size() - 1 - k;  // the bound of many micro-batches is mostly the least
        double enough = 0;
        {
          const std::lock_guard lock(mutex);
          enough = enough_s;
        }
        bounds[i] = lower_bound(prepared_[i], scenario_.cluster, costs_, scenario_.endpoints,
                                scenario_.search.max_devices, inside, enough, workers());
        if (goal_.objective != Objective::throughput || !bounds[i]->ok()) return;
        const std::lock_guard lock(mutex);
        enough_s = std::min(enough_s, bounds[i]->value().makespan_s * beyond);
      },
      workers());
  for (std::optional<Result<LowerBound>>& found : bounds) {
    ASSIGN_OR_RETURN(const LowerBound bound, *std::move(found));
    const double score = score_of(goal_, bound.makespan_s, bound.latency_s);
    ranking_.bound = std::min(ranking_.bound.value_or(score), score);
  }
  return ok_status();
}

std::vector<std::string> Ranker::layers_of(const Plan& plan) const {
  if (plan.stages.size() == 1) return {"all"};
  std::vector<std::string> layers;
  for (const Stage& stage : plan.stages)
    layers.push_back(stage.end == graph_.nodes.size() ? "rest" : ".." + cut_name(graph_, stage.end));
  return layers;
}

// From here on the objective is relative to what the judging tier says.
void Ranker::measure_judged() {
  std::vector<Estimate> singles, others;
  for (const RankedPlan& plan : ranking_.judged) {
    std::vector<Estimate>& kind = is_single(plan.plan) ? singles : others;
    kind.push_back(plan.estimate);
  }
  if (!ranking_.judged.empty()) set_yardstick(goal_, singles, others);
  ranking_.goal = goal_;
}

void Ranker::count_cost(DeviceId device, const ComputeDesc& desc, SeenCosts& seen) const {
  if (desc.kernel.empty()) return;
  if (const auto cost = costs_.cost(device, desc)) seen.emplace(std::pair(signature(desc), cost->origin), cost->spread);
}

// Of a plan that splits layers: no other has its shards.
void Ranker::count_costs_of(const Program& program, SeenCosts& seen) const {
  std::set<std::pair<DeviceId, int>> counted;  // with a device's costs, a computation
  for (const DeviceProgram& device : program.devices) {
    const DeviceId id = scenario_.cluster.find_device(device.name);
    if (device.kind == DeviceKind::host || !id.valid()) continue;
    const DeviceId first = first_with_costs_of(id, scenario_.cluster, costs_);
    for (const Segment& segment : device.segments) {
      for (const Instr& instr : segment.instrs) {
        if (instr.opcode != Opcode::compute || !counted.emplace(first, instr.desc).second) continue;
        count_cost(id, program.descs[static_cast<size_t>(instr.desc)], seen);
      }
    }
  }
}

// How many distinct computations stand behind the answer, and where their costs come from. One that has none is
// needed by no plan.
void Ranker::count_costs() {
  for (size_t d = 0; d < scenario_.cluster.devices.size(); ++d) {
    const DeviceId device(d);
    if (first_with_costs_of(device, scenario_.cluster, costs_) != device) continue;
    const Level level = scenario_.cluster.device(device).level;
    for (const PreparedModel& prepared : prepared_) {
      const KernelGraph& all = prepared.kernels.training ? prepared.kernels.training->step : prepared.kernels;
      const std::vector<ComputeDesc>& descs = all.chosen.at(level).descs;
      const std::vector<NodeKernel>& kernels = all.kernels.at(level);
      for (size_t n = 0; n < descs.size(); ++n) {
        if (kernels[n].same_as == n) count_cost(device, descs[n], seen_costs_);
      }
    }
  }
  for (const auto& [what, spread] : seen_costs_) {
    switch (what.second) {
      case CostOrigin::measured:
        ++ranking_.measured_costs;
        break;
      case CostOrigin::predicted:
        ++ranking_.predicted_costs;
        ranking_.largest_spread = std::max(ranking_.largest_spread, spread);
        break;
      case CostOrigin::formula:
        ++ranking_.estimated_costs;
        break;
    }
  }
}

}  // namespace nlsplit::inline ranking
