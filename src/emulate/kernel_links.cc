#include "emulate/kernel_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "emulate/namespaces.h"
#include "emulate/netlink.h"
#include "emulate/packet_switch.h"
#include "emulate/places.h"
#include "emulate/port.h"

namespace nlsplit::inline emulation {
namespace {

// As Ethernet has it: the largest frame with its header, which token buckets count too.
constexpr int mtu = 1500;
constexpr uint32_t largest_frame = mtu + 14;
// A bucket that holds two frames loses no bandwidth while the kernel's timer is late by less than one.
constexpr uint32_t least_burst = 2 * largest_frame;
// The timer is late by some microseconds, and by then a fast link wants more than two frames.
constexpr double timer_slack_s = 100e-6;
// Of a port, as small Ethernet switches have: what does not fit is thrown away, and TCP sends it again.
constexpr uint32_t port_queue = 512 << 10;

Error cannot(const std::string& what) {
  return unsupported(fmt::format("--links kernel: {}; without that option links of any kind are emulated", what));
}

Status check(const Cluster& cluster, const Link& link) {
  if (!link.a.valid() || !link.b.valid()) return cannot(fmt::format("link '{}' has no ends", link.name));
  const std::string between =
      fmt::format("the link between {} and {}", cluster.hosts[link.a.index()].name, cluster.hosts[link.b.index()].name);
  if (!link.full_duplex) return cannot(between + " is half duplex, and each end of a cable has a bandwidth of its own");
  if (link.medium.valid()) return cannot(between + " shares its bandwidth with others");
  return ok_status();
}

class Builder {
 public:
  Builder(const Cluster& cluster, const EmulatedNetwork& network) : cluster_(cluster), network_(network) {}

  Result<KernelLinks> build() {
    RETURN_IF_ERROR(name_nodes());
    for (size_t from = 0; from < network_.places.size(); ++from) {
      for (size_t to = 0; to < network_.places.size(); ++to) {
        if (from != to) RETURN_IF_ERROR(follow(from, to));
      }
    }
    return std::move(links_);
  }

 private:
  Status name_nodes() {
    node_of_.resize(cluster_.hosts.size());
    for (const Place& place : network_.places) {
      const std::string& host = cluster_.hosts[place.host.index()].name;
      if (place.name != host) return cannot(fmt::format("host '{}' has several devices", host));
      node_of_[place.host.index()] = links_.nodes.size();
      links_.nodes.push_back(place.name);
    }
    for (size_t h = 0; h < cluster_.hosts.size(); ++h) {
      if (!cluster_.hosts[h].is_switch) continue;
      node_of_[h] = links_.nodes.size();
      links_.nodes.push_back(cluster_.hosts[h].name);
    }
    own_wire_.assign(network_.places.size(), none);
    links_.places = network_.places.size();
    return ok_status();
  }

  Status follow(size_t from, size_t to) {
    ASSIGN_OR_RETURN(const Route route, find_path(cluster_, network_.places[from].host, network_.places[to].host));
    HostId at = network_.places[from].host;
    for (const Hop& hop : route.hops) {
      const Link& link = cluster_.links[hop.link.index()];
      RETURN_IF_ERROR(check(cluster_, link));
      const size_t wire = wire_of(hop.link), node = node_of_[at.index()];
      const HostId next = hop.forward ? link.b : link.a;
      RETURN_IF_ERROR(node < network_.places.size() ? leave_place(node, from, wire) : leave_switch(node, to, wire));
      at = next;
    }
    const size_t last = wire_of(route.hops.back().link);
    return use_wire(to, last);
  }

  size_t wire_of(LinkId link) {
    const auto [found, is_new] = wires_.emplace(link.index(), links_.wires.size());
    if (is_new) {
      const Link& of = cluster_.links[link.index()];
      links_.wires.push_back({node_of_[of.a.index()], node_of_[of.b.index()], of.bandwidth.value()});
    }
    return found->second;
  }

