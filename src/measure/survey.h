// Surveys the machines that the ranks of a transport are on, one rank a machine: what each is and how fast, then what
// messages between them take, pair by pair, while all others wait.
//
//   ASSIGN_OR_RETURN(const Survey survey, run_survey(&request, transport, options));   // rank 0
//   RETURN_IF_ERROR(run_survey(nullptr, transport, options));                          // every other rank
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "exec/transport.h"
#include "survey/survey.h"

namespace nlsplit::inline measure {

// What rank 0 wants.
struct SurveyRequest {
  std::vector<std::string> names;  // of the machines, by rank; empty: what each calls itself
  std::vector<int> cores;          // that shall be used, by rank; 0, or empty: all there are
};

struct SurveyOptions {
  bool (*cancelled)() = nullptr;
  std::string gpu_backend = {};  // exec/cuda/library.h
  // On rank 0: how far it is.
  std::function<void(const std::string& doing, size_t done, size_t all)> progress = nullptr;
};

// Rank 0's answer is whole, the others' empty. Ranks on one machine measure its speed in turns, and
// the answer says which they are. Error, the same on all
// ranks: a machine that cannot be looked at, or more names or cores than ranks.
Result<Survey> run_survey(const SurveyRequest* request, Transport& transport, const SurveyOptions& options);

}  // namespace nlsplit::inline measure
