// The axes of the grid: what each may hold, and the axes that nobody gave.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>

#include "base/file.h"
#include "base/text_reader.h"
#include "schedule/online.h"
#include "schedule/pipeline_csv.h"
#include "sweep/parse.h"

namespace nlsplit::inline sweeps {
namespace {

constexpr double min_factor = 1e-6, max_factor = 1e6;
constexpr int64_t max_seeds = 100'000;
constexpr size_t max_values = 100'000;
constexpr size_t max_points = 1'000'000;

using ReadValue = std::function<Result<AxisValue>(const Yaml&)>;

AxisValue number(double value) { return {shortest(value), {}, {value}}; }

Result<Axis> read_axis(const Source& source, const Yaml& node, AxisKind kind, std::string column,
                       const ReadValue& read) {
  const std::vector<Yaml> single = {node};
  const std::vector<Yaml>& items = node.is_list() ? node.items : single;
  if (items.empty()) return source.at(node, fmt::format("axis {} is empty: it needs at least one value", column));
  if (items.size() > max_values) return source.at(node, fmt::format("an axis has at most {} values", max_values));
  Axis axis{kind, {}, std::move(column), {}, true};
  for (const Yaml& item : items) {
    ASSIGN_OR_RETURN(AxisValue value, read(item));
    if (std::ranges::find(axis.values, value.text, &AxisValue::text) != axis.values.end())
      return source.at(item, fmt::format("{} is given twice", value.text));
    axis.values.push_back(std::move(value));
  }
  return axis;
}

class AxesReader {
 public:
  AxesReader(const Source& source, Experiment& experiment) : source_(source), experiment_(experiment) {}

  Status read(const Yaml& node) {
    const bool pipeline = experiment_.pipeline.has_value();
    const auto fields = pipeline ? Fields::open(source_, node, "axes",
                                                {"schedule", "micro_batches", "devices", "stages", "placement", "times",
                                                 "message", "device_speed", "jitter", "straggler", "seed", "seeds"})
                                 : Fields::open(source_, node, "axes",
                                                {"schedule", "plan", "micro_batches", "link_speed", "latency",
                                                 "device_speed", "noise", "seed", "seeds"});
    if (!fields) return fields.error();
    for (size_t i = 0; i < node.keys.size(); ++i) RETURN_IF_ERROR(read_one(node.keys[i], node.items[i]));
    RETURN_IF_ERROR(check_random(node));
    pipeline ? add_pipeline_defaults() : add_scenario_defaults();
    RETURN_IF_ERROR(check_whole(node));
    size_t points = 1;
    for (const Axis& axis : experiment_.axes) {
      points *= axis.values.size();
      if (points > max_points) return source_.at(node, fmt::format("a sweep has at most {} points", max_points));
    }
    return ok_status();
  }

 private:
  Status read_one(const Yaml& key, const Yaml& node) {
    const std::string& name = key.text;
    const auto factor = [&](const Yaml& item) -> Result<AxisValue> {
      ASSIGN_OR_RETURN(const double value, read_number(source_, item, "a factor", min_factor, max_factor));
      return number(value);
    };
    if (name == "schedule")
      return add(node, AxisKind::schedule, name, [&](const Yaml& item) { return read_schedule(item); });
    if (name == "plan") return add(node, AxisKind::plan, name, [&](const Yaml& item) { return read_plan(item); });
    if (name == "micro_batches")
      return add(node, AxisKind::micro_batches, name, [&](const Yaml& item) { return read_micro_batches(item); });
    if (name == "link_speed" || name == "latency") {
      if (!experiment_.scenario.cluster.routes.empty()) {
        return source_.at(key, fmt::format("'{}' scales what links say, and this scenario's messages take what was "
                                           "measured ('network: profile')",
                                           name));
      }
      return add_links(node, name == "latency" ? AxisKind::latency : AxisKind::link_speed, name + "_factor", factor);
    }
    if (name == "device_speed") return add_devices(node, AxisKind::device_speed, "device_speed_factor", factor);
    if (name == "straggler") {
      return add_devices(node, AxisKind::straggler, "straggler_slowdown", [&](const Yaml& item) -> Result<AxisValue> {
        ASSIGN_OR_RETURN(const double value, read_number(source_, item, "a slowdown", 1, max_factor));
        return number(value);
      });
    }
    if (name == "noise") return add(node, AxisKind::noise, name, [&](const Yaml& item) { return read_noise(item); });
    if (name == "seed" || name == "seeds") return add_seeds(key, node);
    if (name == "devices" || name == "stages") {
      const AxisKind kind = name == "devices" ? AxisKind::devices : AxisKind::stages;
      return add(node, kind, name, [&](const Yaml& item) -> Result<AxisValue> {
        ASSIGN_OR_RETURN(const int64_t count,
                         read_integer(source_, item, fmt::format("a number of {}", name), 1, max_pipeline_devices));
        return number(static_cast<double>(count));
      });
    }
    if (name == "placement") {
      return add(node, AxisKind::placement, name, [&](const Yaml& item) -> Result<AxisValue> {
        ASSIGN_OR_RETURN(std::string placement, read_placement(source_, item));
        return AxisValue{placement, placement, {}};
      });
    }
    if (name == "message") {
      return add(node, AxisKind::message, "message_s", [&](const Yaml& item) -> Result<AxisValue> {
        ASSIGN_OR_RETURN(const double seconds, read_seconds(source_, item));
        return number(seconds);
      });
    }
    if (name == "jitter") {
      return add(node, AxisKind::jitter, name, [&](const Yaml& item) -> Result<AxisValue> {
        ASSIGN_OR_RETURN(const double share, read_share(source_, item, "jitter"));
        return number(share);
      });
    }
    CHECK(name == "times", "an axis nobody reads");
    return add(node, AxisKind::times, "times_s", [&](const Yaml& item) { return read_times_value(item); });
  }

