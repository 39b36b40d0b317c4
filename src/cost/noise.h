// Noise: random and fixed disturbances that make a cluster slower than its costs and links say. A scenario's `noise:`;
// docs/scenario.md explains each kind, sim/disturb.h applies them to a simulation.
//
//   Noise noise;
//   noise.compute_jitter = 0.05;                                  // of each micro-batch on each device, 5 %
//   noise.stragglers.push_back({.slowdown = 2, .chance = 0.1});   // in each run one device in ten takes twice as long
#pragma once

#include <limits>
#include <vector>

#include "cost/cluster.h"

namespace nlsplit::inline cost {

inline constexpr double for_ever = std::numeric_limits<double>::infinity();

// A device that takes `slowdown` times as long from `from` until `until`, in `chance` of the runs.
struct Straggler {
  DeviceId device = {};  // none: every one, each by a chance of its own
  double slowdown = 1;
  double from = 0, until = for_ever;  // seconds since the start of the run
  double chance = 1;
};

// Traffic of others on a link: it takes `share` of each direction. In bursts if `on` is above 0: lengths of bursts and
// pauses are exponential with these means, independent of each other.
struct Background {
  LinkId link = {};
  double share = 0;        // in (0, 1)
  double on = 0, off = 0;  // seconds
};

// A link that has only bandwidth `to` from `at` until `until`, in `chance` of the runs.
struct Degradation {
  LinkId link = {};
  BytesPerSecond to = {};
  double at = 0, until = for_ever;  // seconds since the start of the run
  double chance = 1;
};

struct Noise {
  uint64_t seed = 1;
  int runs = 30;  // simulations of each plan
  // Relative standard deviations of log-normal factors with mean 1: of what a micro-batch takes on a device, and of
  // what a message takes.
  double compute_jitter = 0, link_jitter = 0;
  std::vector<Straggler> stragglers;
  std::vector<Background> background;
  std::vector<Degradation> degradations;
};

// Whether the bandwidth of a link changes during a run.
bool disturbs_links(const Noise& noise);

// Whether runs differ from each other. If not, one run suffices.
bool is_random(const Noise& noise);

}  // namespace nlsplit::inline cost
