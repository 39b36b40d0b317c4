// The Programs of a scenario as a session under one plan.
//
//   ASSIGN_OR_RETURN(CompiledSession compiled, session_of(scenario, model, plan));
#pragma once

#include "compile/session.h"
#include "ranking/ranking.h"

namespace nlsplit::inline ranking {

// The plan is one of the first Program's; the others have its stages. A scenario without `programs` makes a session of
// one, called `train` or `infer`. model.weights then knows all that the Programs name. Errors: an online plan;
// prepare_model's and compile_session's.
Result<CompiledSession> session_of(const Scenario& scenario, Model& model, const Plan& plan);

}  // namespace nlsplit::inline ranking
