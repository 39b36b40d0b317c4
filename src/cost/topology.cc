#include "cost/topology.h"

#include <fmt/format.h>

#include <algorithm>

namespace nlsplit::inline cost {
namespace {

// As doubles, which do not overflow: the figures are a user's.
struct Size {
  double hosts = 0, switches = 0, links = 0;
};

Size size_of(const Star& star) { return {static_cast<double>(star.hosts), 1, static_cast<double>(star.hosts)}; }

Size size_of(const Racks& racks) {
  const auto count = static_cast<double>(racks.racks), hosts = count * static_cast<double>(racks.hosts);
  return {hosts, count + 1, hosts + count};
}

Size size_of(const Wan& wan) {
  Size size;
  for (const Wan::Site& site : wan.sites) {
    size.hosts += static_cast<double>(site.hosts);
    size.switches += 1;
  }
  size.links = size.hosts;
  return size;
}

Size size_of(const Wifi& wifi) { return {static_cast<double>(wifi.hosts), 1, static_cast<double>(wifi.hosts) + 1}; }

Size size_of(const FatTreeNetwork& network) {
  Size size{1, 0, 0};
  for (const FatTree::Level& level : network.shape.levels) size.hosts *= static_cast<double>(level.down);
  double nodes = size.hosts;
  for (const FatTree::Level& level : network.shape.levels) {
    size.links += nodes * static_cast<double>(level.up) * static_cast<double>(level.parallel);
    nodes = nodes / static_cast<double>(level.down) * static_cast<double>(level.up);
    size.switches += nodes;
  }
  return size;
}

Size size_of(const TorusNetwork& network) {
  Size size{1, 0, 0};
  for (const int64_t extent : network.shape.shape) size.hosts *= static_cast<double>(extent);
  for (const int64_t extent : network.shape.shape) size.links += extent == 1 ? 0 : size.hosts / (extent == 2 ? 2 : 1);
  return size;
}

Size size_of(const DragonflyNetwork& network) {
  const auto groups = static_cast<double>(network.shape.groups), routers = static_cast<double>(network.shape.routers);
  const double hosts = groups * routers * static_cast<double>(network.shape.hosts);
  return {hosts, groups * routers, hosts + groups * routers * (routers - 1) / 2 + groups * (groups - 1) / 2};
}

class Builder {
 public:
  explicit Builder(Cluster& cluster) : cluster_(cluster) {}

  void add(const Star& star) {
    const HostId sw = host("sw", true);
    for (int64_t h = 0; h < star.hosts; ++h) link(host(fmt::format("h{}", h)), sw, star.link);
  }

  void add(const Racks& racks) {
    const HostId core = host("core", true);
    for (int64_t r = 0; r < racks.racks; ++r) {
      const HostId rack = host(fmt::format("rack{}", r), true);
      for (int64_t h = 0; h < racks.hosts; ++h) link(host(fmt::format("h{}", r * racks.hosts + h)), rack, racks.link);
      link(rack, core, racks.uplink);
    }
  }

  void add(const Wan& wan) {
    for (const Wan::Site& site : wan.sites) {
      const HostId sw = host(site.name, true);
      for (int64_t h = 0; h < site.hosts; ++h) link(host(fmt::format("{}{}", site.name, h)), sw, site.link);
    }
  }

  void add(const Wifi& wifi) {
    const HostId ap = host("ap", true);
    const LinkId air(cluster_.links.size());
    cluster_.links.push_back({"air", HostId(), HostId(), wifi.link.bandwidth, seconds(0), false});
    for (int64_t h = 0; h < wifi.hosts; ++h) {
      link(host(fmt::format("h{}", h)), ap, wifi.link);
      cluster_.links.back().medium = air;
    }
  }

  void add(const FatTreeNetwork& network) {
    const FatTree& tree = network.shape;
    numbered_hosts(host_count(tree));
    size_t first = 0;  // host of the level's first node
    for (size_t l = 0; l < tree.levels.size(); ++l) {
      const size_t above = cluster_.hosts.size();
      for (int64_t s = 0; s < node_count(tree, l + 1); ++s) host(fmt::format("s{}.{}", l + 1, s), true);
      const FatTree::Level& level = tree.levels[l];
      for (int64_t node = 0; node < node_count(tree, l); ++node) {
        for (int64_t port = 0; port < level.up * level.parallel; ++port) {
          const auto parent = static_cast<size_t>(parent_of(tree, l, node, port));
          link(HostId(first + static_cast<size_t>(node)), HostId(above + parent), network.links[l], port / level.up);
        }
      }
      first = above;
    }
    finish(tree);
  }

  void add(const TorusNetwork& network) {
    const Torus& torus = network.shape;
    numbered_hosts(host_count(torus));
    int64_t stride = 1;
    for (const int64_t extent : torus.shape) {
      for (int64_t point = 0; point < host_count(torus); ++point) {
        const int64_t here = point / stride % extent, next = (here + 1) % extent;
        if (extent == 1 || (extent == 2 && here == 1)) continue;
        link(HostId(static_cast<size_t>(point)), HostId(static_cast<size_t>(point + (next - here) * stride)),
             network.link);
      }
      stride *= extent;
    }
    finish(torus);
  }

