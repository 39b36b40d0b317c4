#include "cost/corrections.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace nlsplit::inline cost {
namespace {

using nlohmann::json;

bool possible(double factor) { return std::isfinite(factor) && factor > 0; }

void lengthen(MessageCost& cost, double factor) {
  cost.latency = cost.latency * factor;
  cost.bandwidth = bytes_per_second(cost.bandwidth.value() / factor);
}

}  // namespace

std::string to_json(const Corrections& corrections) {
  const json file = {{"format", "nlsplit-corrections"},
                     {"version", 1},
                     {"computing", corrections.computing},
                     {"messages", corrections.messages}};
  return file.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<Corrections> parse_corrections(const std::string& text, const std::string& file) {
  try {
    const json value = json::parse(text);
    if (value.at("format") != "nlsplit-corrections" || value.at("version") != 1)
      return invalid_input(
          fmt::format("{}: not corrections of version 1 (nlbench validate --recalibrate makes them)", file));
    Corrections corrections;
    value.at("computing").get_to(corrections.computing);
    value.at("messages").get_to(corrections.messages);
    for (const auto& [device, factor] : corrections.computing) {
      if (!possible(factor))
        return invalid_input(fmt::format("{}: device {} cannot take {} times as long", file, device, factor));
    }
    if (!possible(corrections.messages))
      return invalid_input(fmt::format("{}: messages cannot take {} times as long", file, corrections.messages));
    return corrections;
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("{}: {}", file, e.what()));
  }
}

Status apply(const Corrections& corrections, Cluster& cluster, std::vector<CostSourcePtr>& costs) {
  for (const auto& [name, factor] : corrections.computing) {
    const DeviceId device = cluster.find_device(name);
    if (!device.valid())
      return invalid_input(fmt::format("corrections for device '{}', which this cluster has not", name));
    CostSourcePtr& source = costs[device.index()];
    source = source->slowed(factor);
  }
  for (MeasuredRoute& way : cluster.routes) {
    lengthen(way.eager, corrections.messages);
    lengthen(way.rendezvous, corrections.messages);
  }
  return ok_status();
}

}  // namespace nlsplit::inline cost
