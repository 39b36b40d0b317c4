#include "sweep/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "base/index.h"
#include "base/text_reader.h"

namespace nlsplit::inline sweeps {
namespace {

// To be raised when the same point would come out otherwise than before.
constexpr std::string_view format_version = "nlsplit-sweep 1";

int to_int(double value) { return static_cast<int>(value); }

void set_device_speed(Pipeline& pipeline, int device, double factor) {
  if (pipeline.speed.size() <= at(device)) pipeline.speed.resize(at(device) + 1, 1);
  pipeline.speed[at(device)] *= factor;
}

void apply(const Axis& axis, const AxisValue& value, bool pipeline, Setting& setting) {
  const auto figure = [&] { return value.numbers.at(0); };
  switch (axis.kind) {
    case AxisKind::schedule:
      setting.schedule = value.name;
      return;
    case AxisKind::micro_batches:
      setting.micro_batches = to_int(figure());
      return;
    case AxisKind::plan:
      setting.plan = value.name;
      return;
    case AxisKind::device_speed:
      if (pipeline)
        set_device_speed(setting.pipeline, std::stoi(axis.target), figure());
      else
        setting.device_speeds.emplace_back(axis.target, figure());
      return;
    case AxisKind::link_speed:
      setting.link_speeds.emplace_back(axis.target, figure());
      return;
    case AxisKind::latency:
      setting.latencies.emplace_back(axis.target, figure());
      return;
    case AxisKind::noise:
      setting.noise = figure() > 0;
      return;
    case AxisKind::seed:
      setting.seed = static_cast<uint64_t>(figure());
      return;
    case AxisKind::devices:
      setting.pipeline.devices = to_int(figure());
      return;
    case AxisKind::stages:
      setting.pipeline.stages = to_int(figure());
      return;
    case AxisKind::placement:
      setting.pipeline.placement = value.name;
      return;
    case AxisKind::times:
      setting.pipeline.times = value.numbers;
      return;
    case AxisKind::message:
      setting.pipeline.messages = {figure()};
      return;
    case AxisKind::jitter:
      setting.pipeline.jitter = figure();
      return;
    case AxisKind::straggler:
      if (figure() > 1) setting.pipeline.stragglers.emplace_back(std::stoi(axis.target), figure());
      return;
  }
  CHECK(false, "unknown axis");
}

std::string factors_text(std::string_view what, const std::vector<std::pair<std::string, double>>& factors) {
  std::string text;
  for (const auto& [name, factor] : factors) text += fmt::format(" {} {}*{}", what, name, shortest(factor));
  return text;
}

std::string numbers_text(std::string_view what, const std::vector<double>& numbers) {
  std::string text = fmt::format(" {}", what);
  for (const double number : numbers) text += " " + shortest(number);
  return text;
}

std::string pipeline_key(const Pipeline& p) {
  std::string text = fmt::format("devices {} stages {} placement {}", p.devices, p.stages, p.placement);
  text += numbers_text("times", p.times) + numbers_text("messages", p.messages) + numbers_text("speed", p.speed);
  text += fmt::format(" kept {} memory {}", fmt::join(p.kept, " "), p.memory ? p.memory->value() : -1);
  return text;
}

// What is decided after the order of slots is.
std::string weather_key(const Setting& setting) {
  std::string text =
      fmt::format(" noise {} seed {} jitter {}", setting.noise,
                  setting.seed ? fmt::format("{}", *setting.seed) : "none", shortest(setting.pipeline.jitter));
  for (const auto& [device, slowdown] : setting.pipeline.stragglers)
    text += fmt::format(" straggler {}*{}", device, shortest(slowdown));
  return text;
}

// The axes before the others in every row, then those as given, the seed last.
std::vector<size_t> column_order(const Experiment& experiment) {
  const auto rank = [](AxisKind kind) {
    switch (kind) {
      case AxisKind::schedule:
        return 0;
      case AxisKind::plan:
        return 1;
      case AxisKind::micro_batches:
        return 2;
      case AxisKind::seed:
        return 4;
      default:
        return 3;
    }
  };
  std::vector<size_t> order(experiment.axes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](size_t i) { return rank(experiment.axes[i].kind); });
  return order;
}

bool has_seed_axis(const Experiment& experiment) {
  return std::ranges::find(experiment.axes, AxisKind::seed, &Axis::kind) != experiment.axes.end();
}

// What a plan of the scenario says itself counts where the experiment has no axis for it.
bool is_of_plan(const Experiment& experiment, const std::vector<size_t>& place, const Setting& setting) {
  if (experiment.pipeline) return true;
  const Scenario& scenario = experiment.scenario;
  const UserPlan& plan = *std::ranges::find(scenario.plans, setting.plan, &UserPlan::name);
  for (size_t a = 0; a < place.size(); ++a) {
    const Axis& axis = experiment.axes[a];
    if (axis.given) continue;
    if (axis.kind == AxisKind::schedule) {
      const bool own = plan.schedule.empty()
                           ? std::ranges::find(scenario.schedules, setting.schedule) != scenario.schedules.end()
                           : plan.schedule == setting.schedule;
      if (!own) return false;
    }
    if (axis.kind == AxisKind::micro_batches) {
      const std::vector<int>& counts = plan.micro_batches.empty() ? scenario.micro_batches : plan.micro_batches;
      if (std::ranges::find(counts, setting.micro_batches) == counts.end()) return false;
    }
  }
  return true;
}

Setting setting_at(const Experiment& experiment, const std::vector<size_t>& place) {
  const bool pipeline = experiment.pipeline.has_value();
  Setting setting;
  if (pipeline) setting.pipeline = *experiment.pipeline;
  for (size_t a = 0; a < place.size(); ++a)
    apply(experiment.axes[a], experiment.axes[a].values[place[a]], pipeline, setting);
  const bool random = pipeline ? setting.pipeline.jitter > 0
                               : setting.noise && experiment.scenario.noise && is_random(*experiment.scenario.noise);
  if (!random) setting.seed.reset();
  if (random && !setting.seed) setting.seed = pipeline ? 1 : experiment.scenario.noise->seed;
  return setting;
}

}  // namespace

