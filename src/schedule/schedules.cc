#include "schedule/schedules.h"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "base/file.h"
#include "base/text_reader.h"
#include "schedule/online_choice.h"
#include "schedule/pipeline_csv.h"
#include "schedule/policies.h"

namespace nlsplit::inline schedules {
namespace {

using enum ScheduleMode;

constexpr SchedulePolicy policies[] = {
#define NLS_SCHEDULE(name, mode, placement, what, source) \
  {#name, what, source, mode, StagePlacement::placement, schedule_##name},
#include "schedule/schedules.def"
};

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

std::string_view name_of(ScheduleMode mode) {
  switch (mode) {
    case ScheduleMode::inference:
      return "inference";
    case ScheduleMode::training:
      return "training";
    case ScheduleMode::both:
      return "both";
  }
  CHECK(false, "unknown mode");
}

std::string_view name_of(StagePlacement placement) {
  switch (placement) {
    case StagePlacement::any:
      return "any";
    case StagePlacement::chain:
      return "chain";
    case StagePlacement::loop:
      return "loop";
    case StagePlacement::v:
      return "v";
    case StagePlacement::mirrored:
      return "mirrored";
  }
  CHECK(false, "unknown placement");
}

std::span<const SchedulePolicy> all_schedules() { return policies; }

Result<const SchedulePolicy*> find_schedule(std::string_view name) {
  std::vector<std::string_view> names;
  for (const SchedulePolicy& policy : policies) {
    if (policy.name == name) return &policy;
    names.push_back(policy.name);
  }
  std::string hint = nearest(name, names);
  if (!hint.empty()) hint = fmt::format("; did you mean '{}'?", hint);
  return invalid_input(fmt::format("unknown schedule '{}'{} (there are {})", name, hint, fmt::join(names, ", ")));
}

Result<SlotTable> make_schedule(std::string_view name, const ScheduleInput& input) {
  if (name.starts_with(schedule_file_prefix)) {
    const std::string path(name.substr(schedule_file_prefix.size()));
    ASSIGN_OR_RETURN(const std::string text, read_file(path));
    ASSIGN_OR_RETURN(const PipelineCsv csv, parse_pipeline_csv(text, path));
    return table_of(csv, input);
  }
  if (is_online(name)) {
    ASSIGN_OR_RETURN(const OnlineChoice choice, parse_online_choice(name));
    return make_online_base(choice, input);
  }
  ASSIGN_OR_RETURN(const SchedulePolicy* policy, find_schedule(name));
  const ScheduleMode mode = input.training() ? training : inference;
  if (policy->mode != both && policy->mode != mode) {
    std::vector<std::string_view> names;
    for (const SchedulePolicy& other : policies) {
      if (other.mode == both || other.mode == mode) names.push_back(other.name);
    }
    return unsupported(fmt::format("schedule {} is for {}; for {} there are {}", name, name_of(policy->mode),
                                   name_of(mode), fmt::join(names, ", ")));
  }
  return policy->make(input);
}

}  // namespace nlsplit::inline schedules
