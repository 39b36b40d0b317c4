#include "partition/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "base/name_range.h"
#include "base/text_reader.h"
#include "partition/layer_names.h"

namespace nlsplit::inline partition {
namespace {

constexpr std::string_view rest_word = "rest";
constexpr std::string_view up_to = "..";
constexpr std::string_view prefill_mark = "prefill:";
constexpr std::array<std::string_view, split_axis_count> axis_names = {"batch",    "height", "width",
                                                                       "channels", "tensor", "sequence"};

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

// Who does a stage, and how.
struct Hands {
  std::vector<DeviceId> devices;
  std::optional<Split> split;
};

constexpr std::string_view recompute_word = "-recompute";
constexpr std::string_view recomputed_word = " recomputed";
constexpr int64_t max_share = 1'000'000;

// "2" of "A:2".
Result<int64_t> parse_share(std::string_view part, std::string_view device, std::string_view text) {
  int64_t share = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), share);
  if (failure != std::errc() || end != text.data() + text.size() || share < 1 || share > max_share) {
    return wrong(part, fmt::format("'{}': the share of {} must be a whole number from 1 to {}, not '{}'", part, device,
                                   max_share, text));
  }
  return share;
}

// Puts the devices of "A:2+D1..D4" behind those that are there. shares: where theirs go; nullptr: they may have none.
Status parse_devices(std::string_view part, std::string_view text, const Cluster& cluster,
                     std::vector<DeviceId>& devices, std::vector<int64_t>* shares) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('+', begin), text.size());
    std::string_view name = trim(text.substr(begin, end - begin));
    begin = end + 1;
    int64_t share = 1;
    if (const size_t colon = name.rfind(':'); colon != std::string_view::npos) {
      const std::string_view device = trim(name.substr(0, colon));
      if (shares == nullptr) {
        return wrong(part, fmt::format("'{}': '{}' is a share, and data-parallel replicas have none; a split inside "
                                       "the layers has them: height(A:2+B)",
                                       part, name));
      }
      ASSIGN_OR_RETURN(share, parse_share(part, device, trim(name.substr(colon + 1))));
      name = device;
    }
    if (name.empty()) {
      return wrong(part,
                   fmt::format("'{}': a device is missing after '{}' or '+'", part, shares == nullptr ? "@" : "("));
    }
    const auto add = [&](std::string_view one) -> Status {
      const DeviceId device = cluster.find_device(one);
      if (!device.valid()) return unknown_device(part, one, cluster);
      if (std::find(devices.begin(), devices.end(), device) != devices.end()) {
        return wrong(part, fmt::format("'{}': device {} twice in one stage", part, one));
      }
      devices.push_back(device);
      if (shares != nullptr) shares->push_back(share);
      return ok_status();
    };
    const auto range = parse_name_range(name);
    if (!range || cluster.find_device(name).valid()) {
      RETURN_IF_ERROR(add(name));
      continue;
    }
    for (int64_t n = range->first; n <= range->last; ++n) RETURN_IF_ERROR(add(range->name(n)));
  }
  return ok_status();
}

// "height", "height-recompute".
Result<Split> parse_split_word(std::string_view part, std::string_view word) {
  Split split;
  const bool recompute = word.ends_with(recompute_word);
  const std::string_view axis = recompute ? word.substr(0, word.size() - recompute_word.size()) : word;
  if (const auto found = parse_split_axis(axis)) {
    split.axis = *found;
    split.recompute_halo = recompute;
    if (recompute && split.axis != SplitAxis::height && split.axis != SplitAxis::width) {
      return wrong(part, fmt::format("'{}': '{}': only height and width have a halo to recompute", part, word));
    }
    return split;
  }
  if (word.find('+') != std::string_view::npos) {
    return wrong(part, fmt::format("'{}': a stage is split inside its layers as a whole, or its devices are replicas: "
                                   "'{}' stands before the '('",
                                   part, word));
  }
  std::string hint = nearest(axis, axis_names);
  if (!hint.empty()) hint = fmt::format("; did you mean '{}'?", hint);
  return wrong(part, fmt::format("'{}': layers are not split by '{}'{} (but by {})", part, word, hint,
                                 fmt::join(axis_names, ", ")));
}

