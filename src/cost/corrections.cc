#include "cost/corrections.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace nlsplit::inline cost {
namespace {

using nlohmann::json;

bool possible(double factor) { return std::isfinite(factor) && factor > 0; }
bool possible_spread(double spread) { return std::isfinite(spread) && spread >= 0; }

json spreads_json(const CorrectionSpreads& spreads) {
  json file = {{"computing", spreads.computing}};
  if (spreads.messages) file["messages"] = *spreads.messages;
  if (spreads.plans) file["plans"] = *spreads.plans;
  return file;
}

Result<CorrectionSpreads> parse_spreads(const json& value, const std::string& file) {
  CorrectionSpreads spreads;
  value.at("computing").get_to(spreads.computing);
  if (value.contains("messages")) spreads.messages = value.at("messages").get<double>();
  if (value.contains("plans")) spreads.plans = value.at("plans").get<double>();
  for (const auto& [device, spread] : spreads.computing) {
    if (!possible_spread(spread))
      return invalid_input(fmt::format("{}: computing on {} cannot have a spread of {}", file, device, spread));
  }
  for (const auto& [what, spread] : {std::pair("messages", spreads.messages), std::pair("plans", spreads.plans)}) {
    if (spread && !possible_spread(*spread))
      return invalid_input(fmt::format("{}: {} cannot have a spread of {}", file, what, *spread));
  }
  return spreads;
}

void lengthen(MessageCost& cost, double factor) {
  cost.latency = cost.latency * factor;
  cost.bandwidth = bytes_per_second(cost.bandwidth.value() / factor);
}

}  // namespace

std::string to_json(const Corrections& corrections) {
  const json file = {{"format", "nlsplit-corrections"},
                     {"version", 2},
                     {"computing", corrections.computing},
                     {"messages", corrections.messages},
                     {"spreads", spreads_json(corrections.spreads)}};
  return file.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<Corrections> parse_corrections(const std::string& text, const std::string& file) {
  try {
    const json value = json::parse(text);
    const bool known = value.at("format") == "nlsplit-corrections";
    if (!known || (value.at("version") != 1 && value.at("version") != 2))
      return invalid_input(
          fmt::format("{}: not corrections of version 1 or 2 (nlbench validate --recalibrate makes them)", file));
    Corrections corrections;
    value.at("computing").get_to(corrections.computing);
    value.at("messages").get_to(corrections.messages);
    if (value.at("version") == 2) {
      ASSIGN_OR_RETURN(corrections.spreads, parse_spreads(value.at("spreads"), file));
    }
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
