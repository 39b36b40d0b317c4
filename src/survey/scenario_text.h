// A scenario of what a survey found: `nlsim rank` takes it as it is. What nobody could find out stands there as a
// comment with TODO, at the key that wants it.
#pragma once

#include <string>
#include <vector>

#include "survey/survey.h"

namespace nlsplit::inline survey {

struct Draft {
  std::string model = "zoo:mobilenet_v2";
  bool model_is_given = false;  // else which one is asked for
  std::string written_by;       // the command, for the first line; control characters in it become spaces
  std::string date;             // "2026-11-26"
};

// YAML. The survey's machines have names that hosts may have, each its own, and all their `compute` and `memory_rate`.
// Devices stand in the survey's order, so rank r of the survey is also the r-th host of the file.
std::string scenario_text(const Survey& survey, const Draft& draft);

// Why the scenario is not to be trusted as it is, a sentence each: machines that are one, a network of no known shape.
std::vector<std::string> warnings_of(const Survey& survey);

}  // namespace nlsplit::inline survey
