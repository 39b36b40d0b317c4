// Internal to the module: the parts of an experiment, each read by its own file.
#pragma once

#include "scenario/fields.h"
#include "sweep/experiment.h"

namespace nlsplit::inline sweeps {

inline constexpr int64_t max_pipeline_devices = 1024;
inline constexpr int64_t max_sweep_micro_batches = 65'536;

// Paths in an experiment are relative to the folder it stands in.
std::string beside_experiment(const std::string& file, const std::string& path);

Result<Pipeline> parse_pipeline(const Source& source, const Yaml& node);

// The map `axes`, and the axes that are not given. Everything else of the experiment is there.
Status parse_axes(const Source& source, const Yaml& node, Experiment& experiment);

// "10ms" or [10ms, 12ms, 8ms]: F, or F, I, W.
Result<std::vector<double>> read_times(const Source& source, const Yaml& node);
Result<double> read_seconds(const Source& source, const Yaml& node);
// "5%"
Result<double> read_share(const Source& source, const Yaml& node, std::string_view what);
Result<std::string> read_placement(const Source& source, const Yaml& node);

}  // namespace nlsplit::inline sweeps
