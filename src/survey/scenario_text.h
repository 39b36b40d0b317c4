// A scenario of what a survey found: `nlsim rank` takes it as it is. What nobody could find out stands there as a
// comment with TODO, at the key that wants it.
#pragma once

#include <string>

#include "survey/survey.h"

namespace nlsplit::inline survey {

struct Draft {
  std::string model = "zoo:mobilenet_v2";
  bool model_is_given = false;  // else which one is asked for
  std::string written_by;       // the command, for the first line
  std::string date;             // "2026-11-26"
};

// YAML. The survey's machines have names that hosts may have, each its own, and all their `compute` and `memory_rate`.
std::string scenario_text(const Survey& survey, const Draft& draft);

}  // namespace nlsplit::inline survey
