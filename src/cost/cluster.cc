#include "cost/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/text_reader.h"

namespace nlsplit {

namespace {

constexpr int unreached = std::numeric_limits<int>::max();

// How far a host is from where a route ends.
struct Distance {
  int hops = unreached;
  double latency = 0;
};

HostId other_end(const Link& link, HostId host) { return link.a == host ? link.b : link.a; }
bool touches(const Link& link, HostId host) { return link.a == host || link.b == host; }

// Bellman and Ford over levels: after round h every host at most h hops away knows its hops and its lowest latency at
// so many.
std::vector<Distance> distances_to(const Cluster& cluster, HostId to) {
  std::vector<Distance> distance(cluster.hosts.size());
  distance[to.index()].hops = 0;
  bool changed = true;
  for (int round = 1; changed; ++round) {
    changed = false;
    const auto relax = [&](const Link& link, HostId from, HostId via) {
      const Distance& next = distance[via.index()];
      Distance& here = distance[from.index()];
      if (next.hops != round - 1 || here.hops < round) return;
      const double latency = next.latency + link.latency.value();
      if (here.hops == unreached || latency < here.latency) {
        here = {round, latency};
        changed = true;
      }
    };
    for (const Link& link : cluster.links) {
      relax(link, link.a, link.b);
      relax(link, link.b, link.a);
    }
  }
  return distance;
}

void append_hop(Route& route, const Cluster& cluster, LinkId id, HostId from) {
  const Link& link = cluster.links[id.index()];
  route.narrowest = route.hops.empty() ? link.bandwidth : std::min(route.narrowest, link.bandwidth);
  route.eager.latency += link.latency;
  route.hops.push_back({id, link.a == from});
}

Result<Route> route_within(const Cluster& cluster, HostId host) {
  std::optional<size_t> best;
  for (size_t i = 0; i < cluster.links.size(); ++i) {
    const Link& link = cluster.links[i];
    if (link.a != host || link.b != host) continue;
    if (!best || link.latency < cluster.links[*best].latency) best = i;
  }
  const std::string& name = cluster.hosts[host.index()].name;
  if (!best) {
    return invalid_input(
        fmt::format("devices of host '{0}' exchange data, but no link says how: add one between [{0}, {0}]", name));
  }
  Route route;
  append_hop(route, cluster, LinkId(*best), host);
  return route;
}

Error not_connected(const Cluster& cluster, HostId a, HostId b) {
  return invalid_input(fmt::format("no links connect host '{}' with host '{}'", cluster.hosts[a.index()].name,
                                   cluster.hosts[b.index()].name));
}

Route with_costs(const Cluster& cluster, Route route) {
  route.eager.bandwidth = route.rendezvous.bandwidth = route.narrowest;
  route.rendezvous.latency = route.eager.latency + cluster.handshake;
  return route;
}

}  // namespace

std::string_view name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::host:
      return "host";
  }
  CHECK(false, "a device kind without a name");
}

Result<DeviceKind> parse_device_kind(std::string_view text) {
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::host}) {
    if (name_of(kind) == text) return kind;
  }
  if (text == "cuda") return unsupported("devices of kind 'cuda' are not supported yet; 'cpu' is");
  return invalid_input(fmt::format("unknown device kind '{}'; 'cpu' is supported", text));
}

DeviceId Cluster::find_device(std::string_view name) const {
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].name == name) return DeviceId(i);
  }
  return DeviceId();
}

HostId Cluster::find_host(std::string_view name) const {
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i].name == name) return HostId(i);
  }
  return HostId();
}

Result<Route> find_path(const Cluster& cluster, HostId from, HostId to) {
  CHECK(from.valid() && from.index() < cluster.hosts.size(), "route from an unknown host");
  CHECK(to.valid() && to.index() < cluster.hosts.size(), "route to an unknown host");
  if (from == to) {
    ASSIGN_OR_RETURN(Route within, route_within(cluster, from));
    return with_costs(cluster, std::move(within));
  }

  const std::vector<Distance> distance = distances_to(cluster, to);
  if (distance[from.index()].hops == unreached) return not_connected(cluster, from, to);
  Route route;
  for (HostId at = from; at != to;) {
    // The first link, in their order, that lies on a best route.
    std::optional<size_t> best;
    double best_latency = 0;
    for (size_t i = 0; i < cluster.links.size(); ++i) {
      const Link& link = cluster.links[i];
      if (!touches(link, at)) continue;
      const Distance& next = distance[other_end(link, at).index()];
      if (next.hops != distance[at.index()].hops - 1) continue;
      const double latency = next.latency + link.latency.value();
      if (!best || latency < best_latency) {
        best = i;
        best_latency = latency;
      }
    }
    CHECK(best.has_value(), "a host with a distance but no link towards the destination");
    append_hop(route, cluster, LinkId(*best), at);
    at = other_end(cluster.links[*best], at);
  }
  return with_costs(cluster, std::move(route));
}

Result<Route> find_route(const Cluster& cluster, HostId from, HostId to) {
  ASSIGN_OR_RETURN(Route route, find_path(cluster, from, to));
  if (cluster.ways.empty()) return route;
  const auto way = std::ranges::find_if(cluster.ways, [&](const Way& w) { return w.from == from && w.to == to; });
  if (way == cluster.ways.end()) {
    return invalid_input(
        fmt::format("{} has no measurement of messages from host '{}' to host '{}'; nlbench network makes them all",
                    cluster.network_profile, cluster.hosts[from.index()].name, cluster.hosts[to.index()].name));
  }
  route.eager = way->eager;
  route.rendezvous = way->rendezvous;
  route.overheads = way->overheads;
  return route;
}

Status check_connected(const Cluster& cluster, const std::vector<HostId>& hosts) {
  if (hosts.empty()) return ok_status();
  const std::vector<Distance> distance = distances_to(cluster, hosts.front());
  for (const HostId host : hosts) {
    if (distance[host.index()].hops == unreached) return not_connected(cluster, hosts.front(), host);
  }
  return ok_status();
}

}  // namespace nlsplit
