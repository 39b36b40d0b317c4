// The devices of a scenario and what is within their hosts.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/limits.h"
#include "base/name_range.h"
#include "scenario/parse_cluster.h"

namespace nlsplit::inline scenario {

namespace {

constexpr int64_t max_on_host = 1024;

Result<DeviceKind> read_kind(const Source& source, const Yaml& node) {
  ASSIGN_OR_RETURN(const std::string text, read_text(source, node, "a device kind"));
  auto kind = parse_device_kind(text);
  if (!kind.ok()) return source.at(node, kind.error());
  if (*kind == DeviceKind::host) return source.at(node, "unknown device kind 'host'; 'cpu' and 'cuda' are supported");
  return kind;
}

// How a GPU multiplies.
Status parse_precision(const Source& source, const Fields& fields, Device& device) {
  if (device.kind == DeviceKind::cuda) device.level = Isa::cuda;
  const Yaml* precision = fields.find("precision");
  if (precision == nullptr) return ok_status();
  if (device.kind != DeviceKind::cuda)
    return source.at(*precision, "'precision' is for devices of kind cuda; a CPU computes in float32");
  std::vector<std::string_view> words;
  for (const Level level : gpu_levels()) words.push_back(name_of(level.precision));
  ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, *precision, "precision", words));
  device.level = gpu_levels()[chosen];
  return ok_status();
}

// All but where it is.
Status parse_figures(const Source& source, const Fields& fields, const ScenarioOptions& options, Device& device,
                     CostSourcePtr& cost) {
  if (const Yaml* kind = fields.find("kind")) {
    ASSIGN_OR_RETURN(device.kind, read_kind(source, *kind));
  }
  if (const Yaml* cores = fields.find("cores")) {
    ASSIGN_OR_RETURN(const int64_t count, read_integer(source, *cores, "cores", 1, most_cores));
    device.cores = static_cast<int>(count);
  }
  ASSIGN_OR_RETURN(const Yaml* memory, fields.need("memory"));
  ASSIGN_OR_RETURN(device.memory, read_quantity(source, *memory, parse_size));
  if (device.memory == bytes(0)) return source.at(*memory, "a device without memory can hold no layer");
  if (const Yaml* isa = fields.find("isa")) {
    ASSIGN_OR_RETURN(const std::string text, read_text(source, *isa, "an instruction level"));
    auto level = parse_level(text);
    if (!level.ok()) return source.at(*isa, level.error());
    if (device.kind == DeviceKind::cuda)
      return source.at(*isa, "a GPU has no instruction level; 'precision' says how it computes");
    if (is_gpu(level->isa)) return source.at(*isa, fmt::format("'{}' is a GPU's level; write kind: cuda", text));
    device.level = *level;
  }
  RETURN_IF_ERROR(parse_precision(source, fields, device));
  ASSIGN_OR_RETURN(const Yaml* costs, fields.need("costs"));
  ASSIGN_OR_RETURN(cost, parse_costs(source, *costs, options));
  if (const Yaml* slowdown = fields.find("slowdown")) {
    ASSIGN_OR_RETURN(device.slowdown, read_number(source, *slowdown, "slowdown", 1, max_slowdown));
    cost = cost->by_clock(device.slowdown);
  }
  if (const Yaml* machine = fields.find("machine")) {
    ASSIGN_OR_RETURN(device.machine, read_name(source, *machine, "a machine"));
  }
  return ok_status();
}

