#include "partition/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/name_range.h"
#include "base/text_reader.h"
#include "partition/layer_names.h"

namespace nlsplit {
namespace {

constexpr std::string_view rest_word = "rest";
constexpr std::string_view up_to = "..";

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

Error wrong(std::string_view part, std::string message) {
  Error error = invalid_input(std::move(message));
  error.fragment = part;
  return error;
}

Error unknown_device(std::string_view part, std::string_view name, const Cluster& cluster) {
  std::vector<std::string> names;
  for (const Device& device : cluster.devices) names.push_back(device.name);
  std::string hint = nearest(name, names);
  if (!hint.empty()) hint = fmt::format("; did you mean '{}'?", hint);
  return wrong(
      part, fmt::format("'{}': no device is called '{}'{} (there are {})", part, name, hint, join_names(names, ", ")));
}

Result<std::vector<DeviceId>> parse_devices(std::string_view part, std::string_view text, const Cluster& cluster) {
  std::vector<DeviceId> devices;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('+', begin), text.size());
    const std::string_view name = trim(text.substr(begin, end - begin));
    begin = end + 1;
    if (name.empty()) return wrong(part, fmt::format("'{}': a device is missing after '@' or '+'", part));
    const auto add = [&](std::string_view one) -> Status {
      const DeviceId device = cluster.find_device(one);
      if (!device.valid()) return unknown_device(part, one, cluster);
      if (std::find(devices.begin(), devices.end(), device) != devices.end()) {
        return wrong(part, fmt::format("'{}': device {} twice in one stage", part, one));
      }
      devices.push_back(device);
      return ok_status();
    };
    const auto range = parse_name_range(name);
    if (!range || cluster.find_device(name).valid()) {
      RETURN_IF_ERROR(add(name));
      continue;
    }
    for (int64_t n = range->first; n <= range->last; ++n) RETURN_IF_ERROR(add(range->name(n)));
  }
  return devices;
}

std::string stage_devices(const Stage& stage, const Cluster& cluster) {
  std::vector<std::string> names;
  for (const DeviceId device : stage.devices) names.push_back(cluster.device(device).name);
  return join_names(names, "+");
}

}  // namespace

Result<std::vector<Stage>> parse_stages(const std::vector<std::string>& parts, const Graph& graph,
                                        const Cluster& cluster, std::vector<PlanNote>* notes) {
  if (parts.empty()) return invalid_input("a plan without stages; the shortest is [rest@DEVICE]");
  std::vector<Stage> stages;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string_view part = trim(parts[i]);
    const size_t at = part.rfind('@');
    if (at == std::string_view::npos) {
      return wrong(part,
                   fmt::format("'{}': a stage is written ..LAYER@DEVICE or rest@DEVICE; the '@' is missing", part));
    }
    const std::string_view what = trim(part.substr(0, at));
    Stage stage;
    stage.begin = stages.empty() ? 0 : stages.back().end;
    ASSIGN_OR_RETURN(stage.devices, parse_devices(part, part.substr(at + 1), cluster));
    const bool last = i + 1 == parts.size();
    if (what == rest_word) {
      if (!last) return wrong(part, fmt::format("'{}': only the last stage may be 'rest'", part));
      stage.end = graph.nodes.size();
      if (stage.begin == stage.end) {
        return wrong(part, fmt::format("'{}': nothing is left for it: '{}' already ends with the last layer", part,
                                       parts[i - 1]));
      }
    } else {
      if (!what.starts_with(up_to) || what.size() == up_to.size()) {
        return wrong(part, fmt::format("'{}': a stage is written ..LAYER@DEVICE or rest@DEVICE", part));
      }
      auto found = find_layer(graph, trim(what.substr(up_to.size())));
      if (!found) return wrong(part, fmt::format("'{}': {}", part, found.error().message));
      stage.end = found->node + 1;
      if (stage.end <= stage.begin) {
        const bool empty = stage.end == stage.begin;
        return wrong(part, fmt::format("'{}': {} '{}', where the stage before it ends, so {}", part,
                                       empty ? "is the same cut as" : "comes before", parts[i - 1],
                                       empty ? "the stage is empty" : "the layers are out of order"));
      }
      if (last) {
        return wrong(part, fmt::format("'{}': the last stage must be 'rest@{}', so that every layer has a device", part,
                                       trim(part.substr(at + 1))));
      }
      if (notes != nullptr && found->name != found->last) {
        notes->push_back(
            {fmt::format("{} is fused with {}; the cut is after {}", found->name, found->last, found->last)});
      }
    }
    stages.push_back(std::move(stage));
  }
  return stages;
}

std::string to_string(const Plan& plan, const Graph& graph, const Cluster& cluster) {
  std::string text;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    if (s > 0) text += " | ";
    text += stage_devices(stage, cluster);
    if (plan.stages.size() == 1)
      text += " all";
    else if (s + 1 == plan.stages.size())
      text += fmt::format(" {}", rest_word);
    else
      text += fmt::format(" {}{}", up_to, cut_name(graph, stage.end));
  }
  return text;
}

std::vector<std::string> stage_parts(const Plan& plan, const Graph& graph, const Cluster& cluster) {
  std::vector<std::string> parts;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    const std::string what =
        s + 1 == plan.stages.size() ? std::string(rest_word) : fmt::format("{}{}", up_to, cut_name(graph, stage.end));
    parts.push_back(fmt::format("{}@{}", what, stage_devices(stage, cluster)));
  }
  return parts;
}

Status check_plan(const Plan& plan, const Graph& graph, const Cluster& cluster, int64_t batch) {
  const std::string name = plan.name.empty() ? "plan" : fmt::format("plan {}", plan.name);
  if (plan.stages.empty()) return invalid_input(fmt::format("{}: no stages", name));
  if (plan.micro_batches < 1)
    return invalid_input(fmt::format("{}: {} micro-batches; there must be at least one", name, plan.micro_batches));
  if (batch % plan.micro_batches != 0) {
    return invalid_input(
        fmt::format("{}: {} micro-batches do not divide the batch of {}", name, plan.micro_batches, batch));
  }
  size_t next = 0;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    const auto wrong_stage = [&](std::string why) {
      return invalid_input(fmt::format("{}: stage {} {}", name, s, why));
    };
    if (stage.begin != next)
      return wrong_stage(fmt::format("begins at node {}, but the one before it ends at {}", stage.begin, next));
    if (stage.end <= stage.begin) return wrong_stage("is empty");
    if (stage.end > graph.nodes.size())
      return wrong_stage(fmt::format("ends at node {} of {}", stage.end, graph.nodes.size()));
    if (stage.devices.empty()) return wrong_stage("has no device");
    for (size_t i = 0; i < stage.devices.size(); ++i) {
      const DeviceId device = stage.devices[i];
      if (device.index() >= cluster.devices.size()) return wrong_stage("is on a device that does not exist");
      if (std::find(stage.devices.begin(), stage.devices.begin() + static_cast<std::ptrdiff_t>(i), device) !=
          stage.devices.begin() + static_cast<std::ptrdiff_t>(i)) {
        return wrong_stage(fmt::format("has device {} twice", cluster.device(device).name));
      }
    }
    next = stage.end;
  }
  if (next != graph.nodes.size()) {
    return invalid_input(fmt::format("{}: the last stage ends behind '{}', so {} layers have no device", name,
                                     graph.nodes[next - 1].name, graph.nodes.size() - next));
  }
  return ok_status();
}

}  // namespace nlsplit
