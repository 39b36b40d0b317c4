#include "schedule/schedules.h"

#include <fmt/format.h>

#include <array>

#include "base/text_reader.h"
#include "schedule/policies.h"

namespace nlsplit {
namespace {

constexpr std::array<SchedulePolicy, 2> policies = {{
    {"streaming", "as micro-batches come, two to a buffer, back-pressure; memory does not grow with their number",
     schedule_streaming},
    {"fill_drain", "all micro-batches in flight, a bank for each (GPipe, Huang et al. 2019)", schedule_fill_drain},
}};

constexpr std::array<Phase, 6> phases = {
    Phase::init, Phase::forward, Phase::input_gradient, Phase::weight_gradient, Phase::recompute, Phase::step};

}  // namespace

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::init:
      return "init";
    case Phase::forward:
      return "F";
    case Phase::input_gradient:
      return "I";
    case Phase::weight_gradient:
      return "W";
    case Phase::recompute:
      return "R";
    case Phase::step:
      return "step";
  }
  CHECK(false, "unknown phase");
}

Result<Phase> parse_phase(std::string_view text) {
  for (const Phase phase : phases) {
    if (name_of(phase) == text) return phase;
  }
  return invalid_input(fmt::format("unknown phase '{}'; there are init, F, I, W, R and step", text));
}

std::span<const SchedulePolicy> all_schedules() { return policies; }

Result<SlotTable> make_schedule(std::string_view name, const ScheduleInput& input) {
  std::vector<std::string_view> names;
  for (const SchedulePolicy& policy : policies) {
    if (policy.name == name) return policy.make(input);
    names.push_back(policy.name);
  }
  std::string hint = nearest(name, names);
  if (!hint.empty()) hint = fmt::format("; did you mean '{}'?", hint);
  return invalid_input(fmt::format("unknown schedule '{}'{} (there are {})", name, hint, fmt::join(names, ", ")));
}

}  // namespace nlsplit
