// Clusters of many hosts from a few figures: hosts h0, h1, … with the switches and links between them.
//
//   RETURN_IF_ERROR(add_topology(cluster, Star{8, {bytes_per_second(1.25e9), seconds(20e-6)}}));   // h0 … h7, sw
//
// Into a cluster without hosts. A link's name is that of its ends ("h0-sw"; "h0-sw.2" the second of parallel ones).
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cost/cluster.h"

namespace nlsplit::inline cost {

struct LinkSpec {
  BytesPerSecond bandwidth;
  Seconds latency;
  bool full_duplex = true;
};

// All at switch `sw`.
struct Star {
  int64_t hosts = 1;
  LinkSpec link;
};

// `hosts` of them at each of the switches rack0, rack1, …, and those at `core`. Host h is in rack h / hosts.
struct Racks {
  int64_t racks = 1, hosts = 1;
  LinkSpec link, uplink;
};

// Stars far from each other: site `paris` has hosts paris0, paris1, … at switch `paris`. The links between the switches
// are the caller's.
struct Wan {
  struct Site {
    std::string name;
    int64_t hosts = 1;
    LinkSpec link;
  };
  std::vector<Site> sites;
};

// Hosts at access point `ap` on one channel, the link `air`, which all share: it carries one message at full rate, and
// one from host to host twice. What a channel loses when many want it at once is not in it.
struct Wifi {
  int64_t hosts = 1;
  LinkSpec link;
};

// Switches s1.0, s1.1, … of level 1, and so on.
struct FatTreeNetwork {
  FatTree shape;
  std::vector<LinkSpec> links;  // by level
};

struct TorusNetwork {
  Torus shape;
  LinkSpec link;
};

// Router r of group g: g0r1.
struct DragonflyNetwork {
  Dragonfly shape;
  LinkSpec link, local, global;  // of a host; within a group; between groups
};

using Topology = std::variant<Star, Racks, Wan, Wifi, FatTreeNetwork, TorusNetwork, DragonflyNetwork>;

inline constexpr double max_hosts = 65'536;   // and as many switches
inline constexpr double max_links = 262'144;  // of a topology

// Error: more hosts, switches or links than that.
Status add_topology(Cluster& cluster, const Topology& topology);

// How the devices of one host reach it and each other.
struct Bus {
  LinkSpec link;        // between a device and its host; the latency also between two devices
  bool shared = false;  // one for all of them, by a switch; else each has its own
};
struct Peers {
  LinkSpec link;
  bool by_switch = false;  // each device has one link, to a switch; else one to each other device
};
struct InnerNetwork {
  HostId host;
  std::string name;             // of its switches: host.name-bus, host.name-peers
  std::vector<HostId> devices;  // hosts inside it, each with one device
  Bus bus;
  std::optional<Peers> peers;
};

// The last links of a cluster: those within hosts. Called once, when all others are there.
void add_inner_networks(Cluster& cluster, std::vector<InnerNetwork> networks);

}  // namespace nlsplit::inline cost
