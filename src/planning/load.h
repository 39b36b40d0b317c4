// What rank, lower and simulate have in common: the scenario, its model, and the plan the user means.
#pragma once

#include <string>

#include "ranking/ranking.h"

namespace nlsplit::inline planning {

struct Loaded {
  Scenario scenario;
  Model model;
};

// A scenario file (*.yaml, *.yml), or a model alone (the path of an .onnx or .gguf file or of a safetensors folder, or
// zoo:NAME), which is a scenario of one device. need_profiles = false: costs may name files that do not exist yet,
// because they are about to be measured. precision: of a model alone, as --precision has it.
Result<Loaded> load(const std::string& what, int64_t batch, bool need_profiles = true,
                    const std::string& precision = {});
bool is_scenario(const std::string& what);

// Where a ranking's error of the whole scenario belongs: what is too large for every device to `devices`, else to
// `workload` or `programs`. Errors with a line of their own stay as they are.
Error in_scenario(Error error, const Scenario& scenario);

// Options `--plan K|NAME` and `--plan-file FILE` of which at most one is given.
struct PlanChoice {
  std::string plan;
  std::string file;
  const Tier* tier = &simgrid_tier();  // that ranks
};
// The plan meant: by its place in the ranking or its name, or from a file (the best of the micro-batch counts it leaves
// open). options: of the ranking; its tier is the choice's.
Result<RankedPlan> choose_plan(Loaded& loaded, const PlanChoice& choice, RankOptions options);

}  // namespace nlsplit::inline planning
