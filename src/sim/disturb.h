// What a scenario's noise does to a plan: one run of it is the plan's TimedGraph, disturbed.
//
//   const NoiseKeys keys = noise_keys(program, dependencies, graph, cluster);    // once for each plan
//   TimedGraph run_7 = graph;
//   disturb(run_7, noise, cluster, keys, 7);                                     // simulate_all or simulate_fast
//
// A draw depends only on (seed, run, what it is for), not on earlier draws. So a run does not depend on the runs before
// it, and all plans meet the same run: if device B is slow in it, or micro-batch 3 takes long there, that holds for
// every plan that uses B. (Common random numbers: the difference between two plans is far less noisy than either
// figure. Law, "Simulation Modeling and Analysis", 5th ed., 11.2.)
//
// jitter      a factor with mean 1 and the given standard deviation, log-normal: never negative, and the slow side is
//             the long one, as with products of many small disturbances (Limpert, Stahel, Abbt, "Log-normal
//             distributions across the sciences", BioScience 51(5), 2001). One factor for all that a device does for a
//             micro-batch in one slot, one for each message; independent of each other.
// straggler   the device's TimedGraph::slowness. Both tiers.
// link        TimedGraph::courses, in both directions. SimGrid only: the fast tier does not model shared links.
#pragma once

#include <vector>

#include "cost/noise.h"
#include "sim/timed_graph.h"

namespace nlsplit::inline sim {

// What a run does to the cluster, whatever the plan.
struct Weather {
  std::vector<Slowness> devices;    // by device of the cluster
  std::vector<LinkCourse> courses;  // of links that change
};
Weather weather_of(const Noise& noise, const Cluster& cluster, int run);

// Keys of a plan's activities and devices, from which draws are made.
struct NoiseKeys {
  std::vector<uint64_t> activities;  // equal for all blocks of a slot
  std::vector<DeviceId> devices;     // of the cluster, by device of the Program; none for endpoints
};
NoiseKeys noise_keys(const Program& program, const Dependencies& dependencies, const TimedGraph& graph,
                     const Cluster& cluster);

// `graph` is the undisturbed one.
void disturb(TimedGraph& graph, const Noise& noise, const Cluster& cluster, const NoiseKeys& keys, int run);

}  // namespace nlsplit::inline sim
