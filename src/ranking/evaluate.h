// One plan: lowered, timed, and summed up.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "partition/search.h"
#include "ranking/plan_parts.h"
#include "ranking/ranking.h"
#include "sim/fast.h"
#include "sim/online.h"

namespace nlsplit::inline ranking {

// The parts of a plan's Program and dependencies that are still needed after verify().
struct PlanDigest {
  Status sound;                    // verify()'s result
  std::vector<int> micro_batches;  // micro_batches_of
  std::vector<PhaseTimes> phases;  // of each device of the Program
  uint64_t slots = 0;              // slots_of
};

struct LoweredPlan {
  Program program;
  Dependencies dependencies;     // of an online plan the free ones
  std::optional<Online> online;  // of an online plan
  TimedGraph timed;
  Load load;                                 // busy seconds of devices and links
  std::vector<WeightSlice> slices;           // of a plan that splits layers: what its weights are cut to
  std::shared_ptr<const Training> training;  // Compiled's
  std::vector<PlanNote> notes;               // of such a plan
  Promise promise;                           // how near to the unsplit results it comes
  const DeviceProgram* too_large =
      nullptr;                     // into `program`: the first device whose memory is too small; then nothing is timed
  std::optional<PlanParts> parts;  // if error bars are wanted
  std::optional<PlanDigest> digest;  // then of the Program only the names and sizes of its devices are left
  // Of a plan on networks with fewer blocks (ranking/shorter.h): this one's weight, and the others. Arenas are those of
  // the whole plan.
  double weight = 1;
  std::vector<LoweredPlan> others;

  LoweredPlan() = default;
  LoweredPlan(LoweredPlan&&) = default;  // devices stay where they are when a vector moves, so `too_large` stays good
  LoweredPlan& operator=(LoweredPlan&&) = default;
};

// What search needs to know of the model at one micro-batch count, in training of a whole step.
Result<SearchCosts> search_costs(const Scenario& scenario, const PreparedModel& prepared, const CostTable& costs);

// The one at this count, which must be among them.
const PreparedModel& prepared_for(const std::vector<PreparedModel>& prepared, int micro_batches);

bool is_single(const Plan& plan);  // the whole model on one device

// What the scenario says of how plans are compiled.
CompileOptions compile_options(const Scenario& scenario);

// A plan with splits inside layers is expanded first (compile/split.h).
Result<LoweredPlan> lower_plan(const Scenario& scenario, const PreparedModel& prepared, const Plan& plan,
                               const CostTable& costs);

// lower(plan); where the workload says Recompute::to_fit, again with stages of `plan` that recompute, as long as
// devices that have no room have stages that do not.
Result<LoweredPlan> lower_to_fit(const Scenario& scenario, Plan& plan,
                                 const std::function<Result<LoweredPlan>(const Plan&)>& lower);

// The same of what it is made of (shorter_plans).
class ShorterModels;
struct ShorterPlan;
Result<LoweredPlan> lower_shorter(const Scenario& scenario, const std::vector<ShorterPlan>& plans,
                                  ShorterModels& models, const CostTable& costs);
// estimates: of this one and the others.
Estimate whole_estimate(const Scenario& scenario, const LoweredPlan& lowered, const std::vector<Estimate>& estimates);

// As program/verify.h says.
Status verify(const LoweredPlan& lowered);

// Verifies the plan and keeps a digest instead of its Program and dependencies, which take most of its memory.
void keep_digest(LoweredPlan& lowered);

// Its activities on these costs.
Result<TimedGraph> timed_graph_of(const LoweredPlan& lowered, const Cluster& cluster, const CostTable& costs);

// [activity]: the micro-batch it is for; -1: none.
std::vector<int> micro_batches_of(const LoweredPlan& lowered);
// RankedPlan::slots
uint64_t slots_of(const LoweredPlan& lowered);
// Time of a micro-batch from its first activity to its last: mean and longest. `count`: number of micro-batches.
struct Latency {
  double mean = 0, longest = 0;
};
Latency latency_of(const std::vector<int>& micro_batches, int count, const Timing& timing);

// From the times of its activities, by any tier.
Estimate estimate_of(const Scenario& scenario, const LoweredPlan& lowered, const Timing& timing);

// The device with the largest part of its memory taken, and that part.
struct Fullest {
  std::string device;
  double share = 0;
};
Fullest fullest_device(const Scenario& scenario, const Estimate& estimate);

Goal goal_of(const Scenario& scenario);
// The best single device's times, which a weighted objective is relative to; without `singles` the best of `others`.
void set_yardstick(Goal& goal, const std::vector<Estimate>& singles, const std::vector<Estimate>& others);

double score_of(const Goal& goal, double makespan_s, double latency_s);  // smaller is better
double score_of(const Goal& goal, const Estimate& estimate);

// Adds the breakdown of a simulation without noise.
void add_breakdown(const LoweredPlan& lowered, const Breakdown& breakdown, const Cluster& cluster, Estimate& estimate);

// By the fast tier; the makespan is at least the time of the busiest device or link, which holds with contention too.
Estimate estimate_fast(const Scenario& scenario, const LoweredPlan& lowered);

}  // namespace nlsplit::inline ranking
