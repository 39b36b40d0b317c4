#include "planning/gpu_kernels.h"

#include <fmt/format.h>

#include <algorithm>

namespace nlsplit::inline planning {
namespace {

struct Counted {
  int64_t all = 0, without = 0;
};

std::string note_of(const Counted& counted, bool trains) {
  if (counted.without == 0) return "";
  return fmt::format("note  {} of {} computations have no GPU kernel here; the roofline assumes one ({})\n",
                     counted.without, counted.all,
                     trains ? "nlbench does not train on GPUs: docs/cuda.md" : "the host computes them: docs/cuda.md");
}

bool is_by_formula(const Scenario& scenario, size_t device) {
  return scenario.cluster.devices[device].kind == DeviceKind::cuda && scenario.costs[device]->profile() == nullptr;
}

}  // namespace

Result<std::string> gpu_kernels_note(const Loaded& loaded) {
  const Scenario& scenario = loaded.scenario;
  size_t gpu = 0;
  while (gpu < scenario.cluster.devices.size() && !is_by_formula(scenario, gpu)) ++gpu;
  if (gpu == scenario.cluster.devices.size() || scenario.micro_batches.empty()) return std::string();
  ASSIGN_OR_RETURN(const PreparedModel prepared,
                   prepare_model(scenario, loaded.model.graph, scenario.micro_batches.front()));
  const KernelGraph& kernels = prepared.kernels.training ? prepared.kernels.training->step : prepared.kernels;
  const auto chosen = kernels.chosen.find(scenario.cluster.devices[gpu].level);
  if (chosen == kernels.chosen.end()) return std::string();
  Counted counted;
  for (size_t n = 0; n < kernels.graph.nodes.size(); ++n) {
    if (!kernels.computed[n]) continue;
    ++counted.all;
    counted.without += chosen->second.descs[n].kernel.name == KernelName::gpu_host ? 1 : 0;
  }
  return note_of(counted, scenario.training.has_value());
}

std::string gpu_kernels_note(const Scenario& scenario, const Program& program) {
  Counted counted;
  for (const DeviceProgram& device : program.devices) {
    const auto known = std::ranges::find(scenario.cluster.devices, device.name, &Device::name);
    if (known == scenario.cluster.devices.end() ||
        !is_by_formula(scenario, static_cast<size_t>(known - scenario.cluster.devices.begin())))
      continue;
    for (const Segment& segment : device.segments) {
      for (const Instr& instr : segment.instrs) {
        if (instr.opcode != Opcode::compute) continue;
        ++counted.all;
        counted.without += program.descs[static_cast<size_t>(instr.desc)].kernel.name == KernelName::gpu_host ? 1 : 0;
      }
    }
  }
  return note_of(counted, scenario.training.has_value());
}

}  // namespace nlsplit::inline planning
