#include "tools/nlbench_steps.h"

#include <fmt/format.h>

#include <string_view>

namespace nlsplit::inline tools {
namespace {

constexpr std::string_view step_name = "step";

}  // namespace

Session session_of_steps(const Program& step) {
  Session session{step.name, {step}};
  session.programs[0].name = step_name;
  return session;
}

Job job_of_steps(Job job) {
  for (NamedTensor& input : job.inputs) input.name = fmt::format("{}/{}", step_name, input.name);
  return job;
}

}  // namespace nlsplit::inline tools