  Status leave_place(size_t node, size_t from, size_t wire) {
    if (node != from) return cannot(fmt::format("host '{}' forwards what others send", links_.nodes[node]));
    return use_wire(node, wire);
  }

  Status use_wire(size_t place, size_t wire) {
    if (own_wire_[place] != none && own_wire_[place] != wire)
      return cannot(fmt::format("host '{}' has several links", links_.nodes[place]));
    own_wire_[place] = wire;
    return ok_status();
  }

  Status leave_switch(size_t node, size_t to, size_t wire) {
    const auto [found, is_new] = ways_.emplace(std::pair{node, to}, wire);
    if (is_new) links_.ways.push_back({node, to, wire});
    if (found->second == wire) return ok_status();
    return cannot(fmt::format("routes to '{}' part at '{}', which forwards by destination alone", links_.nodes[to],
                              links_.nodes[node]));
  }

  static constexpr size_t none = ~size_t{0};
  const Cluster& cluster_;
  const EmulatedNetwork& network_;
  KernelLinks links_;
  std::vector<size_t> node_of_;                       // by host
  std::vector<size_t> own_wire_;                      // by place
  std::map<size_t, size_t> wires_;                    // by link
  std::map<std::pair<size_t, size_t>, size_t> ways_;  // switch and place: wire
};

std::string interface_of(size_t node, size_t wire, size_t places) {
  return node < places ? port_interface : fmt::format("w{}", wire);
}

Status raise_end(size_t node, const std::string& name, bool is_place, double rate) {
  InterfaceOptions options;
  options.mtu = mtu;
  options.needs_neighbours = false;
  if (is_place) options.address = first_address + static_cast<uint32_t>(node);
  RETURN_IF_ERROR(raise_interface(name, options));
  const auto burst = std::max(least_burst, static_cast<uint32_t>(rate * timer_slack_s));
  const Status shaped = add_token_bucket(name, {static_cast<uint64_t>(rate), burst, port_queue});
  if (shaped.ok()) return ok_status();
  return cannot(shaped.error().message + ", and Linux needs CONFIG_NET_SCH_TBF (module sch_tbf) for it");
}

}  // namespace

Result<KernelLinks> kernel_links(const Cluster& cluster, const EmulatedNetwork& network) {
  return Builder(cluster, network).build();
}

Status make_kernel_links(const KernelLinks& links) {
  const size_t hosts = links.places;
  NetworkSettings settings;
  for (size_t node = 0; node < links.nodes.size(); ++node) {
    RETURN_IF_ERROR(make_namespace(links.nodes[node]));
    settings.set("ipv6/conf/all/disable_ipv6", "1");
    if (node < hosts) continue;
    settings.set("ipv4/ip_forward", "1");
    settings.set("ipv4/conf/all/send_redirects", "0");
    settings.set("ipv4/conf/default/send_redirects", "0");
  }
  for (size_t w = 0; w < links.wires.size(); ++w) {
    const auto& [a, b, rate] = links.wires[w];
    ASSIGN_OR_RETURN(const Descriptor other, open_namespace(links.nodes[b]));
    RETURN_IF_ERROR(enter_namespace(links.nodes[a]));
    RETURN_IF_ERROR(add_veth(interface_of(a, w, hosts), interface_of(b, w, hosts), other.get()));
    RETURN_IF_ERROR(raise_end(a, interface_of(a, w, hosts), a < hosts, rate));
    RETURN_IF_ERROR(enter_namespace(links.nodes[b]));
    RETURN_IF_ERROR(raise_end(b, interface_of(b, w, hosts), b < hosts, rate));
  }
  for (const KernelLinks::Way& way : links.ways) {
    RETURN_IF_ERROR(enter_namespace(links.nodes[way.node]));
    RETURN_IF_ERROR(
        add_route_to(first_address + static_cast<uint32_t>(way.to), interface_of(way.node, way.wire, hosts)));
  }
  settings.report();
  return ok_status();
}

}  // namespace nlsplit::inline emulation