// "height(A:2+B)+height(C:2+D)": one group, or several replicas.
Result<Hands> parse_groups(std::string_view part, std::string_view text, const Cluster& cluster) {
  Hands hands;
  std::string_view first;
  for (std::string_view left = trim(text); !left.empty();) {
    const size_t open = left.find('(');
    const size_t close = left.find(')');
    if (open == std::string_view::npos || close < open) {
      return wrong(part, fmt::format("'{}': the '(' before '{}' is missing", part, trim(left)));
    }
    const std::string_view word = trim(left.substr(0, open));
    if (close == std::string_view::npos || left.find('(', open + 1) < close)
      return wrong(part, fmt::format("'{}': the ')' of '{}(' is missing", part, word));
    const std::string_view group = left.substr(0, close + 1);
    const std::string_view inside = left.substr(open + 1, close - open - 1);
    ASSIGN_OR_RETURN(Split split, parse_split_word(part, word));
    RETURN_IF_ERROR(parse_devices(part, inside, cluster, hands.devices, &split.shares));
    if (split.shares.size() < 2) {
      return wrong(part, fmt::format("'{}': '{}' has one device, and a split needs two at least", part, group));
    }
    if (hands.split && *hands.split != split) {
      return wrong(
          part,
          fmt::format("'{}': groups that are replicas of each other are split alike, by one axis and with the same "
                      "shares; '{}' is not like '{}'",
                      part, group, first));
    }
    if (!hands.split) first = group;
    hands.split = std::move(split);
    left = trim(left.substr(close + 1));
    if (left.empty()) break;
    const std::string_view more = left.front() == '+' ? trim(left.substr(1)) : std::string_view{};
    if (more.empty()) {
      return wrong(part,
                   fmt::format("'{}': only '+' and another such group may follow '{}', not '{}'", part, group, left));
    }
    left = more;
  }
  return hands;
}

Result<Hands> parse_hands(std::string_view part, std::string_view text, const Cluster& cluster) {
  if (text.find_first_of("()") != std::string_view::npos) return parse_groups(part, text, cluster);
  Hands hands;
  RETURN_IF_ERROR(parse_devices(part, text, cluster, hands.devices, nullptr));
  return hands;
}

std::string stage_devices(const Stage& stage, const Cluster& cluster) {
  std::vector<std::string> names;
  for (const DeviceId device : stage.devices) names.push_back(cluster.device(device).name);
  if (!stage.split) return join_names(names, "+");
  const std::vector<int64_t>& shares = stage.split->shares;
  std::string text;
  for (size_t begin = 0; begin < names.size(); begin += shares.size()) {
    std::vector<std::string> group;
    for (size_t k = 0; k < shares.size() && begin + k < names.size(); ++k)
      group.push_back(shares[k] == 1 ? names[begin + k] : fmt::format("{}:{}", names[begin + k], shares[k]));
    text += fmt::format("{}{}{}({})", text.empty() ? "" : "+", name_of(stage.split->axis),
                        stage.split->recompute_halo ? recompute_word : "", join_names(group, "+"));
    if (shares.empty()) break;
  }
  return text;
}

// What is wrong with the shares of a stage, or empty.
std::string wrong_shares(const Stage& stage) {
  const size_t shards = stage.split->shares.size();
  if (shards < 2) return fmt::format("is split into {} shard{}; two are the least", shards, shards == 1 ? "" : "s");
  for (const int64_t share : stage.split->shares) {
    if (share <= 0) return fmt::format("has a share of {}; shares are positive", share);
  }
  if (stage.devices.size() % shards == 0) return {};
  return fmt::format("has {} devices for {} shards; each group of devices has one for every shard",
                     stage.devices.size(), shards);
}

}  // namespace

std::string_view name_of(SplitAxis axis) { return axis_names.at(static_cast<size_t>(axis)); }

std::optional<SplitAxis> parse_split_axis(std::string_view word) {
  for (size_t i = 0; i < axis_names.size(); ++i) {
    if (axis_names[i] == word) return static_cast<SplitAxis>(i);
  }
  return std::nullopt;
}

bool has_splits(const Plan& plan) {
  return std::ranges::any_of(plan.stages, [](const Stage& stage) { return stage.split.has_value(); });
}

bool is_of_one_device(const Stage& stage) { return stage.devices.size() == 1 && !stage.split; }

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
    std::string_view by = trim(part.substr(at + 1));
    stage.recompute = by.ends_with(recomputed_word);
    if (stage.recompute) by = trim(by.substr(0, by.size() - recomputed_word.size()));
    ASSIGN_OR_RETURN(Hands hands, parse_hands(part, by, cluster));
    stage.devices = std::move(hands.devices);
    stage.split = std::move(hands.split);
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