// What `hosts` names: all, or a list of hosts and ranges of them.
Result<std::vector<HostId>> read_hosts(const Source& source, const Yaml& node, const ParsedTopology& topology,
                                       Cluster& cluster) {
  if (node.is_scalar() && node.text == "all") {
    if (topology.node == nullptr)
      return source.at(node, "'all' means the hosts of a topology, and there is none; list the hosts, e.g. [a, b]");
    if (topology.file.empty()) return topology.hosts;
    std::vector<HostId> hosts;
    for (const std::string& name : topology.file_hosts) {
      Yaml named = node;
      named.text = name;
      ASSIGN_OR_RETURN(const HostId host, read_host(source, named, cluster));
      hosts.push_back(host);
    }
    return hosts;
  }
  const std::vector<Yaml> single = {node};
  std::vector<HostId> hosts;
  for (const Yaml& item : node.is_list() ? node.items : single) {
    Yaml named = item;
    NameRange range;
    const bool is_range = item.is_scalar() && item.text.find("..") != std::string::npos;
    if (is_range) {
      const auto read = parse_name_range(item.text);
      if (!read)
        return source.at(item, fmt::format("'{}' is not a range of hosts; h0..h7 is one, from h0 to h7", item.text));
      range = *read;
      if (range.last - range.first >= max_devices - std::ssize(hosts))
        return source.at(item, fmt::format("'{}' means more than {} hosts", item.text, max_devices));
    }
    for (int64_t n = range.first; n <= range.last; ++n) {
      if (is_range) named.text = range.name(n);
      ASSIGN_OR_RETURN(const HostId host, read_host(source, named, cluster));
      if (std::ranges::find(hosts, host) != hosts.end())
        return source.at(item, fmt::format("host '{}' is given twice", named.text));
      if (std::ssize(hosts) == max_devices) return source.at(item, fmt::format("more than {} hosts", max_devices));
      hosts.push_back(host);
    }
  }
  if (hosts.empty()) return source.at(node, "at least one host is needed");
  return hosts;
}

// What the scenario says; else, of a GPU, what was measured with its costs, if it was.
Result<std::optional<Bus>> parse_bus(const Source& source, const Yaml* given, const Device& device,
                                     const CostSource& costs) {
  if (given == nullptr) {
    const Profile* profile = costs.profile();
    if (device.kind != DeviceKind::cuda || profile == nullptr || !profile->copies) return std::optional<Bus>();
    return std::optional<Bus>(bus_of(profile->copies->pinned));
  }
  const Yaml& node = *given;
  if (node.is_scalar() && node.text == "none") return std::optional<Bus>();
  Bus bus;
  ASSIGN_OR_RETURN(const Fields fields,
                   Fields::open(source, node, "bus", {"bandwidth", "latency", "duplex", "shared"}));
  ASSIGN_OR_RETURN(bus.link, read_link_spec(source, fields));
  if (const Yaml* shared = fields.find("shared")) {
    static constexpr std::array<std::string_view, 2> words = {"false", "true"};
    ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, *shared, "value of shared", words));
    bus.shared = chosen == 1;
  }
  return std::optional<Bus>(bus);
}

Result<Peers> parse_peers(const Source& source, const Yaml& node) {
  Peers peers;
  ASSIGN_OR_RETURN(const Fields fields,
                   Fields::open(source, node, "peers", {"kind", "bandwidth", "latency", "duplex"}));
  static constexpr std::array<std::string_view, 2> kinds = {"mesh", "switch"};
  ASSIGN_OR_RETURN(const Yaml* kind, fields.need("kind"));
  ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, *kind, "kind of peers", kinds));
  peers.by_switch = chosen == 1;
  ASSIGN_OR_RETURN(peers.link, read_link_spec(source, fields));
  return peers;
}

