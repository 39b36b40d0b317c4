#include "ranking/explain.h"

#include <algorithm>

#include "ranking/evaluate.h"
#include "ranking/scaled_links.h"

namespace nlsplit::inline ranking {
namespace {

constexpr double busy = 0.9;  // of the makespan: what is busier than this is the bottleneck

// The only stage this device has a part in.
std::optional<size_t> stage_of(const Plan& plan, DeviceId device) {
  std::optional<size_t> found;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    if (std::ranges::find(plan.stages[s].devices, device) == plan.stages[s].devices.end()) continue;
    if (found) return std::nullopt;
    found = s;
  }
  return found;
}

void find_bottleneck(const Scenario& scenario, const RankedPlan& ranked, Explanation& why) {
  const Estimate& e = ranked.estimate;
  const bool link = e.busiest_link_share > busy && e.busiest_link_share >= e.busiest_device_share;
  why.bottleneck = link                            ? Explanation::Bottleneck::link
                   : e.busiest_device_share > busy ? Explanation::Bottleneck::stage
                                                   : Explanation::Bottleneck::nothing;
  why.name = link ? e.busiest_link : e.busiest_device;
  why.share = link ? e.busiest_link_share : e.busiest_device_share;
  if (const DeviceId device = scenario.cluster.find_device(e.busiest_device); device.valid() && !link)
    why.stage = stage_of(ranked.plan, device);
  const Fullest fullest = fullest_device(scenario, e);
  why.fullest_device = fullest.device;
  why.fullest_share = fullest.share;
}

}  // namespace

std::vector<Explanation> explain(const Scenario& scenario, const Ranking& ranking,
                                 const std::vector<LoweredPlan>& judged) {
  // Of generation by a token.
  const Verdict& verdict = ranking.verdict;
  const std::optional<size_t> best_single = (ranking.generates ? verdict.latency : verdict.throughput).single;
  const LoweredPlan* single = best_single ? &judged[*best_single] : nullptr;
  std::vector<Explanation> all;
  for (const size_t i : kept(ranking)) {
    Explanation& why = all.emplace_back();
    why.plan = i;
    find_bottleneck(scenario, ranking.judged[i], why);
    if (single == nullptr) continue;
    why.gain = ranking.judged[i].estimate.throughput / ranking.judged[*best_single].estimate.throughput;
    if (is_single(ranking.judged[i].plan)) continue;
    const LoweredPlan& plan = judged[i];
    const auto wins = [&](const ScaledLinks& links) {
      return makespan_over(plan, links) < makespan_over(*single, links) / clearly_faster;
    };
    why.break_even_bandwidth = where_it_changes([&](double f) { return wins({.bandwidth = f}); }, true);
    why.break_even_latency = where_it_changes([&](double f) { return wins({.latency = f}); }, false);
    const double quickest = makespan_over(plan, no_network);
    if (quickest > 0) why.gain_without_network = makespan_over(*single, no_network) / quickest;
  }
  return all;
}

}  // namespace nlsplit::inline ranking
