// Points of a pipeline: a table of slots made on what is known beforehand (times, speeds, messages), played on what
// then happens (jitter, stragglers). An online policy is asked while it happens.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/cores.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/index.h"
#include "base/random.h"
#include "schedule/evaluate.h"
#include "schedule/online.h"
#include "schedule/pipeline_csv.h"
#include "schedule/placement.h"
#include "sweep/points.h"

namespace nlsplit::inline sweeps {
namespace {

constexpr int64_t most_slots = int64_t{1} << 22;  // more would be a slip of the pen

struct StageShape {
  int devices = 0;
  std::vector<std::vector<int>> stage_devices;
};

Result<StagePlacement> placement_of(const Setting& setting) {
  const std::string& wanted = setting.pipeline.placement;
  StagePlacement own = StagePlacement::any;
  if (!is_online(setting.schedule)) {
    ASSIGN_OR_RETURN(const SchedulePolicy* policy, find_schedule(setting.schedule));
    own = policy->placement;
  }
  if (own == StagePlacement::any) own = StagePlacement::chain;
  for (const StagePlacement placement :
       {StagePlacement::chain, StagePlacement::loop, StagePlacement::v, StagePlacement::mirrored}) {
    if (name_of(placement) == wanted) return placement;
  }
  return own;
}

Result<StageShape> shape_of_file(const Setting& setting) {
  const std::string path = setting.schedule.substr(schedule_file_prefix.size());
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  ASSIGN_OR_RETURN(const PipelineCsv csv, parse_pipeline_csv(text, path));
  ASSIGN_OR_RETURN(const PipelineShape shape, shape_of(csv));
  const Pipeline& pipeline = setting.pipeline;
  if (static_cast<int>(csv.ranks.size()) != pipeline.devices)
    return unsupported(fmt::format("the file is for {} devices, not for {}", csv.ranks.size(), pipeline.devices));
  if (pipeline.stages > 0 && shape.stages != pipeline.stages)
    return unsupported(fmt::format("the file is for {} stages, not for {}", shape.stages, pipeline.stages));
  if (shape.micro_batches != setting.micro_batches) {
    return unsupported(
        fmt::format("the file is for {} micro-batches, not for {}", shape.micro_batches, setting.micro_batches));
  }
  return StageShape{pipeline.devices, shape.stage_devices};
}

Result<StageShape> shape_of_setting(const Setting& setting) {
  if (setting.schedule.starts_with(schedule_file_prefix)) return shape_of_file(setting);
  const Pipeline& pipeline = setting.pipeline;
  ASSIGN_OR_RETURN(const StagePlacement placement, placement_of(setting));
  const bool two_each = placement == StagePlacement::loop || placement == StagePlacement::v;
  const int stages = pipeline.stages > 0 ? pipeline.stages : two_each ? 2 * pipeline.devices : pipeline.devices;
  StageShape shape{pipeline.devices, {}};
  ASSIGN_OR_RETURN(shape.stage_devices, make_placement(placement, pipeline.devices, stages));
  return shape;
}

Status check_shape(const Setting& setting, const StageShape& shape) {
  const Pipeline& pipeline = setting.pipeline;
  const size_t stages = shape.stage_devices.size();
  if (pipeline.messages.size() > 1 && pipeline.messages.size() + 1 != stages) {
    return unsupported(fmt::format("{} message times for the {} boundaries of {} stages", pipeline.messages.size(),
                                   stages - 1, stages));
  }
  if (pipeline.speed.size() > at(shape.devices))
    return unsupported(fmt::format("{} speeds for {} devices", pipeline.speed.size(), shape.devices));
  if (static_cast<int64_t>(stages) * setting.micro_batches * 3 > most_slots)
    return unsupported(fmt::format("{} stages and {} micro-batches make more than {} slots", stages,
                                   setting.micro_batches, most_slots));
  return ok_status();
}

Result<ScheduleInput> input_of(const Setting& setting) {
  ASSIGN_OR_RETURN(const StageShape shape, shape_of_setting(setting));
  RETURN_IF_ERROR(check_shape(setting, shape));
  const Pipeline& pipeline = setting.pipeline;
  const size_t stages = shape.stage_devices.size();
  const double share = static_cast<double>(shape.devices) / static_cast<double>(stages);
  ScheduleInput input;
  input.micro_batches = setting.micro_batches;
  input.devices = shape.devices;
  input.stage_devices = shape.stage_devices;
  const auto seconds_of = [&](double seconds) {
    std::vector<std::vector<double>> all;
    for (const std::vector<int>& on : input.stage_devices) {
      std::vector<double>& stage = all.emplace_back();
      for (const int device : on)
        stage.push_back(seconds * share / (at(device) < pipeline.speed.size() ? pipeline.speed[at(device)] : 1));
    }
    return all;
  };
  input.stage_seconds = seconds_of(pipeline.times[0]);
  if (pipeline.times.size() > 1) {
    input.input_gradient_seconds = seconds_of(pipeline.times[1]);
    input.weight_gradient_seconds = seconds_of(pipeline.times[2]);
  }
  if (pipeline.messages.size() == 1) {
    input.message_seconds.assign(stages, pipeline.messages[0]);
  } else if (!pipeline.messages.empty()) {
    input.message_seconds = pipeline.messages;
    input.message_seconds.push_back(0);  // the last stage's means nothing
  }
  if (!pipeline.kept.empty()) {
    const auto kept = [&](int64_t size) { return bytes(static_cast<int64_t>(static_cast<double>(size) * share)); };
    input.kept_until_input_gradient.assign(stages, kept(pipeline.kept[0]));
    input.kept_until_weight_gradient.assign(stages, kept(pipeline.kept[1]));
  }
  if (pipeline.memory) input.device_memory.assign(at(shape.devices), *pipeline.memory);
  return input;
}

// What a slot takes beyond its duration. It depends on the seed and the slot alone, so that every schedule meets the
// same: common random numbers, as in sim/disturb.h.
class Stretch {
 public:
  explicit Stretch(const Setting& setting) : jitter_(setting.pipeline.jitter), seed_(setting.seed.value_or(0)) {
    slowdown_.assign(at(setting.pipeline.devices), 1);
    for (const auto& [device, slowdown] : setting.pipeline.stragglers) slowdown_[at(device)] = slowdown;
  }
  bool changes() const {
    return jitter_ > 0 || std::ranges::any_of(slowdown_, [](double slowdown) { return slowdown != 1; });
  }
  double operator()(int device, const ScheduledSlot& slot) const {
    if (slot.phase == Phase::step || jitter_ <= 0) return slowdown_[at(device)];
    const std::array<int64_t, 4> what = {device, static_cast<int64_t>(slot.phase), slot.stage, slot.micro_batch};
    Random random(hash_bytes(what.data(), sizeof what, seed_));
    return slowdown_[at(device)] * (1 + random.uniform(0, jitter_));
  }

