// Ways through a cluster. Bellman and Ford by levels, over the few links that can be on a way: those within the two
// hosts and those outside; a fabric's own routes are arithmetic (cost/fabric.h).
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "cost/cluster.h"

namespace nlsplit::inline cost {
namespace {

constexpr int unreached = std::numeric_limits<int>::max();

struct Distance {
  int hops = unreached;
  double latency = 0;
};

bool nearer(const Distance& a, const Distance& b) { return a.hops != b.hops ? a.hops < b.hops : a.latency < b.latency; }

HostId other_end(const Link& link, HostId host) { return link.a == host ? link.b : link.a; }
bool touches(const Link& link, HostId host) { return link.a == host || link.b == host; }

HostId body_of(const Cluster& cluster, HostId host) {
  const HostId inside = cluster.hosts[host.index()].inside;
  return inside.valid() ? inside : host;
}

// Ascending. Links within other hosts than these two, and the fabric's, are on none of our ways.
std::vector<uint32_t> links_that_matter(const Cluster& cluster, HostId from, HostId to) {
  std::vector<uint32_t> links;
  const auto add = [&](LinkRange range) {
    for (size_t l = range.first; l < range.first + range.count; ++l) {
      if (cluster.links[l].a.valid() && cluster.links[l].a != cluster.links[l].b)
        links.push_back(static_cast<uint32_t>(l));
    }
  };
  add({cluster.fabric_links, cluster.links.size() - cluster.inner_links - cluster.fabric_links});
  if (cluster.inner.empty()) return links;
  const size_t a = body_of(cluster, from).index(), b = body_of(cluster, to).index();
  add(cluster.inner[std::min(a, b)]);
  if (a != b) add(cluster.inner[std::max(a, b)]);
  return links;
}

// After round h every host at most h hops away knows its hops and its lowest latency at so many.
std::vector<Distance> distances_to(const Cluster& cluster, const std::vector<uint32_t>& links, HostId to) {
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
    for (const uint32_t l : links) {
      const Link& link = cluster.links[l];
      relax(link, link.a, link.b);
      relax(link, link.b, link.a);
    }
  }
  return distance;
}

void append_hop(Route& route, const Cluster& cluster, const Hop& hop) {
  const Link& link = cluster.links[hop.link.index()];
  route.eager.latency += link.latency;
  route.hops.push_back(link.medium.valid() ? Hop{link.medium, true} : hop);
}

// Along the best links, the first of equals, to where `distance` counts from.
void append_way(Route& route, const Cluster& cluster, const std::vector<uint32_t>& links,
                const std::vector<Distance>& distance, HostId from) {
  for (HostId at = from; distance[at.index()].hops > 0;) {
    std::optional<uint32_t> best;
    double best_latency = 0;
    for (const uint32_t l : links) {
      const Link& link = cluster.links[l];
      if (!touches(link, at)) continue;
      const Distance& next = distance[other_end(link, at).index()];
      if (next.hops != distance[at.index()].hops - 1) continue;
      const double latency = next.latency + link.latency.value();
      if (!best || latency < best_latency) {
        best = l;
        best_latency = latency;
      }
    }
    CHECK(best.has_value(), "a host with a distance but no link towards the destination");
    append_hop(route, cluster, {LinkId(*best), cluster.links[*best].a == at});
    at = other_end(cluster.links[*best], at);
  }
}

// A way that enters the fabric at one host and leaves it at another.
struct Crossing {
  Distance length;
  HostId in, out;
  std::vector<Hop> hops;
};

// The shortest of them, if it is no longer than `direct`.
std::optional<Crossing> best_crossing(const Cluster& cluster, const std::vector<Distance>& from_start,
                                      const std::vector<Distance>& to_end, const Distance& direct) {
  std::vector<HostId> in, out;
  for (size_t h = 0; h < cluster.hosts.size(); ++h) {
    if (cluster.hosts[h].number < 0) continue;
    if (from_start[h].hops != unreached) in.push_back(HostId(h));
    if (to_end[h].hops != unreached) out.push_back(HostId(h));
  }
  std::optional<Crossing> best;
  for (const HostId a : in) {
    for (const HostId b : out) {
      if (a == b) continue;
      std::vector<Hop> hops = fabric_route(cluster.fabric, static_cast<size_t>(cluster.hosts[a.index()].number),
                                           static_cast<size_t>(cluster.hosts[b.index()].number));
      if (hops.empty()) continue;
      Distance length{from_start[a.index()].hops + static_cast<int>(hops.size()) + to_end[b.index()].hops,
                      from_start[a.index()].latency + to_end[b.index()].latency};
      for (const Hop& hop : hops) length.latency += cluster.links[hop.link.index()].latency.value();
      if (nearer(direct, length) || (best && !nearer(length, best->length))) continue;
      best = Crossing{length, a, b, std::move(hops)};
    }
  }
  return best;
}

Route with_costs(const Cluster& cluster, Route route) {
  for (const Hop& hop : route.hops) {
    const auto times = static_cast<double>(std::ranges::count(route.hops, hop));
    const BytesPerSecond bandwidth = cluster.links[hop.link.index()].bandwidth;
    const BytesPerSecond left = cluster.links[hop.link.index()].shared ? bandwidth / times : bandwidth;
    route.narrowest = &hop == route.hops.data() ? left : std::min(route.narrowest, left);
  }
  route.eager.bandwidth = route.rendezvous.bandwidth = route.narrowest;
  route.rendezvous.latency = route.eager.latency + cluster.handshake;
  return route;
}

// What the network knows a host by: a device behind a bus sends and receives as the host it is in.
HostId outer(const Cluster& cluster, HostId host) {
  const HostId inside = cluster.hosts[host.index()].inside;
  return inside.valid() ? inside : host;
}

// The link from a host to itself that is fastest there; or the fabric's route, if it has one.
Result<Route> route_within(const Cluster& cluster, HostId host) {
  std::optional<size_t> best;
  for (size_t l = cluster.fabric_links; l < cluster.links.size(); ++l) {
    const Link& link = cluster.links[l];
    if (link.a != host || link.b != host) continue;
    if (!best || link.latency < cluster.links[*best].latency) best = l;
  }
  Route route;
  if (best) append_hop(route, cluster, {LinkId(*best), true});
  const Host& here = cluster.hosts[host.index()];
  if (!best && here.number >= 0) {
    const auto number = static_cast<size_t>(here.number);
    for (const Hop& hop : fabric_route(cluster.fabric, number, number)) append_hop(route, cluster, hop);
  }
  if (!route.hops.empty()) return with_costs(cluster, std::move(route));
  return invalid_input(fmt::format("devices of host '{}' exchange data, but no link says how: add one between [{}, {}]",
                                   here.name, here.name, here.name));
}

Error not_connected(const Cluster& cluster, HostId from, HostId to) {
  return invalid_input(fmt::format("no links connect host '{}' with host '{}'", cluster.hosts[from.index()].name,
                                   cluster.hosts[to.index()].name));
}

// Where there are no links but the fabric's. Of a large fabric search asks for all pairs of hosts.
Result<Route> route_of_fabric(const Cluster& cluster, HostId from, HostId to) {
  const int a = cluster.hosts[from.index()].number, b = cluster.hosts[to.index()].number;
  if (std::holds_alternative<std::monostate>(cluster.fabric) || a < 0 || b < 0) return not_connected(cluster, from, to);
  Route route;
  for (const Hop& hop : fabric_route(cluster.fabric, static_cast<size_t>(a), static_cast<size_t>(b)))
    append_hop(route, cluster, hop);
  if (route.hops.empty()) return not_connected(cluster, from, to);
  return with_costs(cluster, std::move(route));
}

}  // namespace

