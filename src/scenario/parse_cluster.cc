// The machines of a scenario: devices, the hosts they imply, switches, links, network, source and sink.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "base/text_reader.h"
#include "cost/network_profile.h"
#include "scenario/parse.h"

namespace nlsplit {

namespace {

// Outside these a figure is a slip of the pen, and sums of it would leave the range where doubles are exact enough.
constexpr double min_rate = 1;  // byte/s, flop/s
constexpr double max_rate = 1e21;
constexpr double max_delay = 3600;  // s
constexpr int64_t max_window = 1'000'000;
constexpr int64_t max_cores = 4096;
constexpr double max_slowdown = 1e6;

template <class T>
Result<T> read_rate(const Source& source, const Yaml& node, std::string_view what,
                    Result<T> (*parse)(std::string_view)) {
  ASSIGN_OR_RETURN(const T rate, read_quantity(source, node, parse));
  if (rate.value() < min_rate || rate.value() > max_rate) {
    return source.at(node, fmt::format("{} of {} cannot be", what, node.text));
  }
  return rate;
}

Result<Seconds> read_delay(const Source& source, const Yaml& node, std::string_view what) {
  ASSIGN_OR_RETURN(const Seconds delay, read_quantity(source, node, parse_time));
  if (delay.value() > max_delay) return source.at(node, fmt::format("{} of more than an hour cannot be", what));
  return delay;
}

HostId add_host(Cluster& cluster, const std::string& name, bool is_switch) {
  const HostId known = cluster.find_host(name);
  if (known.valid()) return known;
  cluster.hosts.push_back({name, is_switch});
  return HostId(cluster.hosts.size() - 1);
}

// A host that may hold something; it comes into being by being named.
Result<HostId> read_host(const Source& source, const Yaml& node, Cluster& cluster) {
  ASSIGN_OR_RETURN(const std::string name, read_name(source, node, "a host"));
  const HostId host = add_host(cluster, name, false);
  if (cluster.hosts[host.index()].is_switch) {
    return source.at(node, fmt::format("'{}' is a switch: it forwards, and holds no device, source or sink", name));
  }
  return host;
}

Status parse_switches(const Source& source, const Yaml& node, Cluster& cluster) {
  RETURN_IF_ERROR(expect_list(source, node, "switches"));
  if (node.items.size() > max_devices) return source.at(node, fmt::format("more than {} switches", max_devices));
  for (const Yaml& item : node.items) {
    ASSIGN_OR_RETURN(const std::string name, read_name(source, item, "a switch"));
    if (cluster.find_host(name).valid()) return source.at(item, fmt::format("switch '{}' is given twice", name));
    add_host(cluster, name, true);
  }
  return ok_status();
}

Result<CostSource> parse_costs(const Source& source, const Yaml& node, const ScenarioOptions& options) {
  if (!node.is_map()) {
    ASSIGN_OR_RETURN(const std::string name,
                     read_text(source, node, "costs (a profile, or {roofline: {compute: ..., memory: ...}})"));
    const std::string path = beside(source.file, name);
    auto profile = read_profile(path);
    if (!profile.ok()) {
      Error error = profile.error();
      if (error.kind == ErrorKind::io) {
        if (!options.need_profiles) return CostSource(NoCosts{});
        error.message += fmt::format("; measure on that machine with: nlbench profile {} -o {}", source.file, path);
      }
      return moved_to(std::move(error), source.location(node), source.line(node.line));
    }
    return CostSource(std::move(profile).value());
  }
  ASSIGN_OR_RETURN(const Fields costs, Fields::open(source, node, "costs", {"roofline"}));
  ASSIGN_OR_RETURN(const Yaml* inner, costs.need("roofline"));
  ASSIGN_OR_RETURN(const Fields roofline, Fields::open(source, *inner, "roofline", {"compute", "memory"}));
  ASSIGN_OR_RETURN(const Yaml* compute, roofline.need("compute"));
  ASSIGN_OR_RETURN(const Yaml* memory, roofline.need("memory"));
  ASSIGN_OR_RETURN(const FlopsPerSecond peak, read_rate(source, *compute, "a compute rate", parse_compute_rate));
  ASSIGN_OR_RETURN(const BytesPerSecond bandwidth, read_rate(source, *memory, "a memory bandwidth", parse_bandwidth));
  return CostSource(Roofline{peak, bandwidth});
}

Result<DeviceKind> read_kind(const Source& source, const Yaml& node) {
  ASSIGN_OR_RETURN(const std::string text, read_text(source, node, "a device kind"));
  auto kind = parse_device_kind(text);
  if (!kind.ok()) return source.at(node, kind.error());
  if (*kind == DeviceKind::host) return source.at(node, "unknown device kind 'host'; 'cpu' is supported");
  return kind;
}

Status parse_device(const Source& source, const Yaml& key, const Yaml& node, const ScenarioOptions& options,
                    Scenario& scenario) {
  Device device;
  ASSIGN_OR_RETURN(device.name, read_name(source, key, "a device"));
  ASSIGN_OR_RETURN(const Fields fields, Fields::open(source, node, fmt::format("device '{}'", device.name),
                                                     {"host", "kind", "cores", "memory", "isa", "costs", "slowdown", "machine"}));
  ASSIGN_OR_RETURN(const Yaml* host, fields.need("host"));
  ASSIGN_OR_RETURN(device.host, read_host(source, *host, scenario.cluster));
  if (const Yaml* kind = fields.find("kind")) {
    ASSIGN_OR_RETURN(device.kind, read_kind(source, *kind));
  }
  if (const Yaml* cores = fields.find("cores")) {
    ASSIGN_OR_RETURN(const int64_t count, read_integer(source, *cores, "cores", 1, max_cores));
    device.cores = static_cast<int>(count);
  }
  ASSIGN_OR_RETURN(const Yaml* memory, fields.need("memory"));
  ASSIGN_OR_RETURN(device.memory, read_quantity(source, *memory, parse_size));
  if (device.memory == bytes(0)) return source.at(*memory, "a device without memory can hold no layer");
  if (const Yaml* isa = fields.find("isa")) {
    ASSIGN_OR_RETURN(const std::string text, read_text(source, *isa, "an instruction level"));
    auto level = parse_isa(text);
    if (!level.ok()) return source.at(*isa, level.error());
    device.isa = *level;
  }
  ASSIGN_OR_RETURN(const Yaml* costs, fields.need("costs"));
  ASSIGN_OR_RETURN(CostSource cost, parse_costs(source, *costs, options));
  if (const Yaml* slowdown = fields.find("slowdown")) {
    ASSIGN_OR_RETURN(device.slowdown, read_number(source, *slowdown, "slowdown", 1, max_slowdown));
    cost = slowed_down(std::move(cost), device.slowdown);
  }
  if (const Yaml* machine = fields.find("machine")) {
    ASSIGN_OR_RETURN(device.machine, read_name(source, *machine, "a machine"));
  }
  scenario.cluster.devices.push_back(std::move(device));
  scenario.costs.push_back(std::move(cost));
  return ok_status();
}

Status parse_devices(const Source& source, const Yaml& node, const ScenarioOptions& options, Scenario& scenario) {
  if (!node.is_map()) {
    return source.at(node, "devices must be a map, e.g. {A: {host: a, memory: 8GiB, costs: profile.json}}");
  }
  if (node.keys.empty()) return source.at(node, "at least one device is needed");
  if (node.keys.size() > max_devices) return source.at(node, fmt::format("more than {} devices", max_devices));
  for (size_t i = 0; i < node.keys.size(); ++i) {
    RETURN_IF_ERROR(parse_device(source, node.keys[i], node.items[i], options, scenario));
  }
  return ok_status();
}

Result<HostId> read_link_end(const Source& source, const Yaml& node, const Cluster& cluster) {
  ASSIGN_OR_RETURN(const std::string name, read_text(source, node, "a host or switch"));
  const HostId host = cluster.find_host(name);
  if (host.valid()) return host;
  std::vector<std::string> names;
  for (const Host& known : cluster.hosts) names.push_back(known.name);
  const std::string near = nearest(name, names);
  return source.at(node, fmt::format("unknown host '{}'{} are those that devices, source and sink name, and switches "
                                     "stand under 'switches'",
                                     name, near.empty() ? "; hosts" : fmt::format(": did you mean '{}'? Hosts", near)));
}

bool has_link(const Cluster& cluster, std::string_view name) {
  return std::any_of(cluster.links.begin(), cluster.links.end(), [&](const Link& link) { return link.name == name; });
}

// "a-b", and "a-b.2" for the second one between them.
std::string link_name(const Cluster& cluster, const Link& link) {
  const std::string base = fmt::format("{}-{}", cluster.hosts[link.a.index()].name, cluster.hosts[link.b.index()].name);
  std::string name = base;
  for (int n = 2; has_link(cluster, name); ++n) name = fmt::format("{}.{}", base, n);
  return name;
}

Status parse_ends(const Source& source, const Yaml& node, const Cluster& cluster, Link& link) {
  RETURN_IF_ERROR(expect_list(source, node, "'between', e.g. [a, b],"));
  if (node.items.size() != 2)
    return source.at(node, fmt::format("a link is between 2 hosts, not {}", node.items.size()));
  ASSIGN_OR_RETURN(link.a, read_link_end(source, node.items[0], cluster));
  ASSIGN_OR_RETURN(link.b, read_link_end(source, node.items[1], cluster));
  if (link.a == link.b && cluster.hosts[link.a.index()].is_switch) {
    return source.at(node, fmt::format("a link from switch '{0}' to switch '{0}' carries nothing", node.items[0].text));
  }
  return ok_status();
}

Status parse_link(const Source& source, const Yaml& node, Cluster& cluster) {
  const std::string what = fmt::format("link {}", cluster.links.size() + 1);
  ASSIGN_OR_RETURN(const Fields fields,
                   Fields::open(source, node, what, {"between", "bandwidth", "latency", "duplex", "name"}));
  Link link;
  ASSIGN_OR_RETURN(const Yaml* between, fields.need("between"));
  RETURN_IF_ERROR(parse_ends(source, *between, cluster, link));
  ASSIGN_OR_RETURN(const Yaml* bandwidth, fields.need("bandwidth"));
  ASSIGN_OR_RETURN(link.bandwidth, read_rate(source, *bandwidth, "a bandwidth", parse_bandwidth));
  ASSIGN_OR_RETURN(const Yaml* latency, fields.need("latency"));
  ASSIGN_OR_RETURN(link.latency, read_delay(source, *latency, "a latency"));
  if (const Yaml* duplex = fields.find("duplex")) {
    static constexpr std::array<std::string_view, 2> kinds = {"full", "half"};
    ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, *duplex, "duplex", kinds));
    link.full_duplex = chosen == 0;
  }
  if (const Yaml* name = fields.find("name")) {
    ASSIGN_OR_RETURN(link.name, read_name(source, *name, "a link"));
    if (has_link(cluster, link.name)) return source.at(*name, fmt::format("there is already a link '{}'", link.name));
  } else {
    link.name = link_name(cluster, link);
  }
  cluster.links.push_back(std::move(link));
  return ok_status();
}