 private:
  double jitter_;
  uint64_t seed_;
  std::vector<double> slowdown_;
};

// An order of slots on the durations it was made for.
struct Planned {
  ScheduleInput input;
  SlotTable table;  // of an online policy: none yet
  SlotTiming timing;
  std::string impossible;
};

Planned plan_point(const Setting& setting) {
  Planned planned;
  const auto make = [&]() -> Status {
    ASSIGN_OR_RETURN(planned.input, input_of(setting));
    if (is_online(setting.schedule)) return ok_status();
    ASSIGN_OR_RETURN(planned.table, make_schedule(setting.schedule, planned.input));
    ASSIGN_OR_RETURN(planned.timing, evaluate(planned.input, planned.table));
    return ok_status();
  };
  if (const Status status = make(); !status.ok()) planned.impossible = status.error().message;
  return planned;
}

void add_latency(const SlotTable& table, const std::vector<std::vector<SlotSpan>>& spans, int micro_batches,
                 PointResult& result) {
  std::vector<SlotSpan> under_way(at(micro_batches), {-1, 0});
  for (size_t d = 0; d < spans.size(); ++d) {
    for (size_t i = 0; i < spans[d].size(); ++i) {
      const ScheduledSlot& slot = table.devices[d][i];
      if (slot.phase == Phase::step) continue;
      SlotSpan& span = under_way[at(slot.micro_batch)];
      span.start = span.start < 0 ? spans[d][i].start : std::min(span.start, spans[d][i].start);
      span.finish = std::max(span.finish, spans[d][i].finish);
    }
  }
  for (const SlotSpan& span : under_way) result.latency_mean_s += (span.finish - span.start) / micro_batches;
}

PointResult result_of(const ScheduleInput& input, const SlotTable& table, const SlotTiming& nominal,
                      const std::vector<std::vector<SlotSpan>>& spans, bool draw) {
  PointResult result;
  std::vector<DeviceSpan> devices(spans.size());
  for (size_t d = 0; d < spans.size(); ++d) {
    for (size_t i = 0; i < spans[d].size(); ++i) {
      if (spans[d][i].finish <= spans[d][i].start) continue;  // a step without time
      devices[d].add(spans[d][i].start, spans[d][i].finish);
      result.makespan_s = std::max(result.makespan_s, spans[d][i].finish);
    }
  }
  add_idle(devices, result);
  add_latency(table, spans, input.micro_batches, result);
  for (size_t d = 0; d < devices.size(); ++d) {
    const double share = result.makespan_s > 0 ? devices[d].busy / result.makespan_s : 0;
    if (share <= result.busiest_device_share) continue;
    result.busiest_device_share = share;
    result.busiest_device = fmt::format("{}", d);
  }
  if (input.training()) {
    result.kept_micro_batches = *std::ranges::max_element(nominal.peak_micro_batches);
    if (!input.kept_until_input_gradient.empty())
      result.peak_memory_bytes = std::ranges::max_element(nominal.peak_kept)->value();
  }
  if (!draw) return result;
  for (size_t d = 0; d < spans.size(); ++d) {
    result.drawing.devices.push_back(fmt::format("{}", d));
    for (size_t i = 0; i < spans[d].size(); ++i) {
      const ScheduledSlot& slot = table.devices[d][i];
      if (spans[d][i].finish > spans[d][i].start)
        result.drawing.bars.push_back(
            {static_cast<int>(d), slot.stage, slot.micro_batch, slot.phase, spans[d][i].start, spans[d][i].finish});
    }
  }
  for (const Bytes kept : input.kept_until_input_gradient) result.drawing.kept_until_input.push_back(kept.value());
  for (const Bytes kept : input.kept_until_weight_gradient) result.drawing.kept_until_weight.push_back(kept.value());
  return result;
}

PointResult play_online(const Setting& setting, const Planned& planned, bool draw) {
  const Stretch stretch(setting);
  OnlineOptions options;
  if (stretch.changes()) options.stretch = stretch;
  const auto play = [&]() -> Result<PointResult> {
    ASSIGN_OR_RETURN(const OnlinePolicy* policy,
                     find_online_policy(std::string_view(setting.schedule).substr(online_prefix.size())));
    ASSIGN_OR_RETURN(const OnlineRun run, run_online(planned.input, *policy, options));
    ASSIGN_OR_RETURN(const SlotTiming nominal, evaluate(planned.input, run.table));
    SlotPlayer player(planned.input);
    CHECK(player.play(run.table, &run.slot_seconds), "what was run can be replayed");
    return result_of(planned.input, run.table, nominal, player.spans(), draw);
  };
  auto result = play();
  if (result.ok()) return std::move(result).value();
  PointResult none;
  none.impossible = result.error().message;
  return none;
}

PointResult play_point(const Setting& setting, const Planned& planned, bool draw) {
  PointResult none;
  none.impossible = planned.impossible;
  if (!planned.impossible.empty()) return none;
  for (const auto& [device, slowdown] : setting.pipeline.stragglers) {
    if (device < planned.input.devices) continue;
    none.impossible =
        fmt::format("the straggler is device {}, and there are {} devices", device, planned.input.devices);
    return none;
  }
  if (is_online(setting.schedule)) return play_online(setting, planned, draw);
  const Stretch stretch(setting);
  if (!stretch.changes()) return result_of(planned.input, planned.table, planned.timing, planned.timing.slots, draw);
  SlotPlayer player(planned.input);
  std::vector<std::vector<double>> seconds;
  for (int d = 0; d < planned.input.devices; ++d) {
    std::vector<double>& of = seconds.emplace_back();
    for (const ScheduledSlot& slot : planned.table.devices[at(d)])
      of.push_back(player.seconds(d, slot) * stretch(d, slot));
  }
  CHECK(player.play(planned.table, &seconds), "durations do not decide whether a table can be played");
  return result_of(planned.input, planned.table, planned.timing, player.spans(), draw);
}

class PipelineRunner : public PointRunner {
 public:
  Result<std::vector<PointResult>> run(std::span<const Setting> settings, bool draw) override {
    // One order for all seeds, jitters and stragglers; also across calls, since a search takes half a second.
    constexpr size_t most_remembered = 256;
    if (planned_.size() > most_remembered) planned_.clear();
    std::vector<Planned*> planned;
    std::vector<std::pair<Planned*, const Setting*>> to_plan;
    for (const Setting& setting : settings) {
      const auto [entry, is_new] = planned_.try_emplace(plan_key(setting));
      planned.push_back(&entry->second);
      if (is_new) to_plan.emplace_back(&entry->second, &setting);
    }
    on_all_cores(to_plan.size(), [&](size_t i) { *to_plan[i].first = plan_point(*to_plan[i].second); });
    std::vector<PointResult> results(settings.size());
    on_all_cores(settings.size(), [&](size_t i) { results[i] = play_point(settings[i], *planned[i], draw); });
    return results;
  }

 private:
  std::map<std::string, Planned> planned_;
};

}  // namespace

std::unique_ptr<PointRunner> make_pipeline_runner(const Experiment&) { return std::make_unique<PipelineRunner>(); }

}  // namespace nlsplit::inline sweeps
