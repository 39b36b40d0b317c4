// The network to emulate, read off a cluster: places (network namespaces) and what lies between each two of them.
//
//   ASSIGN_OR_RETURN(EmulatedNetwork network, emulated_network(scenario.cluster));
//
// A host is one place, by its name. A host with several devices has a place for each (`a.1`, `a.2`), so that they too
// meet over a link, the one from the host to itself; they share the host's links to others.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cost/cluster.h"
#include "emulate/fluid.h"
#include "emulate/kernel_links.h"

namespace nlsplit::inline emulation {

struct Place {
  std::string name;  // its host name
  HostId host;
  int cores = 0;          // of the device there; 0: there is none
  std::vector<int> cpus;  // of this machine, which alone run what is there; empty: all run it
};

// A link that carries nothing from some moment on.
struct Cut {
  std::vector<int> links;  // its directions, as routes name them
  double after_s = 0;      // since the command began
};

struct EmulatedNetwork {
  std::vector<Place> places;
  std::vector<double> rates;       // of the fluid's links, byte/s
  std::vector<FluidRoute> routes;  // from × to; of no use from a place to itself
  std::vector<Cut> cuts;
  double loss = 0;  // share of the packets that are thrown away, 0 to 1; in what is sent from each place by chance
  std::optional<KernelLinks> kernel_links;  // instead of rates, routes, cuts and loss

  const FluidRoute& route(size_t from, size_t to) const { return routes[from * places.size() + to]; }
};

// Errors: what cannot be emulated (a card's window, names that are not host names), hosts without a connection.
Result<EmulatedNetwork> emulated_network(const Cluster& cluster);

// "a,sw@3s": all links between hosts a and sw, from 3 s on. "a>sw@3s": only what goes from a to sw. Errors: not of that
// form, an unknown host, no such link, one direction of a half-duplex link.
Result<Cut> parse_cut(const Cluster& cluster, const std::string& text);

// Gives each place with a device as many processors of this machine as the device has cores, to itself: else the
// machine might run two hosts on one processor while another is idle. Nothing if there are not enough for all.
void share_out(const std::vector<int>& cpus, EmulatedNetwork& network);

// The place of each rank, from the host of each: the n-th rank on a host with several places is on its n-th place, as
// they are all alike. A name may also be a place's own. Error: an unknown name, or more ranks than `shared` allows on a
// place: several where true, else one.
Result<std::vector<size_t>> places_of(const Cluster& cluster, const EmulatedNetwork& network,
                                      const std::vector<std::string>& hosts, bool shared);

// The longest round trip's worth of bytes on any route: what TCP must have under way to fill it.
double most_in_flight(const EmulatedNetwork& network);

}  // namespace nlsplit::inline emulation
