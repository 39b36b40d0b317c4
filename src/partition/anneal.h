// Simulated annealing over whole plans: small changes to one plan, worse ones accepted now and then, ever more rarely
// (Kirkpatrick, Gelatt, Vecchi, "Optimization by simulated annealing", Science 220, 1983).
//
//   AnnealSpace space = …;  // the graph, its cuts, the devices
//   space.cost = [&](const Plan& plan) { return scorer.bound(plan.stages); };
//   anneal(space, {start}, {.steps = 2000, .seed = 1})[0].plan       // the best it met
//
// Changes: a cut moves; devices are swapped, added, dropped, moved to another stage; stages are merged, or cut in two;
// a stage of several devices has replicas, or shares each micro-batch on an axis it can be split on; shares change by
// one; the number of micro-batches changes. A device has one stage, or several of which at least one is split inside
// its layers. The result depends on the space, the starts, steps and seed only.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "partition/search_methods.h"

namespace nlsplit::inline partition {

struct AnnealSpace {
  const Graph* graph = nullptr;
  std::vector<size_t> cuts;       // where a stage may end, ascending; the last is the end of the graph
  std::vector<DeviceId> devices;  // that plans may use
  size_t max_stages = 1, max_devices = 1;
  bool replicate = true;                // stages of devices that are data-parallel replicas
  std::vector<SplitAxis> axes = {};     // on which stages may be split inside their layers
  std::vector<int> micro_batches = {};  // to choose from; none: as the start has it
  // The cost to minimize; infinite: an impossible plan. Called once for each plan.
  std::function<double(const Plan&)> cost;
  // A cheap lower bound of the cost: `cost` is not called for a change whose bound is already too high. May be
  // empty.
  std::function<double(const Plan&)> least_cost = {};
  // interchangeable_devices: of plans that differ only by their names one is looked at. None: all are.
  std::vector<size_t> class_of = {};
  // Shares in proportion to the speed of a stage's devices; needed with axes.
  std::function<std::vector<int64_t>(const Stage&)> shares = {};
};

struct AnnealOptions {
  size_t steps = 1000;  // plans that are looked at; more find better plans and take longer
  uint64_t seed = 1;
  // How much worse a plan may be, relatively, to be accepted with a probability of 1/e at the start; a hundredth of it
  // at the end. Less finds the nearest good plan, more looks around longer.
  double heat = 0.1;
};

struct TriedPlan {
  Plan plan;
  double cost = 0;
};

// All different plans that were tried and have a finite cost, best first, including the starts. The steps are divided
// evenly among the starts.
std::vector<TriedPlan> anneal(const AnnealSpace& space, const std::vector<Plan>& starts, const AnnealOptions& options);

}  // namespace nlsplit::inline partition
