// The plans that `nlbench validate` runs: what `nlsim lower --validation-set` writes.
#pragma once

#include <string>

#include "planning/load.h"

namespace nlsplit::inline planning {

struct ValidationSetArguments {
  std::string dir;
  size_t top = 10, also = 10;
  uint64_t seed = 1;
  // Also the plans among which the best one is with this probability, first, if costs have spreads; 0: not asked for.
  double confidence = 0;
  // plans.json of an earlier set: its plans, in its order, predicted with the scenario's current costs. Nothing is
  // ranked.
  std::string plans = {};
  // A file of corrections. Then the plans are predicted with these, and nothing but the predictions is written.
  std::string corrections = {};
};

// Writes the best plans and some drawn at random, with their predictions, to a folder (validate/plan_set.h). Plans that
// come to the same Program count once. options: of the ranking; its progress is told of the saving too.
Status write_validation_set(Loaded& loaded, const ValidationSetArguments& arguments, const RankOptions& options);

}  // namespace nlsplit::inline planning