  void add(const DragonflyNetwork& network) {
    const Dragonfly& fly = network.shape;
    numbered_hosts(host_count(fly));
    const size_t first = cluster_.hosts.size();
    const auto router = [&](int64_t group, int64_t r) {
      return HostId(first + static_cast<size_t>(group * fly.routers + r));
    };
    for (int64_t g = 0; g < fly.groups; ++g) {
      for (int64_t r = 0; r < fly.routers; ++r) host(fmt::format("g{}r{}", g, r), true);
    }
    for (int64_t h = 0; h < host_count(fly); ++h)
      link(HostId(static_cast<size_t>(h)), router(0, h / fly.hosts), network.link);
    for (int64_t g = 0; g < fly.groups; ++g) {
      for (int64_t a = 0; a < fly.routers; ++a) {
        for (int64_t b = a + 1; b < fly.routers; ++b) link(router(g, a), router(g, b), network.local);
      }
    }
    for (int64_t a = 0; a < fly.groups; ++a) {
      for (int64_t b = a + 1; b < fly.groups; ++b)
        link(router(a, router_towards(fly, a, b)), router(b, router_towards(fly, b, a)), network.global);
    }
    finish(fly);
  }

  HostId host(std::string name, bool is_switch = false, HostId inside = {}) {
    cluster_.hosts.push_back({std::move(name), is_switch, inside});
    return HostId(cluster_.hosts.size() - 1);
  }

  // `before`: how many there are already between these two.
  void link(HostId a, HostId b, const LinkSpec& spec, int64_t before = 0) {
    std::string name = fmt::format("{}-{}", cluster_.hosts[a.index()].name, cluster_.hosts[b.index()].name);
    if (before > 0) name += fmt::format(".{}", before + 1);
    cluster_.links.push_back({std::move(name), a, b, spec.bandwidth, spec.latency, spec.full_duplex});
  }

 private:
  void numbered_hosts(int64_t count) {
    for (int64_t h = 0; h < count; ++h) {
      host(fmt::format("h{}", h));
      cluster_.hosts.back().number = static_cast<int>(h);
    }
  }

  template <class Shape>
  void finish(const Shape& shape) {
    CHECK(static_cast<size_t>(link_count(shape)) == cluster_.links.size(), "a topology with other links than counted");
    cluster_.fabric = shape;
    cluster_.fabric_links = cluster_.links.size();
  }

  Cluster& cluster_;
};

}  // namespace

Status add_topology(Cluster& cluster, const Topology& topology) {
  CHECK(cluster.hosts.empty() && cluster.links.empty(), "a topology goes into an empty cluster");
  const Size size = std::visit([](const auto& t) { return size_of(t); }, topology);
  if (size.hosts > max_hosts || size.switches > max_hosts || size.links > max_links) {
    return invalid_input(
        fmt::format("this topology has {:.6g} hosts, {:.6g} switches and {:.6g} links; at most {:.0f} hosts, as many "
                    "switches and {:.0f} links can be",
                    size.hosts, size.switches, size.links, max_hosts, max_links));
  }
  Builder builder(cluster);
  std::visit([&](const auto& t) { builder.add(t); }, topology);
  return ok_status();
}

void add_inner_networks(Cluster& cluster, std::vector<InnerNetwork> networks) {
  std::ranges::stable_sort(networks, {}, &InnerNetwork::host);
  Builder builder(cluster);
  const size_t first = cluster.links.size();
  std::vector<LinkRange> inner;
  for (const InnerNetwork& network : networks) {
    const size_t begin = cluster.links.size();
    const std::string name = cluster.hosts[network.host.index()].name + "." + network.name;
    if (network.bus.shared) {
      const HostId bus = builder.host(name + "-bus", true, network.host);
      LinkSpec half = network.bus.link;
      half.latency = half.latency / 2.0;
      for (const HostId device : network.devices) builder.link(device, bus, half);
      builder.link(bus, network.host, half);
    } else {
      for (const HostId device : network.devices) builder.link(device, network.host, network.bus.link);
    }
    if (network.peers && network.peers->by_switch) {
      const HostId sw = builder.host(name + "-peers", true, network.host);
      LinkSpec half = network.peers->link;
      half.latency = half.latency / 2.0;
      for (const HostId device : network.devices) builder.link(device, sw, half);
    } else if (network.peers) {
      for (size_t a = 0; a < network.devices.size(); ++a) {
        for (size_t b = a + 1; b < network.devices.size(); ++b)
          builder.link(network.devices[a], network.devices[b], network.peers->link);
      }
    }
    inner.resize(std::max(inner.size(), network.host.index() + 1));
    LinkRange& range = inner[network.host.index()];
    if (range.count == 0) range.first = begin;
    range.count += cluster.links.size() - begin;
  }
  if (networks.empty()) return;
  inner.resize(cluster.hosts.size());
  cluster.inner = std::move(inner);
  cluster.inner_links = cluster.links.size() - first;
}

}  // namespace nlsplit::inline cost
