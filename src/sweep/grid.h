// The points of an experiment, in the order they are run: the last axis changes first. A point that would repeat
// another (a seed where nothing is random) or that a plan's own keys leave out is not there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sweep/experiment.h"

namespace nlsplit::inline sweeps {

// All that is said of one point.
struct Setting {
  std::string schedule;  // what make_schedule takes, or "online:POLICY"
  int micro_batches = 1;
  std::optional<uint64_t> seed;  // none: nothing is random
  // Of a scenario. Factors: link or device (empty: all), and by how much.
  std::string plan;
  bool noise = false;
  std::vector<std::pair<std::string, double>> link_speeds, latencies, device_speeds;
  // Of a pipeline: as the experiment has it, with the point's values.
  Pipeline pipeline;
};

struct GridPoint {
  std::vector<std::string> cells;  // of setting_columns
  std::vector<size_t> at;          // place on every axis
  Setting setting;
  uint64_t fingerprint = 0;  // over everything that determines the point
};

// schedule, plan (of a scenario), micro_batches, the other axes as they are given, seed.
std::vector<std::string> setting_columns(const Experiment& experiment);

// Error: a schedule's file cannot be read.
Result<std::vector<GridPoint>> grid_of(const Experiment& experiment);

// What of a point decides its Program: equal texts, equal Programs. A part of what the fingerprint is made of.
std::string plan_key(const Setting& setting);
// And what of it decides the cluster it is for.
std::string cluster_key(const Setting& setting);

}  // namespace nlsplit::inline sweeps
