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

constexpr std::array<SchedulePolicy, 14> policies = {{
    {"streaming", "as micro-batches come, two to a buffer, back-pressure; memory does not grow with their number", "",
     inference, StagePlacement::any, schedule_streaming},
    {"fill_drain", "all micro-batches in flight, a bank for each", "GPipe, Huang et al. 2019, section 2.3", inference,
     StagePlacement::any, schedule_fill_drain},
    {"sequential", "one micro-batch at a time: no pipelining", "GPipe, Huang et al. 2019, figure 2b", inference,
     StagePlacement::any, schedule_sequential},
    {"gpipe", "all forward, then all backward", "GPipe, Huang et al. 2019, section 2.3", training, StagePlacement::any,
     schedule_gpipe},
    {"1f1b", "one forward, one backward; device i keeps p - i micro-batches",
     "PipeDream-flush, Narayanan et al. 2021, "
     "section 3.2",
     training, StagePlacement::chain, schedule_1f1b},
    {"interleaved", "1F1B over v stages a device: 1/v of the bubble, v times the messages",
     "Megatron-LM, Narayanan et al. 2021 (SC), section 2.2", training, StagePlacement::loop, schedule_interleaved},
    {"looped_bfs", "all micro-batches through a stage before the device's next one",
     "Breadth-first, Lamy-Poirier 2023, section 4.1", training, StagePlacement::loop, schedule_looped_bfs},
    {"zb_h1", "weight gradients put off to fill gaps, memory of 1F1B", "Zero bubble, Qi et al. 2024, section 2",
     training, StagePlacement::chain, schedule_zb_h1},
    {"zb_h2", "no bubble for equal times, 2p - 1 micro-batches kept", "Zero bubble, Qi et al. 2024, section 2",
     training, StagePlacement::chain, schedule_zb_h2},
    {"zb_v", "no bubble for equal times, memory of 1F1B; greedy on real times else",
     "Zero bubble, Qi et al. 2024, section 6", training, StagePlacement::v, schedule_zb_v},
    {"dualpipe", "two pipelines against each other, forwards beside backwards; weights twice",
     "DeepSeek-V3, 2024, section 3.2.1", training, StagePlacement::mirrored, schedule_dualpipe},
    {"dualpipe_v", "half of DualPipe: the way back is the second half of the stages", "DualPipe, DeepSeek-AI 2025",
     training, StagePlacement::v, schedule_dualpipe_v},
    {"list", "whenever a device is free, the ready slot with the longest way to the end, on real times",
     "Graham 1969; HEFT, Topcuoglu et al. 2002, section 4.1", both, StagePlacement::any, schedule_list},
    {"search", "the best of all others, shortened by simulated annealing on real times under the memory limit",
     "van Laarhoven et al. 1992", both, StagePlacement::any, schedule_search},
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
