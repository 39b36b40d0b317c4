#include "emulate/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/units.h"

namespace nlsplit::inline emulation {
namespace {

// What resolvers and mpirun would not take as the name of another machine.
Status check_name(const std::string& name) {
  if (name == "localhost")
    return unsupported("host 'localhost' cannot be emulated: every machine has its own; name it otherwise");
  if (name.find_first_not_of("0123456789.") == std::string::npos)
    return unsupported(fmt::format("host '{}' cannot be emulated: it reads like an address; name it otherwise", name));
  if (name.front() == '-')
    return unsupported(fmt::format("host '{}' cannot be emulated: it reads like an option; name it otherwise", name));
  return ok_status();
}

std::string host_names(const Cluster& cluster) {
  std::string all;
  for (const Host& host : cluster.hosts) {
    if (!host.is_switch) all += (all.empty() ? "" : ", ") + host.name;
  }
  return all;
}

}  // namespace

Result<EmulatedNetwork> emulated_network(const Cluster& cluster) {
  if (cluster.nic_window > 0) {
    return unsupported(fmt::format(
        "nic_window: {} cannot be emulated: a network carries packets and does not know messages; without it they "
        "share the links",
        cluster.nic_window));
  }
  EmulatedNetwork network;
  std::set<std::string> names;
  for (size_t h = 0; h < cluster.hosts.size(); ++h) {
    const Host& host = cluster.hosts[h];
    if (host.is_switch) continue;
    RETURN_IF_ERROR(check_name(host.name));
    std::vector<int> cores;  // of each device here
    for (const Device& device : cluster.devices) {
      if (device.host == HostId(h)) cores.push_back(device.cores);
    }
    const bool alone = cores.size() <= 1;
    if (cores.empty()) cores.push_back(0);
    for (size_t n = 0; n < cores.size(); ++n) {
      network.places.push_back({alone ? host.name : fmt::format("{}.{}", host.name, n + 1), HostId(h), cores[n], {}});
      if (!names.insert(network.places.back().name).second) {
        return unsupported(
            fmt::format("the devices of host '{}' need names of their own, and there is a host '{}' already; name it "
                        "otherwise",
                        host.name, network.places.back().name));
      }
    }
  }
  // Both directions of a half-duplex link are the first of its two.
  network.rates.resize(cluster.links.size() * 2);
  for (size_t l = 0; l < cluster.links.size(); ++l)
    network.rates[2 * l] = network.rates[2 * l + 1] = cluster.links[l].bandwidth.value();
  for (size_t from = 0; from < network.places.size(); ++from) {
    for (size_t to = 0; to < network.places.size(); ++to) {
      FluidRoute& route = network.routes.emplace_back();
      if (from == to) continue;
      ASSIGN_OR_RETURN(const Route found, find_path(cluster, network.places[from].host, network.places[to].host));
      route.latency = found.eager.latency.value();
      route.to = to;
      for (const Hop& hop : found.hops) {
        const Link& link = cluster.links[hop.link.index()];
        if (!link.shared)
          return unsupported(
              fmt::format("link '{}' cannot be emulated: each of its messages has all of the bandwidth "
                          "(FATPIPE), and packets share theirs",
                          link.name));
        route.links.push_back(static_cast<int>(lane_of(cluster, hop)));
      }
    }
  }
  // A link from a host to itself has one direction only, here as in the simulator: all its devices share it.
  return network;
}

Result<Cut> parse_cut(const Cluster& cluster, const std::string& text) {
  const size_t comma = text.find_first_of(",>"), at = text.find('@');
  if (comma == std::string::npos || at == std::string::npos || comma > at) {
    return invalid_input(
        fmt::format("--cut {}: it reads HOST,HOST@TIME, such as a,b@3s, or a>b@3s for one direction", text));
  }
  const bool one_way = text[comma] == '>';
  Cut cut;
  ASSIGN_OR_RETURN(const Seconds after, parse_time(std::string_view(text).substr(at + 1)));
  if (after.value() < 0) return invalid_input(fmt::format("--cut {}: there is no time before the start", text));
  cut.after_s = after.value();
  HostId ends[2];
  const std::string names[2] = {text.substr(0, comma), text.substr(comma + 1, at - comma - 1)};
  for (const int end : {0, 1}) {
    ends[end] = cluster.find_host(names[end]);
    if (!ends[end].valid())
      return invalid_input(fmt::format("--cut {}: there is no host or switch '{}' in the scenario", text, names[end]));
  }
  for (size_t l = 0; l < cluster.links.size(); ++l) {
    const Link& link = cluster.links[l];
    const bool forward = link.a == ends[0] && link.b == ends[1], backward = link.a == ends[1] && link.b == ends[0];
    if (!forward && !backward) continue;
    if (one_way && !link.full_duplex) {
      return invalid_input(fmt::format("--cut {}: the link between {} and {} is half duplex: its directions are one",
                                       text, names[0], names[1]));
    }
    const int lane = static_cast<int>(2 * l);
    if (!one_way || forward) cut.links.push_back(lane);
    if (!one_way || !forward) cut.links.push_back(lane + 1);
  }
  if (cut.links.empty())
    return invalid_input(fmt::format("--cut {}: no link goes from {} to {}", text, names[0], names[1]));
  return cut;
}

void share_out(const std::vector<int>& cpus, EmulatedNetwork& network) {
  size_t wanted = 0;
  for (const Place& place : network.places) wanted += static_cast<size_t>(place.cores);
  if (wanted > cpus.size()) return;
  auto next = cpus.begin();
  for (Place& place : network.places) {
    place.cpus.assign(next, next + place.cores);
    next += place.cores;
  }
}

Result<std::vector<size_t>> places_of(const Cluster& cluster, const EmulatedNetwork& network,
                                      const std::vector<std::string>& hosts, bool shared) {
  std::vector<size_t> found;
  std::vector<int> used(network.places.size(), 0);
  for (const std::string& host : hosts) {
    const HostId id = cluster.find_host(host);
    size_t best = network.places.size();
    for (size_t p = 0; p < network.places.size(); ++p) {
      const bool here = network.places[p].name == host || (id.valid() && network.places[p].host == id);
      if (here && (best == network.places.size() || used[p] < used[best])) best = p;
    }
    if (best == network.places.size()) {
      return invalid_input(fmt::format("there is no host '{}' in the scenario; it has {}", host, host_names(cluster)));
    }
    if (++used[best] > 1 && !shared) {
      return invalid_input(
          fmt::format("more ranks on host '{}' than the scenario has devices there: is it the same scenario?", host));
    }
    found.push_back(best);
  }
  return found;
}

double most_in_flight(const EmulatedNetwork& network) {
  double most = 0;
  for (const FluidRoute& route : network.routes) {
    double rate = std::numeric_limits<double>::infinity();
    for (const int link : route.links) rate = std::min(rate, network.rates[static_cast<size_t>(link)]);
    if (!route.links.empty()) most = std::max(most, rate * 2 * route.latency);
  }
  return most;
}

}  // namespace nlsplit::inline emulation
