#include "tools/nlbench_conditions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace nlsplit::inline tools {
namespace {

constexpr size_t most_named = 4;  // processes in one line

std::vector<ProcessMemory> processes_of(const Program& program, const RanOn& ran_on) {
  std::vector<ProcessMemory> found;
  std::map<int64_t, size_t> known;
  for (size_t d = 0; d < ran_on.process.size() && d < program.devices.size(); ++d) {
    if (ran_on.peak_resident[d] <= 0) continue;
    const auto [at, is_new] = known.try_emplace(ran_on.process[d], found.size());
    if (is_new) found.push_back({{}, bytes(0), bytes(0)});
    ProcessMemory& process = found[at->second];
    process.devices.push_back(program.devices[d].name);
    process.peak = std::max(process.peak, bytes(ran_on.peak_resident[d]));
    process.arenas = process.arenas + bytes(ran_on.arena[d]);
  }
  return found;
}

// The largest where there are many.
std::string memory_text(std::vector<ProcessMemory> processes) {
  std::ranges::stable_sort(processes, std::greater<>(), &ProcessMemory::peak);
  if (processes.size() > most_named) processes.resize(1);
  std::string text;
  for (const ProcessMemory& process : processes) {
    text += fmt::format("{}{}: {} at most, arenas {}", text.empty() ? "memory      process of " : "; ",
                        fmt::join(process.devices, ", "), to_string(process.peak), to_string(process.arenas));
  }
  return text.empty() ? "" : text + "\n";
}

}  // namespace

Conditions conditions_of(const Program& program, const RanOn& ran_on, const Clocks& clocks) {
  Conditions found;
  const size_t devices = program.devices.size();
  for (size_t d = 0; d < devices && d < ran_on.stands_in.size(); ++d) {
    if (ran_on.stands_in[d] != 0) found.stand_ins.push_back(program.devices[d].name);
  }
  found.processes = processes_of(program, ran_on);
  if (ran_on.machine.size() != devices) return found;
  for (size_t first = 0; first < devices && found.one_machine.empty(); ++first) {
    std::vector<std::string> here;
    std::set<std::string> hosts;
    for (size_t d = 0; d < devices; ++d) {
      if (ran_on.machine[d] != static_cast<int>(first)) continue;
      here.push_back(program.devices[d].name);
      hosts.insert(program.devices[d].host);
    }
    if (hosts.size() > 1) found.one_machine = std::move(here);
  }
  found.own_compute = !found.one_machine.empty() && clocks.empty();
  return found;
}

std::string conditions_text(const Conditions& conditions) {
  std::string text;
  if (!conditions.stand_ins.empty()) {
    text += fmt::format("note        the CPU computed in place of the GPU of {}: these times are not the scenario's\n",
                        fmt::join(conditions.stand_ins, ", "));
  }
  if (!conditions.one_machine.empty()) {
    text += fmt::format("note        {} ran on one machine: their messages did not pass the scenario's links{}\n",
                        fmt::join(conditions.one_machine, ", "),
                        conditions.own_compute ? ", and they computed at this machine's speed" : "");
  }
  return text + memory_text(conditions.processes);
}

nlohmann::json conditions_json(const Conditions& conditions) {
  nlohmann::json processes = nlohmann::json::array();
  for (const ProcessMemory& process : conditions.processes) {
    processes.push_back(
        {{"devices", process.devices}, {"peak_bytes", process.peak.value()}, {"arena_bytes", process.arenas.value()}});
  }
  return {{"cpu_in_place_of_gpu", conditions.stand_ins},
          {"on_one_machine", conditions.one_machine},
          {"processes", std::move(processes)}};
}

}  // namespace nlsplit::inline tools
