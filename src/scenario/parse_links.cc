// Switches, links and the network's own figures.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "base/text_reader.h"
#include "cost/network_profile.h"
#include "scenario/parse_cluster.h"

namespace nlsplit::inline scenario {

namespace {

constexpr double max_delay = 3600;  // s
constexpr int64_t max_window = 1'000'000;

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

// Of the links so far.
struct LinkNames {
  std::unordered_set<std::string> taken;
  std::unordered_map<std::string, int> next;  // number to try for a name that is taken
};

// "a-b", and "a-b.2" for the second one between them.
std::string link_name(const Cluster& cluster, const Link& link, LinkNames& names) {
  const std::string base = fmt::format("{}-{}", cluster.hosts[link.a.index()].name, cluster.hosts[link.b.index()].name);
  std::string name = base;
  int& n = names.next.try_emplace(base, 2).first->second;
  for (; !names.taken.insert(name).second; ++n) name = fmt::format("{}.{}", base, n);
  return name;
}

bool is_of_fabric(const Cluster& cluster, HostId host) {
  return std::any_of(cluster.links.begin(), cluster.links.begin() + static_cast<std::ptrdiff_t>(cluster.fabric_links),
                     [&](const Link& link) { return link.a == host || link.b == host; });
}

Status parse_ends(const Source& source, const Yaml& node, const Cluster& cluster, Link& link) {
  RETURN_IF_ERROR(expect_list(source, node, "'between', e.g. [a, b],"));
  if (node.items.size() != 2)
    return source.at(node, fmt::format("a link is between 2 hosts, not {}", node.items.size()));
  ASSIGN_OR_RETURN(link.a, read_link_end(source, node.items[0], cluster));
  ASSIGN_OR_RETURN(link.b, read_link_end(source, node.items[1], cluster));
  for (size_t end = 0; end < 2; ++end) {
    const HostId host = end == 0 ? link.a : link.b;
    if (!cluster.hosts[host.index()].is_switch || !is_of_fabric(cluster, host)) continue;
    return source.at(node.items[end],
                     fmt::format("switch '{}' is a part of the topology, whose routes lead between its hosts: links go "
                                 "to one of these",
                                 node.items[end].text));
  }
  if (link.a == link.b && cluster.hosts[link.a.index()].is_switch) {
    return source.at(node, fmt::format("a link from switch '{0}' to switch '{0}' carries nothing", node.items[0].text));
  }
  return ok_status();
}

Status parse_link(const Source& source, const Yaml& node, size_t number, Cluster& cluster, LinkNames& names) {
  const std::string what = fmt::format("link {}", number);
  ASSIGN_OR_RETURN(const Fields fields,
                   Fields::open(source, node, what, {"between", "bandwidth", "latency", "duplex", "name"}));
  Link link;
  ASSIGN_OR_RETURN(const Yaml* between, fields.need("between"));
  RETURN_IF_ERROR(parse_ends(source, *between, cluster, link));
  ASSIGN_OR_RETURN(const LinkSpec spec, read_link_spec(source, fields));
  link.bandwidth = spec.bandwidth;
  link.latency = spec.latency;
  link.full_duplex = spec.full_duplex;
  if (const Yaml* name = fields.find("name")) {
    ASSIGN_OR_RETURN(link.name, read_name(source, *name, "a link"));
    if (!names.taken.insert(link.name).second)
      return source.at(*name, fmt::format("there is already a link '{}'", link.name));
  } else {
    link.name = link_name(cluster, link, names);
  }
  cluster.links.push_back(std::move(link));
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
  if (!options.need_profiles) return ok_status();  // also one of another version: it is about to be replaced
  Error error = profile.error();
  if (error.kind == ErrorKind::io) {
    error.message += fmt::format("; measure them with: nlbench network {} -o {}", source.file, path);
  }
  return moved_to(std::move(error), source.location(node), source.line(node.line));
}

}  // namespace

Result<Seconds> read_delay(const Source& source, const Yaml& node, std::string_view what) {
  ASSIGN_OR_RETURN(const Seconds delay, read_quantity(source, node, parse_time));
  if (delay.value() > max_delay) return source.at(node, fmt::format("{} of more than an hour cannot be", what));
  return delay;
}

Result<LinkSpec> read_link_spec(const Source& source, const Fields& fields) {
  LinkSpec link;
  ASSIGN_OR_RETURN(const Yaml* bandwidth, fields.need("bandwidth"));
  ASSIGN_OR_RETURN(link.bandwidth, read_rate(source, *bandwidth, "a bandwidth", parse_bandwidth));
  ASSIGN_OR_RETURN(const Yaml* latency, fields.need("latency"));
  ASSIGN_OR_RETURN(link.latency, read_delay(source, *latency, "a latency"));
  if (const Yaml* duplex = fields.find("duplex")) {
    static constexpr std::array<std::string_view, 2> kinds = {"full", "half"};
    ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, *duplex, "duplex", kinds));
    link.full_duplex = chosen == 0;
  }
  return link;
}

Result<LinkSpec> read_link_spec(const Source& source, const Yaml& node, std::string_view what) {
  ASSIGN_OR_RETURN(const Fields fields,
                   Fields::open(source, node, std::string(what), {"bandwidth", "latency", "duplex"}));
  return read_link_spec(source, fields);
}

Status parse_switches(const Source& source, const Yaml& node, Cluster& cluster) {
  RETURN_IF_ERROR(expect_list(source, node, "switches"));
  if (node.items.size() > max_devices) return source.at(node, fmt::format("more than {} switches", max_devices));
  for (const Yaml& item : node.items) {
    ASSIGN_OR_RETURN(const std::string name, read_name(source, item, "a switch"));
    if (const HostId known = cluster.find_host(name); known.valid()) {
      return source.at(item, cluster.hosts[known.index()].is_switch
                                 ? fmt::format("switch '{}' is given twice", name)
                                 : fmt::format("'{}' is a host of the topology", name));
    }
    cluster.hosts.push_back({name, true});
  }
  return ok_status();
}

Status parse_links(const Source& source, const Yaml& node, Cluster& cluster) {
  RETURN_IF_ERROR(expect_list(source, node, "links"));
  if (node.items.size() > max_devices) return source.at(node, fmt::format("more than {} links", max_devices));
  LinkNames names;
  for (const Link& link : cluster.links) names.taken.insert(link.name);
  for (size_t i = 0; i < node.items.size(); ++i)
    RETURN_IF_ERROR(parse_link(source, node.items[i], i + 1, cluster, names));
  return ok_status();
}

Status parse_network(const Source& source, const Yaml& node, const ScenarioOptions& options, bool trains,
                     Cluster& cluster) {
  ASSIGN_OR_RETURN(
      const Fields network,
      Fields::open(source, node, "network", {"eager_limit", "handshake", "nic_window", "profile", "messages"}));
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
  if (const Yaml* messages = network.find("messages")) {
    static constexpr std::array kinds = {DType::f32, DType::f16, DType::bf16, DType::q8_0};
    static constexpr std::array<std::string_view, kinds.size()> names = {"f32", "f16", "bf16", "q8"};
    ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, *messages, "messages", names));
    cluster.messages = kinds.at(chosen);
    if (trains && cluster.messages != DType::f32 && cluster.messages != DType::bf16)
      return source.at(*messages, fmt::format("messages: {} is for inference: gradients have the range of f32, and "
                                              "travel as f32 or bf16",
                                              names.at(chosen)));
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

}  // namespace nlsplit::inline scenario
