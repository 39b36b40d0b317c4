// Links that the kernel shapes: a second emulator, which knows nothing of the simulator's model of links.
//
//   ASSIGN_OR_RETURN(network.kernel_links, kernel_links(scenario.cluster, network));
//
// Hosts and switches are network namespaces, joined by pairs of Ethernet ends. Each end has a token bucket with the
// link's bandwidth and a queue that overflows (tc-tbf(8)). Switches forward packet by packet. TCP is as Linux sets it
// up. Latency is what all of that takes: nothing is delayed by a time of its own.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost/cluster.h"

namespace nlsplit::inline emulation {

struct EmulatedNetwork;

struct KernelLinks {
  struct Wire {
    size_t a = 0, b = 0;  // nodes
    double rate = 0;      // byte/s of Ethernet frames, each way
  };
  struct Way {
    size_t node = 0;  // a switch
    size_t to = 0;    // packets for this place …
    size_t wire = 0;  // … leave over this wire
  };
  std::vector<std::string> nodes;  // places first, as the network numbers them, then switches
  size_t places = 0;
  std::vector<Wire> wires;
  std::vector<Way> ways;
};

// Errors: what token buckets cannot do (half duplex, shared channels, several devices on a host, hosts that forward),
// links without ends, routes that part on their way to one host.
Result<KernelLinks> kernel_links(const Cluster& cluster, const EmulatedNetwork& network);

// Makes the namespaces and all that is in them. The calling thread is then in that of the last node.
Status make_kernel_links(const KernelLinks& links);

}  // namespace nlsplit::inline emulation
