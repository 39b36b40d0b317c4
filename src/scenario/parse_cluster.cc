// The machines of a scenario: its parts in their order, and what must hold between them.
#include "scenario/parse_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "base/text_reader.h"

namespace nlsplit::inline scenario {

namespace {

// A source or sink may be a host without devices, but then links lead to it; else it is a misspelt name.
Status check_endpoint(const Source& source, const Yaml* node, HostId host, const Cluster& cluster) {
  if (node == nullptr) return ok_status();
  std::vector<std::string> others;
  for (const Device& device : cluster.devices) {
    if (device.host == host) return ok_status();
    others.push_back(cluster.hosts[device.host.index()].name);
  }
  if (cluster.hosts[host.index()].number >= 0) return ok_status();
  for (const Link& link : cluster.links) {
    if (link.a == host || link.b == host) return ok_status();
  }
  const std::string near = nearest(node->text, others);
  return source.at(*node, fmt::format("unknown host '{}': no device is on it and no link leads to it{}", node->text,
                                      near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
}

// Devices of one host that could not exchange anything. At the second one's key.
Status check_shared_hosts(const Source& source, const ParsedDevices& devices, const ParsedTopology& topology,
                          const Cluster& cluster) {
  std::map<HostId, size_t> first;
  std::vector<bool> checked(cluster.hosts.size(), false);
  for (size_t i = 0; i < cluster.devices.size(); ++i) {
    const HostId host = cluster.devices[i].host;
    const auto [at, is_first] = first.emplace(host, i);
    if (is_first || checked[host.index()]) continue;
    checked[host.index()] = true;
    if (find_path(cluster, host, host).ok()) continue;
    const std::string& name = cluster.hosts[host.index()].name;
    const bool generated = std::ranges::find(topology.hosts, host) != topology.hosts.end();
    return source.at(
        *devices.keys[i],
        fmt::format("devices '{}' and '{}' are both on host '{}', but no link says how fast they exchange "
                    "data: add {}",
                    cluster.devices[at->second].name, cluster.devices[i].name, name,
                    generated ? "'within: {bandwidth: ..., latency: ...}' to the topology"
                              : fmt::format("{{between: [{0}, {0}], bandwidth: ..., latency: ...}}", name)));
  }
  return ok_status();
}

// Names that were made could be names that were given.
template <class Things>
Status check_names(const Source& source, const Yaml& node, const Things& things, std::string_view what) {
  std::unordered_set<std::string_view> names;
  for (const auto& thing : things) {
    if (!names.insert(thing.name).second)
      return source.at(node, fmt::format("two {} would be called '{}'", what, thing.name));
  }
  return ok_status();
}

// The routes of a platform file, between those of its hosts that are used.
Status add_platform_routes(const Source& source, const ScenarioOptions& options, const ParsedTopology& topology,
                           Cluster& cluster) {
  const std::unordered_set<std::string_view> known(topology.file_hosts.begin(), topology.file_hosts.end());
  std::vector<HostId> hosts;
  std::vector<std::string> names;
  for (size_t h = 0; h < cluster.hosts.size(); ++h) {
    if (known.contains(cluster.hosts[h].name)) {
      hosts.push_back(HostId(h));
      names.push_back(cluster.hosts[h].name);
    }
  }
  const auto platform = options.platforms.routes(topology.file, names);
  if (!platform.ok()) return source.at(*topology.node, platform.error());
  add_platform(cluster, *platform, hosts);
  return ok_status();
}

// A device's host that belongs to nothing is a misspelt one. (Without a topology check_connected says it.)
Status check_hosts_known(const Source& source, const ParsedDevices& devices, const ParsedTopology& topology,
                         const Cluster& cluster) {
  std::vector<bool> linked(cluster.hosts.size(), false);
  for (size_t l = 0; l + cluster.inner_links < cluster.links.size(); ++l) {
    const Link& link = cluster.links[l];
    if (link.a.valid()) linked[link.a.index()] = linked[link.b.index()] = true;
  }
  for (size_t i = 0; i < cluster.devices.size(); ++i) {
    const HostId device_on = cluster.devices[i].host;
    const HostId inside = cluster.hosts[device_on.index()].inside;
    const HostId host = inside.valid() ? inside : device_on;
    if (cluster.hosts[host.index()].number >= 0 || linked[host.index()]) continue;
    std::vector<std::string> names = topology.file_hosts;
    for (const HostId known : topology.hosts) names.push_back(cluster.hosts[known.index()].name);
    const std::string& name = cluster.hosts[host.index()].name;
    const std::string near = nearest(name, names);
    return source.at(
        *devices.keys[i],
        fmt::format("unknown host '{}': it is not in the topology ({} hosts, {} to {}), and no link leads "
                    "to it{}",
                    name, names.size(), names.empty() ? "" : names.front(), names.empty() ? "" : names.back(),
                    near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
  }
  return ok_status();
}

// The host of all devices; invalid if they have several.
HostId only_host(const Cluster& cluster) {
  const auto elsewhere = [&](const Device& device) { return device.host != cluster.devices.front().host; };
  return std::ranges::any_of(cluster.devices, elsewhere) ? HostId() : cluster.devices.front().host;
}

// The host under that key; without the key the other one, if that is valid.
Result<HostId> read_endpoint(const Source& source, const Fields& root, std::string_view key, HostId otherwise,
                             Cluster& cluster) {
  if (root.find(key) == nullptr && otherwise.valid()) return otherwise;
  ASSIGN_OR_RETURN(const Yaml* node, root.need(key));
  return read_host(source, *node, cluster);
}

}  // namespace

Status parse_cluster(const Source& source, const Fields& root, const ScenarioOptions& options, Scenario& scenario) {
  Cluster& cluster = scenario.cluster;
  ParsedTopology topology;
  if (const Yaml* node = root.find("topology")) {
    ASSIGN_OR_RETURN(topology, parse_topology(source, *node, options, cluster));
  }
  if (const Yaml* switches = root.find("switches")) {
    RETURN_IF_ERROR(parse_switches(source, *switches, cluster));
  }
  ASSIGN_OR_RETURN(const Yaml* node, root.need("devices"));
  ASSIGN_OR_RETURN(ParsedDevices devices, parse_devices(source, *node, options, topology, scenario));
  ASSIGN_OR_RETURN(scenario.endpoints.source, read_endpoint(source, root, "source", only_host(cluster), cluster));
  const HostId answered = scenario.generation ? scenario.endpoints.source : only_host(cluster);
  ASSIGN_OR_RETURN(scenario.endpoints.sink, read_endpoint(source, root, "sink", answered, cluster));
  if (!topology.file.empty()) RETURN_IF_ERROR(add_platform_routes(source, options, topology, cluster));
  if (topology.within) {
    for (const HostId host : topology.hosts) {
      const std::string& name = cluster.hosts[host.index()].name;
      cluster.links.push_back({fmt::format("{}-{}", name, name), host, host, topology.within->bandwidth,
                               topology.within->latency, topology.within->full_duplex});
    }
  }
  const Yaml* links = root.find("links");
  if (links != nullptr) {
    RETURN_IF_ERROR(parse_links(source, *links, cluster));
  }
  const bool has_inner = !devices.inner.empty();
  add_inner_networks(cluster, std::move(devices.inner));
  if (const Yaml* network = root.find("network")) {
    const bool trains = scenario.training || std::ranges::any_of(scenario.programs, [](const ScenarioProgram& program) {
                          return program.workload.training.has_value();
                        });
    RETURN_IF_ERROR(parse_network(source, *network, options, trains, cluster));
    if (cluster.nic_window > 0 && has_inner) {
      return source.at(*network, unsupported("nic_window counts the messages of a host, and devices with a bus send "
                                             "without it: both together are not supported yet"));
    }
  }
  RETURN_IF_ERROR(check_names(source, *node, cluster.devices, "devices"));
  RETURN_IF_ERROR(check_names(source, topology.node != nullptr ? *topology.node : *node, cluster.hosts, "hosts"));
  RETURN_IF_ERROR(check_names(source, topology.node != nullptr ? *topology.node : *node, cluster.links, "links"));
  RETURN_IF_ERROR(check_endpoint(source, root.find("source"), scenario.endpoints.source, cluster));
  RETURN_IF_ERROR(check_endpoint(source, root.find("sink"), scenario.endpoints.sink, cluster));
  if (topology.node != nullptr) RETURN_IF_ERROR(check_hosts_known(source, devices, topology, cluster));
  RETURN_IF_ERROR(check_shared_hosts(source, devices, topology, cluster));

  std::vector<HostId> hosts = {scenario.endpoints.source, scenario.endpoints.sink};
  for (const Device& device : cluster.devices) hosts.push_back(device.host);
  const Status connected = check_connected(cluster, hosts);
  if (!connected.ok())
    return source.at(links != nullptr           ? *links
                     : topology.node != nullptr ? *topology.node
                                                : root.map(),
                     connected.error());
  return ok_status();
}

}  // namespace nlsplit::inline scenario
