// Internal to the module: the parts of a cluster. In the order they are read: topology, switches, devices, source and
// sink, the platform's routes, links, what is within hosts, network.
#pragma once

#include <fmt/format.h>

#include <array>

#include "cost/topology.h"
#include "scenario/parse.h"

namespace nlsplit::inline scenario {

// Outside these a figure is a slip of the pen, and sums of it would leave the range where doubles are exact enough.
inline constexpr double min_rate = 1;  // byte/s, flop/s
inline constexpr double max_rate = 1e21;

template <class T>
Result<T> read_rate(const Source& source, const Yaml& node, std::string_view what,
                    Result<T> (*parse)(std::string_view)) {
  ASSIGN_OR_RETURN(const T rate, read_quantity(source, node, parse));
  if (rate.value() < min_rate || rate.value() > max_rate) {
    return source.at(node, fmt::format("{} of {} cannot be", what, node.text));
  }
  return rate;
}

Result<Seconds> read_delay(const Source& source, const Yaml& node, std::string_view what);

// A host that may hold something; it comes into being by being named.
Result<HostId> read_host(const Source& source, const Yaml& node, Cluster& cluster);

// The keys bandwidth, latency and duplex of a link, whatever else it has.
Result<LinkSpec> read_link_spec(const Source& source, const Fields& fields);
// A map of just these.
Result<LinkSpec> read_link_spec(const Source& source, const Yaml& node, std::string_view what);

// What `topology` says beyond the hosts and links already made.
struct ParsedTopology {
  const Yaml* node = nullptr;           // nullptr: there is none
  std::vector<HostId> hosts;            // those that "all" means; empty for a platform file
  std::optional<LinkSpec> within;       // from each of them to itself
  std::string file;                     // a platform file, or empty
  std::vector<std::string> file_hosts;  // its hosts
};
Result<ParsedTopology> parse_topology(const Source& source, const Yaml& node, const ScenarioOptions& options,
                                      Cluster& cluster);

// Adds to scenario.cluster and scenario.costs; what is within hosts is left for later.
struct ParsedDevices {
  std::vector<const Yaml*> keys;  // of each device, where it was named
  std::vector<InnerNetwork> inner;
};
Result<ParsedDevices> parse_devices(const Source& source, const Yaml& node, const ScenarioOptions& options,
                                    const ParsedTopology& topology, Scenario& scenario);

// `costs` of a device (scenario/parse_costs.cc).
Result<CostSourcePtr> parse_costs(const Source& source, const Yaml& node, const ScenarioOptions& options);

Status parse_switches(const Source& source, const Yaml& node, Cluster& cluster);
Status parse_links(const Source& source, const Yaml& node, Cluster& cluster);
// trains: the workload, or a program of several.
Status parse_network(const Source& source, const Yaml& node, const ScenarioOptions& options, bool trains,
                     Cluster& cluster);

}  // namespace nlsplit::inline scenario
