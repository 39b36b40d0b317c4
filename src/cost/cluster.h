// Cluster: hosts and switches joined by links, and the devices on the hosts.
//
//   a ──1Gbps── sw ──1Gbps── b        hosts a, b; switch sw; two links; device A on a, B on b
//
// Two devices on one host exchange data over the link {between: [a, a]}, which must then exist: nothing is assumed
// free. Devices with a bus or links of their own (PCIe, NVLink) each stand on a host of their own *inside* the host,
// `a.D0`, `a.D1`. cost/topology.h makes clusters of many hosts.
#pragma once

#include <string>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "base/units.h"
#include "cost/fabric.h"
#include "kernels/catalogue.h"

namespace nlsplit::inline cost {

using DeviceId = Id<struct DeviceTag>;

struct Host {
  std::string name;
  bool is_switch = false;  // forwards only: no devices, no source, no sink
  HostId inside = {};      // the host this is a part of: where a device behind a bus stands, or the bus; none: itself
  int number = -1;         // in the cluster's fabric; -1: not one of its hosts
};

struct Endpoints {
  HostId source;  // where inputs come from
  HostId sink;    // where outputs must go
};

enum class DeviceKind : uint8_t {
  cpu,
  cuda,  // a GPU; its level is one of gpu_levels()
  host   // an endpoint that only holds data (source or sink); Programs have it, clusters not
};
std::string_view name_of(DeviceKind kind);
Result<DeviceKind> parse_device_kind(std::string_view text);

struct Device {
  std::string name;
  HostId host;
  DeviceKind kind = DeviceKind::cpu;
  Bytes memory;  // what a Program may use of it
  Level level = Isa::v3;
  int cores = 1;  // that share each computation
  // Above 0 the device stands for one so many times as slow: its costs are multiplied, and in a real run each
  // computation ends when it would there (emulated compute), however fast the machine that plays it.
  double slowdown = 0;
  // Devices of one machine slow each other down through its caches and memory when they compute at the same time.
  // Empty: the host is a machine of its own. Hosts may share one: those of an emulated cluster do.
  std::string machine = {};
};

struct Link {
  std::string name;
  HostId a, b;               // a == b: between devices of one host; none: it has no ends, routes name it
  BytesPerSecond bandwidth;  // of each direction if full_duplex, else of both together
  Seconds latency;
  bool full_duplex = true;
  bool shared = true;  // false: every message has all of the bandwidth, however many there are (SimGrid's FATPIPE)
  LinkId medium = {};  // the link (without ends) whose bandwidth this one uses: several links on one radio channel
};

// links[first] … links[first + count)
struct LinkRange {
  size_t first = 0, count = 0;
};

// A message of s bytes is there after latency + s / bandwidth.
struct MessageCost {
  Seconds latency;
  BytesPerSecond bandwidth;
  friend bool operator==(const MessageCost&, const MessageCost&) = default;
};

// sender, receiver: seconds that each byte takes from the computing of the sending and the receiving device, the `O` of
// LogGOPS (Hoefler, Schneider, Lumsdaine, HPDC 2010). slowed: while both ends compute, a message above the eager limit
// takes 1 + slowed times as long; while one end does, 1 + slowed / 2. busy: seconds that its handshake takes longer if
// both ends compute, since the threads that move messages wake up on cores that compute. held, handover: the sender is
// done with such a message, and its memory is free, when MPI and the socket have the rest of the message. They hold
// what the link carries in `held` seconds. Copying a byte beyond the eager limit to them takes `handover` seconds.
struct Overheads {
  double sender = 0, receiver = 0;
  double slowed = 0;
  double busy = 0;
  double held = 0, handover = 0;
  friend bool operator==(const Overheads&, const Overheads&) = default;
};

// What was measured between two hosts.
struct MeasuredRoute {
  HostId from, to;
  MessageCost eager, rendezvous;  // up to the eager limit, and above
  Overheads overheads;
  // A link without ends that both directions share, with the bandwidth of both together. None: each direction has its
  // full bandwidth.
  LinkId meeting = {};
  // The longest time by which the receiver's answer to the request for a message above the eager limit queues behind
  // data in the other direction.
  Seconds clear_to_send_delay = seconds(0);
  double largest_error = 0;  // of the two costs over the sizes measured, relative
  // Messages above the eager limit move before their receivers are ready, too: the transport keeps what is not
  // expected.
  bool starts_early = false;
};

struct Route {
  std::vector<Hop> hops;
  BytesPerSecond narrowest;  // of its links' bandwidths, each by how often the route crosses it
  // Of a message alone on the route: from the links (all latencies; above the eager limit the handshake) or measured.
  MessageCost eager, rendezvous;
  Overheads overheads;  // none unless they were measured
  Seconds clear_to_send_delay = seconds(0);
  double largest_error = 0;  // MeasuredRoute
  bool starts_early = false;
};

struct Cluster {
  std::vector<Host> hosts;
  std::vector<Device> devices;
  std::vector<Link> links;
  // Routes between hosts that have a number are the fabric's, over the first `fabric_links` links; its link numbers are
  // those of the cluster. Without a fabric all routes are found among the links.
  Fabric fabric;
  size_t fabric_links = 0;
  // [host]: the links within it, among the last `inner_links`. Empty: there are none.
  std::vector<LinkRange> inner;
  size_t inner_links = 0;
  // How the transport moves a message; program/program.h says what they mean. Defaults: start when both sides are
  // ready.
  Bytes eager_limit = bytes(0);    // messages up to this size start without waiting for the receiver
  Seconds handshake = seconds(0);  // added to every larger message
  int nic_window = 0;              // concurrent outgoing messages of a host; 0: unlimited, they share the links fairly
  DType messages = DType::f32;     // what f32 values travel as between devices (cost/messages.h)
  std::vector<MeasuredRoute> routes;  // measured; empty: all follows from the links
  std::string network_profile;        // the file they came from

  const Device& device(DeviceId id) const { return devices[id.index()]; }
  DeviceId find_device(std::string_view name) const;  // none if unknown
  HostId find_host(std::string_view name) const;
};

// The route with the fewest links, then the lowest latency, then the order of the links; its costs are the links'. A
// route may pass the fabric once, by the fabric's own route, which is preferred among equals. Error: not connected
// (names both hosts), or a == b without a link.
Result<Route> find_path(const Cluster& cluster, HostId from, HostId to);
// The same with measured costs, to which buses of devices are added. Error also: routes were measured, not this one.
Result<Route> find_route(const Cluster& cluster, HostId from, HostId to);

// Every pair of hosts that hold devices, source or sink is connected; the error names a pair.
Status check_connected(const Cluster& cluster, const std::vector<HostId>& hosts);

// The number of a link direction (lane): 2 * link, plus 1 for the reverse direction of a full-duplex link.
size_t lane_of(const Cluster& cluster, const Hop& hop);

// "a>b" for the direction from a to b; the link's name if it has no ends, or one bandwidth for both directions.
std::string name_of(const Cluster& cluster, const Hop& hop);

}  // namespace nlsplit::inline cost