  Status add(const Yaml& node, AxisKind kind, std::string column, const ReadValue& read) {
    ASSIGN_OR_RETURN(Axis axis, read_axis(source_, node, kind, std::move(column), read));
    experiment_.axes.push_back(std::move(axis));
    return ok_status();
  }

  // A list for all links, or a map from links to lists.
  Status add_links(const Yaml& node, AxisKind kind, const std::string& column, const ReadValue& read) {
    if (!node.is_map()) return add(node, kind, column, read);
    std::vector<std::string> names;
    for (const Link& link : experiment_.scenario.cluster.links) names.push_back(link.name);
    return add_named(node, kind, column, "link", names, read);
  }

  Status add_devices(const Yaml& node, AxisKind kind, const std::string& column, const ReadValue& read) {
    std::vector<std::string> names;
    if (experiment_.pipeline) {
      const int devices = experiment_.pipeline->devices;
      for (int d = 0; d < (devices > 0 ? devices : static_cast<int>(max_pipeline_devices)); ++d)
        names.push_back(fmt::format("{}", d));
    } else {
      for (const Device& device : experiment_.scenario.cluster.devices) names.push_back(device.name);
    }
    if (!node.is_map()) {
      return source_.at(node, fmt::format("a map from devices to lists is expected, e.g. {{{}: [1, 2]}}",
                                          names.empty() ? "A" : names[0]));
    }
    return add_named(node, kind, column, "device", names, read);
  }

  Status add_named(const Yaml& node, AxisKind kind, const std::string& column, std::string_view what,
                   const std::vector<std::string>& names, const ReadValue& read) {
    if (node.keys.empty()) return source_.at(node, fmt::format("axis {} is empty: it names no {}", column, what));
    for (size_t i = 0; i < node.keys.size(); ++i) {
      const Yaml& key = node.keys[i];
      if (std::ranges::find(names, key.text) == names.end()) {
        const std::string near = nearest(key.text, names);
        constexpr size_t most_listed = 20;
        const std::string hint = !near.empty() ? fmt::format(": did you mean '{}'?", near)
                                 : names.size() <= most_listed
                                     ? fmt::format("; there are {}", fmt::join(names, ", "))
                                     : fmt::format("; there are {} … {}", names.front(), names.back());
        return source_.at(key, fmt::format("unknown {} '{}'{}", what, key.text, hint));
      }
      ASSIGN_OR_RETURN(Axis axis,
                       read_axis(source_, node.items[i], kind, fmt::format("{}_{}", column, key.text), read));
      axis.target = key.text;
      experiment_.axes.push_back(std::move(axis));
    }
    return ok_status();
  }

