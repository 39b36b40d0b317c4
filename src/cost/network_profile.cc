#include "cost/network_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/json_number.h"

namespace nlsplit::inline cost {
namespace {

using nlohmann::json;

json to_json(const MessageCost& cost) {
  return {{"latency_s", cost.latency.value()}, {"bytes_per_s", cost.bandwidth.value()}};
}

MessageCost cost_of(const json& value) {
  return {seconds(value.at("latency_s").get<double>()), bytes_per_second(value.at("bytes_per_s").get<double>())};
}

json to_json(const Overheads& overheads) {
  return {{"sender_s_per_byte", overheads.sender},
          {"receiver_s_per_byte", overheads.receiver},
          {"slowed", overheads.slowed},
          {"busy_s", overheads.busy},
          {"held_s", overheads.held},
          {"handover_s_per_byte", overheads.handover}};
}

Overheads overheads_of(const json& value) {
  return {value.at("sender_s_per_byte").get<double>(),
          value.at("receiver_s_per_byte").get<double>(),
          value.at("slowed").get<double>(),
          value.value("busy_s", 0.0),
          value.value("held_s", 0.0),
          value.value("handover_s_per_byte", 0.0)};
}

// Of what a file says; JSON has no numbers that are not finite.
bool possible(const Overheads& overheads) {
  return overheads.sender >= 0 && overheads.receiver >= 0 && overheads.slowed >= 0 && overheads.busy >= 0 &&
         overheads.held >= 0 && overheads.handover >= 0;
}

bool possible(const MessageCost& cost) { return cost.latency.value() >= 0 && cost.bandwidth.value() > 0; }

std::vector<RouteEnds> ends_of(const json& list) {
  std::vector<RouteEnds> all;
  for (const json& ends : list) all.push_back({ends.at("from").get<std::string>(), ends.at("to").get<std::string>()});
  return all;
}

json to_json(const std::vector<RouteEnds>& all) {
  json list = json::array();
  for (const RouteEnds& ends : all) list.push_back({{"from", ends.from}, {"to", ends.to}});
  return list;
}

// Medians are of routes that were measured.
Status check_medians(const NetworkProfile& profile) {
  std::set<RouteEnds> measured;
  for (const NamedRoute& route : profile.routes)
    if (route.median_of.empty()) measured.insert({route.from, route.to});
  for (const NamedRoute& route : profile.routes) {
    for (const RouteEnds& ends : route.median_of) {
      if (measured.contains(ends)) continue;
      return invalid_input(
          fmt::format("{}: from '{}' to '{}': the median of '{}' to '{}', which the file did not measure", profile.file,
                      route.from, route.to, ends.from, ends.to));
    }
  }
  return ok_status();
}

}  // namespace

Result<NetworkProfile> read_network_profile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  NetworkProfile profile;
  profile.file = path;
  try {
    const json value = json::parse(text);
    if (value.at("format") != "nlsplit-network" || value.at("version") != 4)
      return invalid_input(
          fmt::format("{}: not the measurements of a network, version 4 (nlbench network makes them)", path));
    value.at("machine").get_to(profile.machine);
    if (value.contains("transport")) value.at("transport").get_to(profile.transport);
    const auto limit = whole_number<int64_t>(value.at("eager_limit_bytes"));
    if (limit < 0) return invalid_input(fmt::format("{}: an eager limit of {} bytes", path, limit));
    profile.eager_limit = bytes(limit);
    std::set<std::pair<std::string, std::string>> known;
    for (const json& entry : value.at(value.contains("ways") ? "ways" : "routes")) {
      NamedRoute route;
      entry.at("from").get_to(route.from);
      entry.at("to").get_to(route.to);
      route.eager = cost_of(entry.at("eager"));
      route.rendezvous = cost_of(entry.at("rendezvous"));
      route.overheads = overheads_of(entry.at("overheads"));
      entry.at("largest_error").get_to(route.largest_error);
      route.crossing = bytes_per_second(entry.at("crossing_bytes_per_s").get<double>());
      route.clear_to_send_delay =
          seconds(entry.at(entry.contains("answer_wait_s") ? "answer_wait_s" : "clear_to_send_delay_s").get<double>());
      route.starts_early = entry.value("starts_early", false);
      if (entry.contains("median_of")) route.median_of = ends_of(entry.at("median_of"));
      const std::string name = fmt::format("{}: from '{}' to '{}'", path, route.from, route.to);
      if (!possible(route.eager) || !possible(route.rendezvous) || !possible(route.overheads) ||
          route.crossing.value() < 0 || route.clear_to_send_delay.value() < 0 || route.largest_error < 0)
        return invalid_input(name + ": a negative time, or no bandwidth");
      if (!known.emplace(route.from, route.to).second) return invalid_input(name + " twice");
      profile.routes.push_back(std::move(route));
    }
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("{}: {}", path, e.what()));
  }
  RETURN_IF_ERROR(check_medians(profile));
  return profile;
}

Status write_network_profile(const std::string& path, const NetworkProfile& profile) {
  json routes = json::array();
  for (const NamedRoute& route : profile.routes) {
    routes.push_back({{"from", route.from},
                      {"to", route.to},
                      {"eager", to_json(route.eager)},
                      {"rendezvous", to_json(route.rendezvous)},
                      {"overheads", to_json(route.overheads)},
                      {"largest_error", route.largest_error},
                      {"crossing_bytes_per_s", route.crossing.value()},
                      {"clear_to_send_delay_s", route.clear_to_send_delay.value()},
                      {"starts_early", route.starts_early}});
    if (!route.median_of.empty()) routes.back()["median_of"] = to_json(route.median_of);
  }
  const json file = {{"format", "nlsplit-network"},
                     {"version", 4},
                     {"machine", profile.machine},
                     {"transport", profile.transport},
                     {"eager_limit_bytes", profile.eager_limit.value()},
                     {"routes", std::move(routes)}};
  return write_file(path, file.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

void apply(const NetworkProfile& profile, Cluster& cluster) {
  cluster.eager_limit = profile.eager_limit;
  cluster.network_profile = profile.file;
  std::map<std::pair<HostId, HostId>, LinkId> meetings;  // by hosts, the lower one first
  for (const NamedRoute& route : profile.routes) {
    const HostId from = cluster.find_host(route.from), to = cluster.find_host(route.to);
    if (!from.valid() || !to.valid()) continue;
    LinkId meeting;
    if (route.crossing.value() > 0) {
      const auto [known, is_new] = meetings.try_emplace(std::minmax(from, to), LinkId(cluster.links.size()));
      meeting = known->second;
      if (is_new) {
        Link link;
        link.name = fmt::format("{}<>{}", route.from, route.to);
        link.bandwidth = route.crossing * 2;
        link.full_duplex = false;
        cluster.links.push_back(std::move(link));
        ++cluster.inner_links;  // the last links: on no route but those that name them
      }
    }
    cluster.routes.push_back({from, to, route.eager, route.rendezvous, route.overheads, meeting,
                              route.clear_to_send_delay, route.largest_error, route.starts_early});
  }
}

}  // namespace nlsplit::inline cost
