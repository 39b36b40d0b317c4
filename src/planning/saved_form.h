// Plans as saved Programs (program/saved.h): what `nlsim lower --save` writes and `nlbench run` reads.
#pragma once

#include "planning/load.h"
#include "program/saved.h"

namespace nlsplit::inline planning {

// The whole graph on one device of this level, whatever its memory: it is compared with, not planned for.
Result<Program> unsplit_program(const Scenario& scenario, const Graph& optimized, int micro_batches, const Device& like,
                                const KernelPreference& prefer = {});
// The same of a graph whose kernels are chosen: also of a plan that splits layers, with all its shards.
Result<Program> on_one_device(const Scenario& scenario, const KernelGraph& kernels, int micro_batches,
                              const Device& like);

// The plan's Program, what is predicted of it, and the unsplit network in as many micro-batches. The model's
// WeightStore then knows the slices that the Program names.
Result<SavedProgram> saved_form(Loaded& loaded, const Plan& plan, TimedPlan timed);

// The scenario's Programs under the plan (ranking/session.h), and what is predicted of one that generates. The same of
// the WeightStore.
Result<SavedSession> saved_session(Loaded& loaded, const Plan& plan);
// The same of the session that `nlbench train` runs (training_session), and what is predicted of a step.
Result<SavedSession> saved_training_session(Loaded& loaded, const Plan& plan);

}  // namespace nlsplit::inline planning