std::vector<std::string> setting_columns(const Experiment& experiment) {
  std::vector<std::string> columns;
  for (const size_t a : column_order(experiment)) columns.push_back(experiment.axes[a].column);
  if (!has_seed_axis(experiment)) columns.emplace_back("seed");
  return columns;
}

std::string cluster_key(const Setting& setting) {
  return factors_text("link", setting.link_speeds) + factors_text("latency", setting.latencies) +
         factors_text("device", setting.device_speeds);
}

std::string plan_key(const Setting& setting) {
  return fmt::format("schedule {} micro-batches {} plan {}", setting.schedule, setting.micro_batches, setting.plan) +
         cluster_key(setting) + (setting.plan.empty() ? " " + pipeline_key(setting.pipeline) : "");
}

Result<std::vector<GridPoint>> grid_of(const Experiment& experiment) {
  const std::vector<size_t> order = column_order(experiment);
  const uint64_t base = hash_text(experiment.tier->name(), hash_text(format_version, experiment.inputs));
  std::map<std::string, uint64_t> files;  // content of schedules that are files
  std::vector<GridPoint> points;
  std::set<uint64_t> seen;
  std::vector<size_t> place(experiment.axes.size(), 0);
  for (bool more = true; more;) {
    GridPoint point;
    point.at = place;
    point.setting = setting_at(experiment, place);
    if (is_of_plan(experiment, place, point.setting)) {
      uint64_t hash = hash_text(plan_key(point.setting) + weather_key(point.setting), base);
      if (point.setting.schedule.starts_with(schedule_file_prefix)) {
        const std::string path = point.setting.schedule.substr(schedule_file_prefix.size());
        if (!files.contains(path)) {
          ASSIGN_OR_RETURN(const std::string text, read_file(path));
          files[path] = hash_text(text);
        }
        hash = hash_bytes(&files[path], sizeof(uint64_t), hash);
      }
      point.fingerprint = hash;
      for (const size_t a : order) {
        const Axis& axis = experiment.axes[a];
        point.cells.push_back(axis.kind != AxisKind::seed ? axis.values[place[a]].text
                              : point.setting.seed        ? fmt::format("{}", *point.setting.seed)
                                                          : "");
      }
      if (!has_seed_axis(experiment))
        point.cells.push_back(point.setting.seed ? fmt::format("{}", *point.setting.seed) : "");
      if (seen.insert(hash).second) points.push_back(std::move(point));
    }
    more = false;
    for (size_t a = place.size(); a-- > 0 && !more;) {
      if (++place[a] < experiment.axes[a].values.size())
        more = true;
      else
        place[a] = 0;
    }
  }
  return points;
}

}  // namespace nlsplit::inline sweeps
