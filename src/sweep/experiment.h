// Experiment: a grid of simulations, read from YAML. docs/sweep.md lists every key.
//
//   scenario: ../training.yaml
//   axes:
//     schedule: [gpipe, 1f1b]
//     link_speed: [1, 0.1]          # four points: the last axis changes first
//
// Instead of a scenario it may have a `pipeline`: equal stages with times as the papers have them, without a model or
// links that contend.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scenario/scenario.h"
#include "schedule/online_choice.h"
#include "sim/fast.h"

namespace nlsplit::inline sweeps {

enum class AxisKind : uint8_t {
  schedule,
  micro_batches,
  device_speed,
  seed,
  plan,  // of a scenario, like the next three
  link_speed,
  latency,
  noise,
  devices,  // of a pipeline, like the rest
  stages,
  placement,
  times,
  message,
  jitter,
  straggler,
};

struct AxisValue {
  std::string text;             // in tables and in the CSV
  std::string name = {};        // schedule: what make_schedule takes, or "online:POLICY"; plan: its name
  std::vector<double> numbers;  // its figures, if it has any
};

struct Axis {
  AxisKind kind{};
  std::string target;  // one link or device; empty: all of them, or there are none
  std::string column;  // "link_speed_factor", "link_speed_factor_a-sw", "message_s"
  std::vector<AxisValue> values;
  bool given = true;  // false: what the scenario says; a plan of it then takes only the values that are its own
};
bool is_numeric(AxisKind kind);  // its values have an order of their own

// Work is the same for every number of stages: `times`, `kept_*` are of one device's share of the network, and each of
// v stages of a device takes a v-th of it.
struct Pipeline {
  int devices = 0;
  int stages = 0;                // 0: one a device, two in placements loop and v
  int micro_batches = 0;         // 0: an axis says it
  std::string placement;         // for schedules that serve any; empty: chain
  std::vector<double> times;     // seconds of one micro-batch: F, or F, I, W
  std::vector<double> messages;  // seconds: one for all boundaries of stages, or one for each
  std::vector<double> speed;     // by device; empty: 1
  std::vector<int64_t> kept;     // bytes of one micro-batch from F until I, and from then until W; empty: not weighed
  std::optional<Bytes> memory;   // of a device, for what is kept
  double jitter = 0;             // each slot takes its time times a number drawn evenly from 1 to 1 + jitter
  std::vector<std::pair<int, double>> stragglers;  // device, slowdown: no schedule knows of it beforehand
};

struct Experiment {
  std::string file;
  std::optional<Pipeline> pipeline;  // none: a scenario
  Scenario scenario;
  uint64_t inputs = 0;              // fingerprint of the scenario's text and of the files it names
  const Tier* tier = &fast_tier();  // of a scenario
  std::vector<Axis> axes;           // the first changes last
};

// Errors: file:line:column of the experiment or its scenario, and what would be right.
Result<Experiment> parse_experiment(std::string_view text, const std::string& file,
                                    const ScenarioOptions& options = {});
Result<Experiment> read_experiment(const std::string& path, const ScenarioOptions& options = {});

}  // namespace nlsplit::inline sweeps
