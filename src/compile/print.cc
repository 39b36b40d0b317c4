#include "compile/print.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "program/text.h"

namespace nlsplit::inline compiler {
namespace {

const std::string& device_name(const Lowering& lowering, int device) {
  return lowering.program.devices[at(device)].name;
}

std::string stage_name(const Lowering& lowering, int stage) {
  if (stage == source_stage) return "source";
  return stage == lowering.stages() ? "sink" : std::to_string(stage);
}

std::string names_of(const Lowering& lowering, const std::vector<size_t>& nodes) {
  std::vector<std::string_view> names;
  for (const size_t n : nodes) names.push_back(lowering.graph->labels[n]);
  return fmt::format("{}", fmt::join(names, "; "));
}

std::string port_text(const Lowering& lowering, const Port& port, std::string_view direction) {
  const bool credit = at(port.flow) == lowering.flows.size();
  const std::string_view what =
      credit ? "credit" : std::string_view(lowering.graph->graph.value(lowering.flows[at(port.flow)].root).name);
  return fmt::format("{} {} {}", what, direction, device_name(lowering, port.peer));
}

}  // namespace

std::string print_kernels(const KernelGraph& network) {
  const KernelGraph& graph = network.training ? network.training->step : network;
  std::string text = to_string(graph.graph);
  for (const auto& [level, chosen] : graph.chosen) {
    text += fmt::format("kernels for level {}\n", name_of(level));
    for (size_t n = 0; n < graph.graph.nodes.size(); ++n) {
      if (graph.computed[n]) text += fmt::format("  {}: {}\n", graph.labels[n], to_string(chosen.descs[n].kernel));
    }
  }
  return text;
}

std::string print_split(const KernelGraph& parts, const Plan& plan, const Cluster& cluster) {
  return fmt::format("plan {}\n{}", to_string(plan, parts.graph, cluster), print_kernels(parts));
}

std::string print_placement(const Lowering& lowering) {
  std::string text = fmt::format("inputs at {}, outputs at {}\n", device_name(lowering, lowering.source),
                                 device_name(lowering, lowering.sink));
  for (int s = 0; s < lowering.stages(); ++s) {
    std::vector<std::string_view> devices;
    for (const int d : lowering.stage_devices[at(s)]) devices.push_back(device_name(lowering, d));
    text += fmt::format("stage {} on {}\n", s, fmt::join(devices, ", "));
    const StageNodes& nodes = lowering.nodes;
    text += fmt::format("  F {}\n", names_of(lowering, nodes.forward[at(s)]));
    if (lowering.training == nullptr) continue;
    if (lowering.recomputes(s)) text += fmt::format("  R {}\n", names_of(lowering, nodes.again[at(s)]));
    text += fmt::format("  I {}\n  W {}\n  step {}\n", names_of(lowering, nodes.input[at(s)]),
                        names_of(lowering, nodes.weight[at(s)]), names_of(lowering, nodes.step[at(s)]));
  }
  if (lowering.training != nullptr) {
    const StepNodes& step = lowering.training->nodes;
    text += fmt::format("each device: {} before its updates; {} after them\n", names_of(lowering, step.before_updates),
                        names_of(lowering, step.behind_updates));
  }
  for (const Flow& flow : lowering.flows) {
    std::vector<std::string> consumers;
    for (const int c : flow.consumers) consumers.push_back(stage_name(lowering, c));
    const Value& value = lowering.graph->graph.value(flow.root);
    text += fmt::format("{} {} {}: {} to {}{}\n", flow.backward ? "gradient" : "value", value.name,
                        to_string(value.type), stage_name(lowering, flow.producer), fmt::join(consumers, ", "),
                        lowering.is_converted(flow) ? fmt::format(", as {}", name_of(flow.travels_as)) : "");
  }
  return text;
}

std::string print_schedule(const Lowering& lowering) {
  std::string text = fmt::format("schedule {}: {}\n", lowering.plan->schedule,
                                 lowering.training != nullptr
                                     ? "instances of buffers as its order needs them"
                                     : fmt::format("{} of every buffer that crosses stages", lowering.table.instances));
  if (lowering.table.in_flight > 0)
    text += fmt::format("at most {} micro-batches between the first stage and the last\n", lowering.table.in_flight);
  for (size_t s = 0; s < lowering.reductions.size(); ++s) {
    const Reduction& reduction = lowering.reductions[s];
    if (reduction.buckets.empty()) continue;
    std::vector<std::string_view> group;
    for (const int device : reduction.group) group.push_back(device_name(lowering, device));
    const Collective& first = reduction.buckets[0].reduce.collective;
    text += fmt::format("gradients of stage {}: {} {} of {}, {} elements{}\n", s, name_of(first.kind),
                        name_of(first.algorithm), fmt::join(group, ", "), reduction.elements,
                        reduction.buckets.size() == 1 ? "" : fmt::format(" in {} buckets", reduction.buckets.size()));
  }
  const auto list = [&](const std::vector<int>& devices) {
    std::vector<std::string_view> names;
    for (const int device : devices) names.push_back(device_name(lowering, device));
    return fmt::format("{}", fmt::join(names, ", "));
  };
  for (const Tied& tied : lowering.tied) {
    for (const Tied::Part& part : tied.parts) {
      const std::vector<int> to = lowering.part_goes_to(tied, part);
      if (to.empty()) continue;
      text +=
          fmt::format("{} of stage {} also to {}\n", lowering.graph->graph.value(part.sum).name, part.stage, list(to));
    }
  }
  if (lowering.clipping) {
    text += fmt::format("norm of gradients: on {}", list(lowering.group(lowering.clipping->stage)));
    if (const std::vector<int> others = lowering.factor_goes_to(); !others.empty())
      text += fmt::format(", its factor to {}", list(others));
    text += "\n";
  }
  for (size_t d = 0; d < lowering.table.devices.size(); ++d) {
    text += device_name(lowering, static_cast<int>(d)) + ":";
    for (const ScheduledSlot& slot : lowering.table.devices[d]) {
      text += slot.phase == Phase::step ? fmt::format(" step{}", slot.stage)
                                        : fmt::format(" {}{}.{}", name_of(slot.phase), slot.stage, slot.micro_batch);
    }
    text += "\n";
  }
  return text;
}

std::string print_messages(const Lowering& lowering) {
  std::string text;
  for (size_t d = 0; d < lowering.slots.size(); ++d) {
    text += device_name(lowering, static_cast<int>(d)) + "\n";
    for (const OrderedSlot& slot : lowering.slots[d]) {
      const bool works = slot.stage >= 0 && slot.stage < lowering.stages();
      text += "  ";
      if (works)
        text += fmt::format("{} of stage {}", name_of(slot.phase), slot.stage);
      else
        text += slot.stage == ahead_stage ? "ahead" : stage_name(lowering, slot.stage);
      if (slot.phase != Phase::step) text += fmt::format(", micro-batch {}", slot.micro_batch);
      std::vector<std::string> ports;
      for (const Port& port : slot.recvs) ports.push_back(port_text(lowering, port, "from"));
      for (const Port& port : slot.sends) ports.push_back(port_text(lowering, port, "to"));
      if (!ports.empty()) text += fmt::format(": {}", fmt::join(ports, ", "));
      text += "\n";
    }
  }
  return text;
}

std::string print_program(const Lowering& lowering) { return to_string(lowering.program); }

}  // namespace nlsplit::inline compiler
