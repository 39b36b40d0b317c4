// What a scenario's noise does to a plan: one run of it is the plan's TimedGraph, disturbed.
//
//   const NoiseKeys keys = noise_keys(program, dependencies, graph, cluster);    // once for each plan
//   TimedGraph run_7 = graph;
//   disturb(run_7, noise, cluster, keys, 7);                                     // simulate_all or simulate_fast
//
// Draws are made from (seed, run, what they are for) and from nothing else: not in turn. So a run is the same whatever
// ran before it, and different plans meet the same run: when device B is slow, or micro-batch 3 takes long on it, it is
// so for every plan that uses B. (Common random numbers: they make the difference between two plans far less noisy than
// either figure. Law, "Simulation Modeling and Analysis", 5th ed., 11.2.)
//
// jitter      a factor with mean 1 and the given standard deviation, log-normal: never negative, and the slow side is
//             the long one, as with products of many small disturbances (Limpert, Stahel, Abbt, "Log-normal
//             distributions across the sciences", BioScience 51(5), 2001). One factor for all that a device does for a
//             micro-batch in one slot, one for each message; independent of each other.
// straggler   the device's TimedGraph::slowness. Both tiers.
// link        TimedGraph::courses, in both directions. SimGrid only: the fast tier sees no sharing of links either.
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

// What a plan's activities and devices are called when draws are made.
struct NoiseKeys {
  std::vector<uint64_t> activities;  // equal for all blocks of a slot
  std::vector<DeviceId> devices;     // of the cluster, by device of the Program; none for endpoints
};
NoiseKeys noise_keys(const Program& program, const Dependencies& dependencies, const TimedGraph& graph,
                     const Cluster& cluster);

// `graph` is the undisturbed one.
void disturb(TimedGraph& graph, const Noise& noise, const Cluster& cluster, const NoiseKeys& keys, int run);

}  // namespace nlsplit::inline sim
