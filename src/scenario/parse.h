// Internal to the module: the parts of a scenario, each read by its own file.
#pragma once

#include "scenario/fields.h"
#include "scenario/scenario.h"

namespace nlsplit::inline scenario {

inline constexpr int64_t max_micro_batches = 65'536;
inline constexpr int64_t max_batch = 1'000'000;  // larger is a typing error: no plan could be built in memory
inline constexpr int64_t max_devices = 10'000;   // also the limit for the switches and links of a scenario's lists

// Paths in a scenario are relative to the folder it stands in.
std::string beside(const std::string& scenario_file, const std::string& path);

// topology, devices, links, switches, network, source and sink of `root`.
Status parse_cluster(const Source& source, const Fields& root, const ScenarioOptions& options, Scenario& scenario);

// noise, once the cluster is known.
Status parse_noise(const Source& source, const Yaml& node, Scenario& scenario);

// The keys of a workload that are for training, once its mode is known: a scenario with `training`, or without.
std::span<const std::string_view> training_keys();
Status parse_training(const Source& source, const Fields& workload, Scenario& scenario);

// The same of generation: its sequences are the batch. And search: {require}, what a plan that generates must reach.
std::span<const std::string_view> generation_keys();
Status parse_generation(const Source& source, const Fields& workload, Scenario& scenario);
Status parse_requirements(const Source& source, const Yaml& node, Scenario& scenario);

// A plan's stages, micro-batches and schedule: a list of stages, or a map with them. `workload_batch` 0: it stands in a
// file of its own, where the batch is not known and it may name itself.
Result<UserPlan> parse_plan(const Source& source, const Yaml& node, std::string name, int64_t workload_batch);
// A single number or a list. Every count must divide the batch, unless that is 0: not known.
Result<std::vector<int>> parse_micro_batches(const Source& source, const Yaml& node, int64_t workload_batch);
Result<std::string> parse_schedule_name(const Source& source, const Yaml& node);

}  // namespace nlsplit::inline scenario
