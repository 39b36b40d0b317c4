// Plans under the scenario's noise: each plan is simulated several times, with another draw of the noise each time.
#pragma once

#include <vector>

#include "ranking/evaluate.h"

namespace nlsplit::inline ranking {

struct NoiseRuns {
  int runs = 0;                      // of each plan; fewer than in the scenario after an interrupt
  std::vector<NoisyEstimate> plans;  // empty if runs is 0
};

// Error: the scenario's noise disturbs links, and the tier does not see that.
Status check_noise(const Scenario& scenario, const Tier& tier);

// All plans' run 0 first, then all their runs 1, …: an interrupt leaves every plan with the same runs. scenario.noise
// must be there.
Result<NoiseRuns> run_noise(const Scenario& scenario, const std::vector<LoweredPlan>& plans,
                            const RankOptions& options);

// A lower bound of a plan's time in 95 of 100 runs, relative to its time without noise: from the work of its devices
// and links under noise. Cheap enough for thousands of candidates. It keeps plans that are good only under noise.
class NoiseBound {
 public:
  explicit NoiseBound(const Scenario& scenario);  // scenario.noise must be there
  // `makespan_s`: without noise. At least 1.
  double factor(const LoweredPlan& plan, double makespan_s) const;

 private:
  struct Run {
    std::vector<Slowness> devices, links;  // by device and link of the cluster; empty: undisturbed
  };
  const Cluster& cluster_;
  std::vector<Run> runs_;
};

// Of `count` sorted values, counted from 0, the first that at least this part of them does not exceed: a quantile by
// the nearest rank.
size_t nearest_rank(size_t count, double part);

// Mean and 95th percentile by the nearest rank. So it is one of them; of fewer than 20 it is the largest.
Spread spread_of(const std::vector<double>& values);

}  // namespace nlsplit::inline ranking
