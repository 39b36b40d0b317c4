// How a ranking behaves at a terminal, and the options of commands that rank.
#pragma once

#include <CLI/CLI.hpp>

#include "planning/load.h"

namespace nlsplit::inline tools {

RankOptions terminal_options();  // progress and Ctrl-C

// choose_plan with these.
Result<RankedPlan> choose_plan_at_terminal(Loaded& loaded, const PlanChoice& choice);

// The option `--tier NAME`.
void add_tier_option(CLI::App& command, const Tier*& tier);
// The option `--confidence P`.
CLI::Option* add_confidence_option(CLI::App& command, double& confidence, const std::string& about);

}  // namespace nlsplit::inline tools
