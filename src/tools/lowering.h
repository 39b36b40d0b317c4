// Plans as saved Programs: what lower's options --save and --validation-set write.
#pragma once

#include <string>

#include "program/saved.h"
#include "tools/planning.h"

namespace nlsplit::inline tools {

// The whole graph on one device of this level, whatever its memory: it is compared with, not planned for.
Result<Program> unsplit_program(const Scenario& scenario, const Graph& optimized, int micro_batches, const Device& like,
                                const KernelPreference& prefer = {});
// The same of a graph whose kernels are chosen: also of a plan that splits layers, with all its shards.
Result<Program> on_one_device(const Scenario& scenario, const KernelGraph& kernels, int micro_batches,
                              const Device& like);

// The plan's Program, what is predicted of it, and the unsplit network in as many micro-batches. The model's
// WeightStore then knows the slices that the Program names.
Result<SavedProgram> saved_form(Loaded& loaded, const Plan& plan, TimedPlan timed);

struct ValidationSetArguments {
  std::string dir;
  size_t top = 10, also = 10;
  uint64_t seed = 1;
  // plans.json of an earlier set: its plans, in its order, predicted with the scenario's costs of today. Nothing is
  // ranked.
  std::string plans = {};
  // A file of corrections. Then the plans are predicted with these, and nothing but the predictions is written.
  std::string corrections = {};
};

// Writes the best plans and some drawn at random, with their predictions, to a folder (validate/plan_set.h). Plans that
// come to the same Program count once.
Status write_validation_set(Loaded& loaded, const ValidationSetArguments& arguments);

}  // namespace nlsplit::inline tools