  Status add_seeds(const Yaml& key, const Yaml& node) {
    for (const Axis& axis : experiment_.axes) {
      if (axis.kind == AxisKind::seed) return source_.at(key, "'seed' and 'seeds' are the same axis: give one of them");
    }
    if (key.text == "seed") {
      return add(node, AxisKind::seed, "seed", [&](const Yaml& item) -> Result<AxisValue> {
        ASSIGN_OR_RETURN(const int64_t seed, read_integer(source_, item, "a seed", 0, int64_t{1} << 53));
        return AxisValue{fmt::format("{}", seed), {}, {static_cast<double>(seed)}};
      });
    }
    ASSIGN_OR_RETURN(const int64_t count, read_integer(source_, node, "a number of seeds", 1, max_seeds));
    Axis axis{AxisKind::seed, {}, "seed", {}, true};
    for (int64_t seed = 1; seed <= count; ++seed)
      axis.values.push_back({fmt::format("{}", seed), {}, {static_cast<double>(seed)}});
    experiment_.axes.push_back(std::move(axis));
    return ok_status();
  }

  // A name, file:mine.csv or {file: mine.csv}; of a pipeline also online:POLICY or {online: POLICY}.
  Result<AxisValue> read_schedule(const Yaml& node) {
    std::string kind, name;
    const Yaml* at = &node;
    if (node.is_map()) {
      ASSIGN_OR_RETURN(const Fields fields, Fields::open(source_, node, "a schedule", {"file", "online"}));
      if (node.keys.size() != 1) return source_.at(node, "a schedule is a name, {file: mine.csv} or {online: POLICY}");
      kind = node.keys[0].text;
      at = &node.items[0];
      ASSIGN_OR_RETURN(name, read_text(source_, *at, kind == "file" ? "a path" : "an online policy"));
    } else {
      ASSIGN_OR_RETURN(name, read_text(source_, node, "a schedule"));
      for (const char* prefix : {"file", "online"}) {
        if (!name.starts_with(fmt::format("{}:", prefix))) continue;
        kind = prefix;
        name = name.substr(kind.size() + 1);
      }
    }
    if (kind == "file") {
      const std::string path = beside_experiment(source_.file, name);
      const auto text = read_file(path);
      if (!text) return source_.at(*at, text.error());
      const auto csv = parse_pipeline_csv(*text, path);
      if (!csv) return csv.error();
      const auto shape = shape_of(*csv);
      if (!shape) return source_.at(*at, shape.error());
      return AxisValue{fmt::format("file:{}", name), std::string(schedule_file_prefix) + path, {}};
    }
    if (kind == "online") {
      if (!experiment_.pipeline)
        return source_.at(*at,
                          "online policies are asked in pipelines only; a plan of the scenario names its own "
                          "(schedule: {online: ...})");
      const auto policy = find_online_policy(name);
      if (!policy) return source_.at(*at, policy.error());
      return AxisValue{fmt::format("{}{}", online_prefix, name), fmt::format("{}{}", online_prefix, name), {}};
    }
    const auto policy = find_schedule(name);
    if (!policy) return source_.at(node, policy.error());
    return AxisValue{name, name, {}};
  }

  Result<AxisValue> read_plan(const Yaml& node) {
    ASSIGN_OR_RETURN(const std::string name, read_text(source_, node, "the name of a plan"));
    std::vector<std::string> names;
    for (const UserPlan& plan : experiment_.scenario.plans) names.push_back(plan.name);
    if (std::ranges::find(names, name) != names.end()) return AxisValue{name, name, {}};
    if (name.find_first_not_of("0123456789") == std::string::npos) {
      return source_.at(node, fmt::format("'{}': a sweep takes plans by name, numbers are of a ranking; there are {}",
                                          name, fmt::join(names, ", ")));
    }
    const std::string near = nearest(name, names);
    return source_.at(
        node, fmt::format("unknown plan '{}'{}; the scenario has {}", name,
                          near.empty() ? "" : fmt::format(": did you mean '{}'?", near), fmt::join(names, ", ")));
  }

  Result<AxisValue> read_micro_batches(const Yaml& node) {
    ASSIGN_OR_RETURN(const int64_t count,
                     read_integer(source_, node, "a number of micro-batches", 1, max_sweep_micro_batches));
    if (!experiment_.pipeline && experiment_.scenario.batch % count != 0) {
      return source_.at(node, fmt::format("{} micro-batches do not divide the batch of {} evenly", count,
                                          experiment_.scenario.batch));
    }
    return number(static_cast<double>(count));
  }

  Result<AxisValue> read_noise(const Yaml& node) {
    static constexpr std::array<std::string_view, 2> words = {"off", "on"};
    ASSIGN_OR_RETURN(const size_t on, read_choice(source_, node, "noise", words));
    const std::optional<Noise>& noise = experiment_.scenario.noise;
    if (on == 1 && !noise) {
      return source_.at(
          node, fmt::format("{} has no noise: add e.g. noise: {{compute: {{jitter: 5%}}}}", experiment_.scenario.file));
    }
    if (on == 1 && !experiment_.tier->shares_links() && disturbs_links(*noise)) {
      return source_.at(node,
                        fmt::format("the scenario's noise disturbs links, which the {} does not see: tier: simgrid",
                                    experiment_.tier->title()));
    }
    return AxisValue{std::string(words[on]), {}, {static_cast<double>(on)}};
  }

