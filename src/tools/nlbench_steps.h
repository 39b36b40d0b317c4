// `nlbench run --steps N`: a session of one Program, the training step, executed so many times. Each step begins with
// the weights and states that the one before left, without a barrier between them.
#pragma once

#include "exec/run_session.h"

namespace nlsplit::inline tools {

Session session_of_steps(const Program& step);
Job job_of_steps(Job job);  // the step's, with the names that its inputs have in the session

}  // namespace nlsplit::inline tools