Result<Route> find_path(const Cluster& cluster, HostId from, HostId to) {
  CHECK(from.valid() && from.index() < cluster.hosts.size(), "route from an unknown host");
  CHECK(to.valid() && to.index() < cluster.hosts.size(), "route to an unknown host");
  if (from == to) return route_within(cluster, from);

  const std::vector<uint32_t> links = links_that_matter(cluster, from, to);
  if (links.empty()) return route_of_fabric(cluster, from, to);
  const std::vector<Distance> to_end = distances_to(cluster, links, to);
  Route route;
  if (!std::holds_alternative<std::monostate>(cluster.fabric)) {
    const std::vector<Distance> from_start = distances_to(cluster, links, from);
    if (const auto crossing = best_crossing(cluster, from_start, to_end, to_end[from.index()])) {
      // Up to the fabric: the way from `in` back to the start, turned round.
      Route back;
      append_way(back, cluster, links, from_start, crossing->in);
      route.eager.latency = back.eager.latency;
      for (auto hop = back.hops.rbegin(); hop != back.hops.rend(); ++hop)
        route.hops.push_back({hop->link, cluster.links[hop->link.index()].a.valid() ? !hop->forward : hop->forward});
      for (const Hop& hop : crossing->hops) append_hop(route, cluster, hop);
      append_way(route, cluster, links, to_end, crossing->out);
      return with_costs(cluster, std::move(route));
    }
  }
  if (to_end[from.index()].hops == unreached) return not_connected(cluster, from, to);
  append_way(route, cluster, links, to_end, from);
  return with_costs(cluster, std::move(route));
}

Result<Route> find_route(const Cluster& cluster, HostId from, HostId to) {
  ASSIGN_OR_RETURN(Route route, find_path(cluster, from, to));
  if (cluster.routes.empty()) return route;
  const auto find_way = [&](HostId a, HostId b) {
    return std::ranges::find_if(cluster.routes, [&](const MeasuredRoute& w) { return w.from == a && w.to == b; });
  };
  auto way = find_way(from, to);
  const HostId a = outer(cluster, from), b = outer(cluster, to);
  if (way == cluster.routes.end() && (a != from || b != to)) {
    if (a == b) return route;
    way = find_way(a, b);
  }
  if (way == cluster.routes.end()) {
    return invalid_input(
        fmt::format("{} has no measurement of messages from host '{}' to host '{}'; nlbench network makes them all",
                    cluster.network_profile, cluster.hosts[from.index()].name, cluster.hosts[to.index()].name));
  }
  route.eager = way->eager;
  route.rendezvous = way->rendezvous;
  for (const auto& [device, host] : {std::pair(from, way->from), std::pair(to, way->to)}) {
    if (device == host) continue;
    ASSIGN_OR_RETURN(const Route bus, find_path(cluster, device, host));
    for (MessageCost* cost : {&route.eager, &route.rendezvous}) {
      cost->latency += bus.eager.latency;
      cost->bandwidth = std::min(cost->bandwidth, bus.narrowest);
    }
  }
  route.overheads = way->overheads;
  route.clear_to_send_delay = way->clear_to_send_delay;
  route.largest_error = way->largest_error;
  route.starts_early = way->starts_early;
  if (way->meeting.valid()) route.hops.push_back({way->meeting, true});
  return route;
}

}  // namespace nlsplit::inline cost