  Result<AxisValue> read_times_value(const Yaml& node) {
    ASSIGN_OR_RETURN(std::vector<double> times, read_times(source_, node));
    if (times.size() != experiment_.pipeline->times.size()) {
      return source_.at(node, fmt::format("the pipeline has {} times, this has {}: F is inference, F, I and W training",
                                          experiment_.pipeline->times.size(), times.size()));
    }
    std::string text;
    for (const double seconds : times) text += (text.empty() ? "" : " ") + shortest(seconds);
    return AxisValue{std::move(text), {}, std::move(times)};
  }

  const Axis* find(AxisKind kind) const {
    const auto found = std::ranges::find(experiment_.axes, kind, &Axis::kind);
    return found == experiment_.axes.end() ? nullptr : &*found;
  }

  // Seeds without anything random would only repeat points.
  Status check_random(const Yaml& node) const {
    if (find(AxisKind::seed) == nullptr) return ok_status();
    const Axis* noise = find(experiment_.pipeline ? AxisKind::jitter : AxisKind::noise);
    const bool random = noise != nullptr
                            ? std::ranges::any_of(noise->values, [](const AxisValue& v) { return v.numbers[0] > 0; })
                            : experiment_.pipeline && experiment_.pipeline->jitter > 0;
    if (random) return ok_status();
    return source_.at(node, experiment_.pipeline
                                ? "seeds change nothing: there is no jitter; add e.g. jitter: [0%, 20%]"
                                : "seeds change nothing: there is no noise; add noise: [on] or [off, on]");
  }

  void add_default(AxisKind kind, const std::string& column, std::vector<AxisValue> values) {
    if (find(kind) != nullptr) return;
    experiment_.axes.push_back({kind, {}, column, std::move(values), false});
  }

  void add_pipeline_defaults() {
    const Pipeline& pipeline = *experiment_.pipeline;
    if (pipeline.micro_batches > 0)
      add_default(AxisKind::micro_batches, "micro_batches", {number(pipeline.micro_batches)});
  }

  // All plans, with the schedules and micro-batch counts that are theirs.
  void add_scenario_defaults() {
    const Scenario& scenario = experiment_.scenario;
    std::vector<AxisValue> plans, schedules, counts;
    for (const UserPlan& plan : scenario.plans) plans.push_back({plan.name, plan.name, {}});
    add_default(AxisKind::plan, "plan", std::move(plans));
    const auto add_new = [](std::vector<AxisValue>& values, AxisValue value) {
      if (std::ranges::find(values, value.text, &AxisValue::text) == values.end()) values.push_back(std::move(value));
    };
    for (const AxisValue& chosen : find(AxisKind::plan)->values) {
      const UserPlan& plan = *std::ranges::find(scenario.plans, chosen.name, &UserPlan::name);
      if (!plan.schedule.empty()) add_new(schedules, {plan.schedule, plan.schedule, {}});
      for (const std::string& name : plan.schedule.empty() ? scenario.schedules : std::vector<std::string>{})
        add_new(schedules, {name, name, {}});
      for (const int count : plan.micro_batches.empty() ? scenario.micro_batches : plan.micro_batches)
        add_new(counts, number(count));
    }
    add_default(AxisKind::schedule, "schedule", std::move(schedules));
    add_default(AxisKind::micro_batches, "micro_batches", std::move(counts));
  }

  Status check_whole(const Yaml& node) const {
    if (find(AxisKind::schedule) == nullptr)
      return source_.at(node, "axes lack 'schedule', e.g. schedule: [1f1b, zb_v, online: longest_path]");
    if (find(AxisKind::micro_batches) == nullptr)
      return source_.at(node, "neither the pipeline nor the axes say 'micro_batches'");
    if (experiment_.pipeline && experiment_.pipeline->devices == 0 && find(AxisKind::devices) == nullptr)
      return source_.at(node, "neither the pipeline nor the axes say 'devices'");
    return ok_status();
  }

  const Source& source_;
  Experiment& experiment_;
};

}  // namespace

Status parse_axes(const Source& source, const Yaml& node, Experiment& experiment) {
  return AxesReader(source, experiment).read(node);
}

}  // namespace nlsplit::inline sweeps