Result<PlanStages> parse_plan_stages(const std::vector<std::string>& parts, const Graph& graph, const Cluster& cluster,
                                     std::vector<PlanNote>* notes) {
  std::vector<std::string> of_prompts, of_tokens;
  for (const std::string& part : parts) {
    const std::string_view text = trim(part);
    const bool marked = text.starts_with(prefill_mark);
    (marked ? of_prompts : of_tokens).emplace_back(marked ? trim(text.substr(prefill_mark.size())) : text);
  }
  if (of_tokens.empty() && !of_prompts.empty())
    return wrong(parts.back(),
                 fmt::format("'{}': a plan with a prefill of its own needs 'decode' as well", parts.back()));
  PlanStages plan;
  ASSIGN_OR_RETURN(plan.stages, parse_stages(of_tokens, graph, cluster, notes));
  if (of_prompts.empty()) return plan;
  ASSIGN_OR_RETURN(plan.prefill, parse_stages(of_prompts, graph, cluster, notes));
  if (plan.prefill == plan.stages) plan.prefill.clear();
  return plan;
}

namespace {

std::string stages_text(const std::vector<Stage>& stages, const Graph& graph, const Cluster& cluster) {
  std::string text;
  for (size_t s = 0; s < stages.size(); ++s) {
    const Stage& stage = stages[s];
    if (s > 0) text += " | ";
    text += stage_devices(stage, cluster);
    if (stages.size() == 1)
      text += " all";
    else if (s + 1 == stages.size())
      text += fmt::format(" {}", rest_word);
    else
      text += fmt::format(" {}{}", up_to, cut_name(graph, stage.end));
    if (stage.recompute) text += recomputed_word;
  }
  return text;
}

}  // namespace

std::string to_string(const Plan& plan, const Graph& graph, const Cluster& cluster) {
  std::string text = stages_text(plan.stages, graph, cluster);
  if (plan.prefill.empty()) return text;
  return fmt::format("prefill {}; decode {}", stages_text(plan.prefill, graph, cluster), text);
}

std::vector<std::string> stage_parts(const Plan& plan, const Graph& graph, const Cluster& cluster) {
  std::vector<std::string> parts;
  const auto add = [&](const std::vector<Stage>& stages, std::string_view mark) {
    for (const Stage& stage : stages) {
      const bool last = &stage == &stages.back();
      const std::string what = last ? std::string(rest_word) : fmt::format("{}{}", up_to, cut_name(graph, stage.end));
      parts.push_back(
          fmt::format("{}{}@{}{}", mark, what, stage_devices(stage, cluster), stage.recompute ? recomputed_word : ""));
    }
  };
  add(plan.prefill, fmt::format("{} ", prefill_mark));
  add(plan.stages, "");
  return parts;
}

Status check_plan(const Plan& plan, const Graph& graph, const Cluster& cluster, int64_t batch, size_t first) {
  std::string name = plan.name.empty() ? "plan" : fmt::format("plan {}", plan.name);
  if (!plan.prefill.empty()) {
    Plan prompts = plan;
    prompts.stages = std::exchange(prompts.prefill, {});
    prompts.name = plan.name.empty() ? "of prefill" : plan.name + ", prefill";
    RETURN_IF_ERROR(check_plan(prompts, graph, cluster, batch, first));
    name += ", decode";
  }
  if (plan.stages.empty()) return invalid_input(fmt::format("{}: no stages", name));
  if (plan.micro_batches < 1)
    return invalid_input(fmt::format("{}: {} micro-batches; there must be at least one", name, plan.micro_batches));
  if (batch % plan.micro_batches != 0) {
    return invalid_input(
        fmt::format("{}: {} micro-batches do not divide the batch of {}", name, plan.micro_batches, batch));
  }
  size_t next = first;
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
    if (stage.split) {
      std::string why = wrong_shares(stage);
      if (!why.empty()) return wrong_stage(std::move(why));
    }
    next = stage.end;
  }
  if (next != graph.nodes.size()) {
    return invalid_input(fmt::format("{}: the last stage ends after '{}', so {} layers have no device", name,
                                     graph.nodes[next - 1].name, graph.nodes.size() - next));
  }
  return ok_status();
}

}  // namespace nlsplit::inline partition
