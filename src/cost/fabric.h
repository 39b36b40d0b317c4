// Fabrics: networks with more than one way between hosts, and the rule that picks one. Pure arithmetic on numbers of
// hosts and links, so that a route costs what its length is and no table of all pairs is needed.
//
//   const Fabric fabric = FatTree{{{4, 1, 1}, {4, 2, 2}}};      // 16 hosts
//   std::vector<Hop> hops = fabric_route(fabric, 3, 12);
//
// cost/topology.h makes the hosts, switches and links that these numbers mean.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "base/id.h"

namespace nlsplit::inline cost {

using HostId = Id<struct HostTag>;
using LinkId = Id<struct LinkTag>;

// One direction of one link: what transfers share.
struct Hop {
  LinkId link;
  bool forward = true;  // from a to b
  friend bool operator==(const Hop&, const Hop&) = default;
};

// An extended generalized fat tree with parallel links, PGFT(h; m; w; p): Öhring, Ibel, Das, Kumar, IPPS 1995; Zahavi,
// CCIT report 776, 2010. Level l of the list joins switches of level l+1 with what is below them: each has `down`
// children, each child `up` parents, over `parallel` links each. Hosts: the product of all `down`.
//
// Routes are D-mod-k (Zahavi): a message to host d leaves a node of level l, on its way up, by port
// ⌊d / (w_1 … w_l)⌋ mod (w p) of its w p upward ports, port q going to parent q mod w. So messages to different hosts
// take different spines, and those to one host the same.
struct FatTree {
  struct Level {
    int64_t down = 1, up = 1, parallel = 1;
  };
  std::vector<Level> levels;  // from the hosts up
};

// Hosts at the points of a grid, each joined with its neighbours, round the edges too; an extent of 2 is one link, not
// two. Host x + X (y + Y z …). Routes are dimension-ordered: all steps along the first axis, then the second, …, the
// shorter way round; where both are as long, up if the destination's coordinate is larger, as SimGrid does.
struct Torus {
  std::vector<int64_t> shape;
};

// Kim, Dally, Scott, Abts, ISCA 2008: groups of routers, all of a group joined with each other and with hosts of their
// own; each two groups are joined by one link. Group i has its link to group j at router k mod `routers`, where j is
// its k-th other group ("absolute" arrangement: Hastings et al., CLUSTER 2015, with the links dealt to the routers in
// turn). Routes are minimal: at most one link within the first group, one between groups, one within the last.
struct Dragonfly {
  int64_t groups = 1;
  int64_t routers = 1;  // a group
  int64_t hosts = 1;    // a router
};

// Routes given from outside (a platform file). Route from i to j: links[begin[i * hosts + j] …
// begin[i * hosts + j + 1]); none where it is empty.
struct GivenRoutes {
  size_t hosts = 0;
  std::vector<size_t> begin;
  std::vector<LinkId> links;
};

using Fabric = std::variant<std::monostate, FatTree, Torus, Dragonfly, GivenRoutes>;

int64_t host_count(const FatTree&);
int64_t host_count(const Torus&);
int64_t host_count(const Dragonfly&);

// A node of a fat tree: level 0 is the hosts. Nodes of a level are numbered high * W + low, where W = w_1 … w_l, `low`
// says which of the switches above the same hosts it is, and `high` which hosts those are.
int64_t node_count(const FatTree&, size_t level);
int64_t parent_of(const FatTree&, size_t level, int64_t node, int64_t port);

// Where in the list of its links one is. Level by level, node by node, port by port; axis by axis, point by point (the
// link to the next one up); and links of hosts, then within groups, then between them.
int64_t link_of(const FatTree&, size_t level, int64_t node, int64_t port);
int64_t link_of(const Torus&, size_t axis, int64_t point);
int64_t host_link_of(const Dragonfly&, int64_t host);
int64_t local_link_of(const Dragonfly&, int64_t group, int64_t router_a, int64_t router_b);  // a < b
int64_t global_link_of(const Dragonfly&, int64_t group_a, int64_t group_b);                  // a < b
int64_t router_towards(const Dragonfly&, int64_t group, int64_t other_group);                // within `group`
int64_t link_count(const FatTree&);
int64_t link_count(const Torus&);
int64_t link_count(const Dragonfly&);

// The hops from one host of it to another, by their numbers in it. Empty from a host to itself (GivenRoutes may have a
// route there), and where none was given.
std::vector<Hop> fabric_route(const Fabric& fabric, size_t from, size_t to);

}  // namespace nlsplit::inline cost
