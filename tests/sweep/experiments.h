// Experiments in a few words, and the sweep of one in a folder of its own.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "sweep/sweep.h"
#include "tools/run_program.h"

namespace nlsplit::testing {

inline Experiment experiment_of(const std::string& text, const std::string& file = "e.yaml") {
  auto experiment = parse_experiment(text, file);
  EXPECT_TRUE(experiment.ok()) << experiment.error().to_string();
  return experiment.ok() ? std::move(experiment).value() : Experiment{};
}

inline std::string error_of(const std::string& text, const std::string& file = "e.yaml") {
  const auto experiment = parse_experiment(text, file);
  return experiment.ok() ? "" : experiment.error().to_string();
}

inline Sweep sweep_of(const Experiment& experiment, const SweepOptions& options) {
  auto runner = make_runner(experiment);
  EXPECT_TRUE(runner.ok()) << runner.error().to_string();
  auto sweep = run_sweep(experiment, **runner, options);
  EXPECT_TRUE(sweep.ok()) << sweep.error().to_string();
  return sweep.ok() ? std::move(sweep).value() : Sweep{};
}

inline std::string cell(const Sweep& sweep, size_t point, std::string_view column) {
  return sweep.rows.at(point).at(column_of(sweep, column));
}
inline double figure(const Sweep& sweep, size_t point, std::string_view column) {
  const std::string text = cell(sweep, point, column);
  EXPECT_NE(text, "") << column << " of point " << point << ": " << cell(sweep, point, "reason");
  return text.empty() ? -1 : std::stod(text);
}

// Two machines that train simple_cnn.
inline std::string training_scenario(const std::string& bandwidth = "1Gbps", const std::string& noise = "",
                                     const std::string& compute_b = "10GFLOPS") {
  return fmt::format(R"(model: zoo:simple_cnn
workload: {{mode: training, batch: 8, micro_batches: [2, 4]}}
devices:
  A: {{host: a, memory: 1GiB, costs: {{roofline: {{compute: 10GFLOPS, memory: 10GBps}}}}}}
  B: {{host: b, memory: 1GiB, costs: {{roofline: {{compute: {}, memory: 1000GBps}}}}}}
links:
  - {{between: [a, b], bandwidth: {}, latency: 10us, name: wire}}
source: a
sink: a
plans:
  mine: [..relu1@A, rest@B]
  single: {{stages: [rest@A], micro_batches: 2, schedule: gpipe}}
{}
)",
                     compute_b, bandwidth, noise);
}

}  // namespace nlsplit::testing