Status parse_links(const Source& source, const Yaml& node, Cluster& cluster) {
  RETURN_IF_ERROR(expect_list(source, node, "links"));
  if (node.items.size() > max_devices) return source.at(node, fmt::format("more than {} links", max_devices));
  for (const Yaml& item : node.items) RETURN_IF_ERROR(parse_link(source, item, cluster));
  return ok_status();
}

// Hosts must be known by now.
Status parse_network_profile(const Source& source, const Yaml& node, const ScenarioOptions& options, Cluster& cluster) {
  ASSIGN_OR_RETURN(const std::string name, read_text(source, node, "the measurements of a network"));
  const std::string path = beside(source.file, name);
  auto profile = read_network_profile(path);
  if (profile.ok()) {
    apply(*profile, cluster);
    return ok_status();
  }
  Error error = profile.error();
  if (error.kind == ErrorKind::io) {
    if (!options.need_profiles) return ok_status();
    error.message += fmt::format("; measure them with: nlbench network {} -o {}", source.file, path);
  }
  return moved_to(std::move(error), source.location(node), source.line(node.line));
}

Status parse_network(const Source& source, const Yaml& node, const ScenarioOptions& options, Cluster& cluster) {
  ASSIGN_OR_RETURN(const Fields network,
                   Fields::open(source, node, "network", {"eager_limit", "handshake", "nic_window", "profile"}));
  if (const Yaml* limit = network.find("eager_limit")) {
    ASSIGN_OR_RETURN(cluster.eager_limit, read_quantity(source, *limit, parse_size));
  }
  if (const Yaml* handshake = network.find("handshake")) {
    ASSIGN_OR_RETURN(cluster.handshake, read_delay(source, *handshake, "a handshake"));
  }
  if (const Yaml* window = network.find("nic_window")) {
    ASSIGN_OR_RETURN(const int64_t value, read_integer(source, *window, "nic_window", 0, max_window));
    cluster.nic_window = static_cast<int>(value);
  }
  if (const Yaml* profile = network.find("profile")) {
    for (const char* measured : {"eager_limit", "handshake"}) {
      if (const Yaml* given = network.find(measured); given != nullptr && options.need_profiles)
        return source.at(*given, fmt::format("{} is measured: the profile says it", measured));
    }
    return parse_network_profile(source, *profile, options, cluster);
  }
  return ok_status();
}

