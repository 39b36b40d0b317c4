#include "report/ranking/breakdown_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/table.h"

namespace nlsplit::inline reports {
namespace {

// "12.3 ms (45 %)"
std::string part(double time, double makespan) {
  return fmt::format("{} ({:.0f} %)", to_string(seconds(time)), makespan > 0 ? time / makespan * 100 : 0);
}

constexpr Phase told_phases[] = {Phase::forward, Phase::recompute, Phase::input_gradient, Phase::weight_gradient,
                                 Phase::step};
double of(const PhaseTimes& phases, Phase phase) { return phases[static_cast<size_t>(phase)]; }

std::string phase_table(const TimedPlan& timed) {
  using enum Align;
  std::vector<Table::Column> columns = {{"device", left}};
  std::vector<Phase> shown;
  for (const Phase phase : told_phases) {
    const bool any = std::ranges::any_of(timed.estimate.devices,
                                         [&](const DeviceEstimate& device) { return of(device.phases, phase) > 0; });
    if (!any) continue;
    shown.push_back(phase);
    columns.push_back({std::string(name_of(phase)), right});
  }
  Table table(columns);
  for (const DeviceEstimate& device : timed.estimate.devices) {
    std::vector<std::string> cells = {device.name};
    for (const Phase phase : shown) cells.push_back(part(of(device.phases, phase), timed.estimate.makespan_s));
    table.add(std::move(cells));
  }
  return table.to_string() +
         "\nF forward, R forward again, I input gradients, W weight gradients, step update of weights; sums over "
         "replicas count as W where they go on beside it\n";
}

}  // namespace

std::string phases_text(const PhaseTimes& phases, double makespan_s) {
  std::string text;
  for (const Phase phase : told_phases) {
    if (of(phases, phase) <= 0 || makespan_s <= 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(phase), percent(of(phases, phase) / makespan_s));
  }
  return text;
}

nlohmann::json phases_json(const PhaseTimes& phases) {
  nlohmann::json all = nlohmann::json::object();
  for (const Phase phase : told_phases) all[std::string(name_of(phase))] = of(phases, phase);
  return all;
}

std::string breakdown_text(const TimedPlan& timed) {
  using enum Align;
  const double makespan = timed.estimate.makespan_s;
  Table devices({{"device", left},
                 {"host", left},
                 {"computing", right},
                 {"exposed\ncommunication", right},
                 {"waiting", right},
                 {"memory", right}});
  for (size_t d = 0; d < timed.program.devices.size(); ++d) {
    const DeviceProgram& device = timed.program.devices[d];
    const DeviceBreakdown& parts = timed.breakdown.devices[d];
    devices.add({device.name, device.host, part(parts.computing, makespan), part(parts.exposed_communication, makespan),
                 part(parts.waiting, makespan), to_string(device.arena)});
  }
  std::string text = devices.to_string() +
                     "\nthe three make up the whole; communication is exposed while a device is idle because a message "
                     "to come is under way\n";
  if (is_training(timed.program)) text += "\n" + phase_table(timed);
  if (timed.estimate.links.empty()) return text;
  Table links({{"link", left}, {"carries", right}, {"utilisation", right}, {"busy", right}});
  for (const LinkEstimate& link : timed.estimate.links) {
    links.add({link.name, to_string(bytes(static_cast<int64_t>(link.use.bytes))), percent(link.use.utilisation),
               percent(link.use.busy)});
  }
  return text + "\n" + links.to_string();
}

nlohmann::json links_json(const std::vector<LinkEstimate>& links) {
  nlohmann::json all = nlohmann::json::array();
  for (const LinkEstimate& link : links) {
    all.push_back({{"name", link.name},
                   {"bytes", link.use.bytes},
                   {"utilisation", link.use.utilisation},
                   {"busy_share", link.use.busy}});
  }
  return all;
}

}  // namespace nlsplit::inline reports
