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
          {"slowed", overheads.slowed}};
}

Overheads overheads_of(const json& value) {
  return {value.at("sender_s_per_byte").get<double>(), value.at("receiver_s_per_byte").get<double>(),
          value.at("slowed").get<double>()};
}

// Of what a file says; JSON has no numbers that are not finite.
bool possible(const Overheads& overheads) {
  return overheads.sender >= 0 && overheads.receiver >= 0 && overheads.slowed >= 0;
}

bool possible(const MessageCost& cost) { return cost.latency.value() >= 0 && cost.bandwidth.value() > 0; }

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
    const auto limit = whole_number<int64_t>(value.at("eager_limit_bytes"));
    if (limit < 0) return invalid_input(fmt::format("{}: an eager limit of {} bytes", path, limit));
    profile.eager_limit = bytes(limit);
    std::set<std::pair<std::string, std::string>> known;
    for (const json& entry : value.at("ways")) {
      NamedWay way;
      entry.at("from").get_to(way.from);
      entry.at("to").get_to(way.to);
      way.eager = cost_of(entry.at("eager"));
      way.rendezvous = cost_of(entry.at("rendezvous"));
      way.overheads = overheads_of(entry.at("overheads"));
      entry.at("largest_error").get_to(way.largest_error);
      way.crossing = bytes_per_second(entry.at("crossing_bytes_per_s").get<double>());
      way.answer_wait = seconds(entry.at("answer_wait_s").get<double>());
      const std::string name = fmt::format("{}: from '{}' to '{}'", path, way.from, way.to);
      if (!possible(way.eager) || !possible(way.rendezvous) || !possible(way.overheads) || way.crossing.value() < 0 ||
          way.answer_wait.value() < 0 || way.largest_error < 0)
        return invalid_input(name + ": a negative time, or no bandwidth");
      if (!known.emplace(way.from, way.to).second) return invalid_input(name + " twice");
      profile.ways.push_back(std::move(way));
    }
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("{}: {}", path, e.what()));
  }
  return profile;
}

Status write_network_profile(const std::string& path, const NetworkProfile& profile) {
  json ways = json::array();
  for (const NamedWay& way : profile.ways) {
    ways.push_back({{"from", way.from},
                    {"to", way.to},
                    {"eager", to_json(way.eager)},
                    {"rendezvous", to_json(way.rendezvous)},
                    {"overheads", to_json(way.overheads)},
                    {"largest_error", way.largest_error},
                    {"crossing_bytes_per_s", way.crossing.value()},
                    {"answer_wait_s", way.answer_wait.value()}});
  }
  const json file = {{"format", "nlsplit-network"},
                     {"version", 4},
                     {"machine", profile.machine},
                     {"eager_limit_bytes", profile.eager_limit.value()},
                     {"ways", std::move(ways)}};
  return write_file(path, file.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

void apply(const NetworkProfile& profile, Cluster& cluster) {
  cluster.eager_limit = profile.eager_limit;
  cluster.network_profile = profile.file;
  std::map<std::pair<HostId, HostId>, LinkId> meetings;  // by hosts, the lower one first
  for (const NamedWay& way : profile.ways) {
    const HostId from = cluster.find_host(way.from), to = cluster.find_host(way.to);
    if (!from.valid() || !to.valid()) continue;
    LinkId meeting;
    if (way.crossing.value() > 0) {
      const auto [known, is_new] = meetings.try_emplace(std::minmax(from, to), LinkId(cluster.links.size()));
      meeting = known->second;
      if (is_new) {
        Link link;
        link.name = fmt::format("{}<>{}", way.from, way.to);
        link.bandwidth = way.crossing * 2;
        link.full_duplex = false;
        cluster.links.push_back(std::move(link));
        ++cluster.inner_links;  // the last links: on no way but those that name them
      }
    }
    cluster.ways.push_back({from, to, way.eager, way.rendezvous, way.overheads, meeting, way.answer_wait});
  }
}

}  // namespace nlsplit::inline cost