// A source or sink may be a host without devices, but then links lead to it; else it is a misspelt name.
Status check_endpoint(const Source& source, const Yaml& node, HostId host, const Cluster& cluster) {
  std::vector<std::string> others;
  for (const Device& device : cluster.devices) {
    if (device.host == host) return ok_status();
    others.push_back(cluster.hosts[device.host.index()].name);
  }
  for (const Link& link : cluster.links) {
    if (link.a == host || link.b == host) return ok_status();
  }
  const std::string near = nearest(node.text, others);
  return source.at(node, fmt::format("unknown host '{}': no device is on it and no link leads to it{}", node.text,
                                     near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
}

// Devices of one host that could not exchange anything. At the second one's key.
Status check_shared_hosts(const Source& source, const Yaml& devices, const Cluster& cluster) {
  std::map<HostId, size_t> first;
  for (size_t i = 0; i < cluster.devices.size(); ++i) {
    const HostId host = cluster.devices[i].host;
    const auto [at, is_first] = first.emplace(host, i);
    if (is_first || find_route(cluster, host, host).ok()) continue;
    return source.at(
        devices.keys[i],
        fmt::format("devices '{}' and '{}' are both on host '{}', but no link says how fast they exchange "
                    "data: add {{between: [{}, {}], bandwidth: ..., latency: ...}}",
                    cluster.devices[at->second].name, cluster.devices[i].name, cluster.hosts[host.index()].name,
                    cluster.hosts[host.index()].name, cluster.hosts[host.index()].name));
  }
  return ok_status();
}

}  // namespace

Status parse_cluster(const Source& source, const Fields& root, const ScenarioOptions& options, Scenario& scenario) {
  Cluster& cluster = scenario.cluster;
  if (const Yaml* switches = root.find("switches")) {
    RETURN_IF_ERROR(parse_switches(source, *switches, cluster));
  }
  ASSIGN_OR_RETURN(const Yaml* devices, root.need("devices"));
  RETURN_IF_ERROR(parse_devices(source, *devices, options, scenario));
  ASSIGN_OR_RETURN(const Yaml* from, root.need("source"));
  ASSIGN_OR_RETURN(scenario.endpoints.source, read_host(source, *from, cluster));
  ASSIGN_OR_RETURN(const Yaml* to, root.need("sink"));
  ASSIGN_OR_RETURN(scenario.endpoints.sink, read_host(source, *to, cluster));
  const Yaml* links = root.find("links");
  if (links != nullptr) {
    RETURN_IF_ERROR(parse_links(source, *links, cluster));
  }
  if (const Yaml* network = root.find("network")) {
    RETURN_IF_ERROR(parse_network(source, *network, options, cluster));
  }
  RETURN_IF_ERROR(check_endpoint(source, *from, scenario.endpoints.source, cluster));
  RETURN_IF_ERROR(check_endpoint(source, *to, scenario.endpoints.sink, cluster));
  RETURN_IF_ERROR(check_shared_hosts(source, *devices, cluster));

  std::vector<HostId> hosts = {scenario.endpoints.source, scenario.endpoints.sink};
  for (const Device& device : cluster.devices) hosts.push_back(device.host);
  const Status connected = check_connected(cluster, hosts);
  if (!connected.ok()) return source.at(links != nullptr ? *links : root.map(), connected.error());
  return ok_status();
}

}  // namespace nlsplit
