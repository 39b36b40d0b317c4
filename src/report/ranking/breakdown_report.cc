#include "report/ranking/breakdown_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "report/table.h"

namespace nlsplit {
namespace {

// "12.3 ms (45 %)"
std::string part(double time, double makespan) {
  return fmt::format("{} ({:.0f} %)", to_string(seconds(time)), makespan > 0 ? time / makespan * 100 : 0);
}

std::string percent(double share) { return fmt::format("{:.0f} %", share * 100); }

}  // namespace

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

}  // namespace nlsplit
