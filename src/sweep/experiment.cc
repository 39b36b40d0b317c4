#include "sweep/experiment.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "base/file.h"
#include "base/hash.h"
#include "sim/tiers/tiers.h"
#include "sweep/parse.h"

namespace nlsplit::inline sweeps {
namespace {

// Of every file the scenario names: whatever stands there as a value and is a file beside it. One too many does no
// harm: a point is then simulated again though it need not be.
void add_files(const Yaml& node, const std::string& scenario_file, uint64_t& hash) {
  for (const Yaml& item : node.items) add_files(item, scenario_file, hash);
  if (!node.is_scalar() || node.text.empty()) return;
  const std::string path = beside_experiment(scenario_file, node.text);
  std::error_code failure;
  if (!std::filesystem::is_regular_file(path, failure)) return;
  if (const auto content = read_file(path)) hash = hash_text(*content, hash);
}

Status read_base(const Source& source, const Yaml& node, const ScenarioOptions& options, Experiment& experiment) {
  ASSIGN_OR_RETURN(const std::string name, read_text(source, node, "the path of a scenario"));
  const std::string path = beside_experiment(source.file, name);
  const auto text = read_file(path);
  if (!text) return source.at(node, text.error());
  ASSIGN_OR_RETURN(experiment.scenario, parse_scenario(*text, path, options));
  const Source scenario{path, *text};
  ASSIGN_OR_RETURN(const Yaml tree, parse_yaml(scenario));
  experiment.inputs = hash_text(*text);
  add_files(tree, path, experiment.inputs);
  if (experiment.scenario.plans.empty()) {
    return source.at(node,
                     fmt::format("{} has no plans of its own: a sweep needs some, e.g. plans: {{mine: [..conv2@A, "
                                 "rest@B]}}",
                                 path));
  }
  return ok_status();
}

Status read_tier(const Source& source, const Yaml& node, Experiment& experiment) {
  std::vector<std::string_view> names;
  for (const Tier* tier : all_tiers()) names.push_back(tier->name());
  ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, node, "tier", names));
  if (experiment.pipeline)
    return source.at(node, "'tier' is for scenarios: a pipeline is played without links that contend");
  experiment.tier = all_tiers()[chosen];
  return ok_status();
}

}  // namespace

bool is_numeric(AxisKind kind) {
  switch (kind) {
    case AxisKind::micro_batches:
    case AxisKind::device_speed:
    case AxisKind::seed:
    case AxisKind::link_speed:
    case AxisKind::latency:
    case AxisKind::devices:
    case AxisKind::stages:
    case AxisKind::message:
    case AxisKind::jitter:
    case AxisKind::straggler:
      return true;
    case AxisKind::schedule:
    case AxisKind::plan:
    case AxisKind::noise:
    case AxisKind::placement:
    case AxisKind::times:
      return false;
  }
  CHECK(false, "unknown axis");
}

std::string beside_experiment(const std::string& file, const std::string& path) {
  return (std::filesystem::path(file).parent_path() / path).lexically_normal().string();
}

Result<Experiment> parse_experiment(std::string_view text, const std::string& file, const ScenarioOptions& options) {
  const Source source{file, text};
  ASSIGN_OR_RETURN(const Yaml tree, parse_yaml(source));
  if (tree.kind == Yaml::Kind::null) {
    Error error = invalid_input("this experiment is empty");
    error.where.file = file;
    return error;
  }
  ASSIGN_OR_RETURN(const Fields root,
                   Fields::open(source, tree, "the experiment", {"scenario", "pipeline", "tier", "axes"}));
  Experiment experiment;
  experiment.file = file;
  const Yaml* scenario = root.find("scenario");
  const Yaml* pipeline = root.find("pipeline");
  if ((scenario == nullptr) == (pipeline == nullptr))
    return source.at(tree, "an experiment needs either 'scenario' or 'pipeline'");
  if (pipeline != nullptr) {
    ASSIGN_OR_RETURN(experiment.pipeline, parse_pipeline(source, *pipeline));
  } else {
    RETURN_IF_ERROR(read_base(source, *scenario, options, experiment));
  }
  if (const Yaml* tier = root.find("tier")) RETURN_IF_ERROR(read_tier(source, *tier, experiment));
  ASSIGN_OR_RETURN(const Yaml* axes, root.need("axes"));
  RETURN_IF_ERROR(parse_axes(source, *axes, experiment));
  return experiment;
}

Result<Experiment> read_experiment(const std::string& path, const ScenarioOptions& options) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  return parse_experiment(text, path, options);
}

}  // namespace nlsplit::inline sweeps