// One line: a device, or with `hosts` or `count` many alike.
Status parse_line(const Source& source, const Yaml& key, const Yaml& node, const ScenarioOptions& options,
                  const ParsedTopology& topology, Scenario& scenario, ParsedDevices& parsed) {
  Cluster& cluster = scenario.cluster;
  ASSIGN_OR_RETURN(const std::string name, read_name(source, key, "a device"));
  ASSIGN_OR_RETURN(const Fields fields, Fields::open(source, node, fmt::format("device '{}'", name),
                                                     {"host", "hosts", "count", "kind", "cores", "memory", "isa",
                                                      "precision", "costs", "slowdown", "machine", "bus", "peers"}));
  const Yaml* many = fields.find("hosts");
  const Yaml* count = fields.find("count");
  std::vector<HostId> hosts;
  if (many != nullptr) {
    if (const Yaml* host = fields.find("host")) return source.at(*host, "a device has either 'host' or 'hosts'");
    ASSIGN_OR_RETURN(hosts, read_hosts(source, *many, topology, cluster));
  } else {
    ASSIGN_OR_RETURN(const Yaml* host, fields.need("host"));
    ASSIGN_OR_RETURN(const HostId one, read_host(source, *host, cluster));
    hosts = {one};
  }
  int64_t each = 1;
  if (count != nullptr) {
    ASSIGN_OR_RETURN(each, read_integer(source, *count, "count", 1, max_on_host));
  }
  if (cluster.devices.size() + hosts.size() * static_cast<size_t>(each) > max_devices)
    return source.at(key, fmt::format("more than {} devices", max_devices));
  Device device;
  CostSourcePtr cost;
  RETURN_IF_ERROR(parse_figures(source, fields, options, device, cost));
  if (scenario.generation && device.kind == DeviceKind::cuda)
    return source.at(
        *fields.find("kind"),
        unsupported("text is generated on CPUs only: a GPU has no kernels for the caches of keys and values"));
  ASSIGN_OR_RETURN(const std::optional<Bus> bus, parse_bus(source, fields.find("bus"), device, *cost));
  const Yaml* peers = fields.find("peers");
  if (peers != nullptr && !bus)
    return source.at(*peers, "devices with 'peers' need a 'bus' too: how else would data come from the host?");
  InnerNetwork inner;
  inner.name = name;
  if (bus) inner.bus = *bus;
  if (peers != nullptr) {
    ASSIGN_OR_RETURN(inner.peers, parse_peers(source, *peers));
  }
  int64_t number = 0;
  for (const HostId host : hosts) {
    inner.host = host;
    inner.devices.clear();
    for (int64_t k = 0; k < each; ++k, ++number) {
      device.name = many != nullptr || count != nullptr ? fmt::format("{}{}", name, number) : name;
      device.host = host;
      if (bus) {
        device.host = HostId(cluster.hosts.size());
        cluster.hosts.push_back({fmt::format("{}.{}", cluster.hosts[host.index()].name, device.name), false, host});
        inner.devices.push_back(device.host);
      }
      cluster.devices.push_back(device);
      scenario.costs.push_back(cost);
      parsed.keys.push_back(&key);
    }
    if (bus) parsed.inner.push_back(inner);
  }
  return ok_status();
}

}  // namespace

Result<HostId> read_host(const Source& source, const Yaml& node, Cluster& cluster) {
  ASSIGN_OR_RETURN(const std::string name, read_name(source, node, "a host"));
  const HostId known = cluster.find_host(name);
  if (!known.valid()) {
    cluster.hosts.push_back({name, false});
    return HostId(cluster.hosts.size() - 1);
  }
  if (cluster.hosts[known.index()].is_switch) {
    return source.at(node, fmt::format("'{}' is a switch: it forwards, and holds no device, source or sink", name));
  }
  return known;
}

Result<ParsedDevices> parse_devices(const Source& source, const Yaml& node, const ScenarioOptions& options,
                                    const ParsedTopology& topology, Scenario& scenario) {
  if (!node.is_map()) {
    return source.at(node, "devices must be a map, e.g. {A: {host: a, memory: 8GiB, costs: profile.json}}");
  }
  if (node.keys.empty()) return source.at(node, "at least one device is needed");
  ParsedDevices parsed;
  for (size_t i = 0; i < node.keys.size(); ++i) {
    RETURN_IF_ERROR(parse_line(source, node.keys[i], node.items[i], options, topology, scenario, parsed));
  }
  return parsed;
}

}  // namespace nlsplit::inline scenario
