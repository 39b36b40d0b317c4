#include "cost/fabric.h"

#include <algorithm>

#include "base/check.h"

namespace nlsplit::inline cost {
namespace {

// m_1 … m_level and w_1 … w_level of a fat tree.
int64_t hosts_below(const FatTree& tree, size_t level) {
  int64_t product = 1;
  for (size_t l = 0; l < level; ++l) product *= tree.levels[l].down;
  return product;
}
int64_t switches_above(const FatTree& tree, size_t level) {
  int64_t product = 1;
  for (size_t l = 0; l < level; ++l) product *= tree.levels[l].up;
  return product;
}

Hop hop(int64_t link, bool forward) { return {LinkId(static_cast<size_t>(link)), forward}; }

std::vector<Hop> route(const FatTree& tree, int64_t from, int64_t to) {
  std::vector<Hop> hops;
  if (from == to) return hops;
  size_t top = 0;  // the lowest level with a switch above both
  while (from / hosts_below(tree, top) != to / hosts_below(tree, top)) ++top;
  const auto port = [&](size_t level) {
    return to / switches_above(tree, level) % (tree.levels[level].up * tree.levels[level].parallel);
  };
  int64_t node = from;
  for (size_t l = 0; l < top; ++l) {
    hops.push_back(hop(link_of(tree, l, node, port(l)), true));
    node = parent_of(tree, l, node, port(l));
  }
  // Down, the ports are those that a message to the same host would have taken up.
  const int64_t low = node % switches_above(tree, top);
  for (size_t l = top; l-- > 0;) {
    const int64_t child = to / hosts_below(tree, l) * switches_above(tree, l) + low % switches_above(tree, l);
    hops.push_back(hop(link_of(tree, l, child, port(l)), false));
  }
  return hops;
}

std::vector<Hop> route(const Torus& torus, int64_t from, int64_t to) {
  std::vector<Hop> hops;
  int64_t stride = 1, at = from;
  for (size_t axis = 0; axis < torus.shape.size(); ++axis) {
    const int64_t extent = torus.shape[axis];
    const int64_t target = to / stride % extent;
    const int64_t ahead = (target - at / stride % extent + extent) % extent;
    const bool up = 2 * ahead < extent || (2 * ahead == extent && target > at / stride % extent);
    for (int64_t step = up ? ahead : extent - ahead; step > 0; --step) {
      const int64_t here = at / stride % extent;
      const int64_t next = (here + (up ? 1 : extent - 1)) % extent;
      const int64_t there = at + (next - here) * stride;
      hops.push_back(hop(link_of(torus, axis, up ? at : there), up));
      at = there;
    }
    stride *= extent;
  }
  return hops;
}

std::vector<Hop> route(const Dragonfly& fly, int64_t from, int64_t to) {
  std::vector<Hop> hops;
  if (from == to) return hops;
  const int64_t group = from / fly.hosts / fly.routers, last_group = to / fly.hosts / fly.routers;
  int64_t router = from / fly.hosts % fly.routers;
  const auto within = [&](int64_t in, int64_t target) {
    if (router != target)
      hops.push_back(hop(local_link_of(fly, in, std::min(router, target), std::max(router, target)), router < target));
    router = target;
  };
  hops.push_back(hop(host_link_of(fly, from), true));
  if (group != last_group) {
    within(group, router_towards(fly, group, last_group));
    hops.push_back(
        hop(global_link_of(fly, std::min(group, last_group), std::max(group, last_group)), group < last_group));
    router = router_towards(fly, last_group, group);
  }
  within(last_group, to / fly.hosts % fly.routers);
  hops.push_back(hop(host_link_of(fly, to), false));
  return hops;
}

std::vector<Hop> route(const GivenRoutes& given, int64_t from, int64_t to) {
  std::vector<Hop> hops;
  const size_t at = static_cast<size_t>(from) * given.hosts + static_cast<size_t>(to);
  for (size_t i = given.begin[at]; i < given.begin[at + 1]; ++i) hops.push_back({given.links[i], true});
  return hops;
}

std::vector<Hop> route(const std::monostate&, int64_t, int64_t) { return {}; }

// The number of the pair a < b among all pairs of n.
int64_t pair_number(int64_t n, int64_t a, int64_t b) { return a * (2 * n - a - 1) / 2 + (b - a - 1); }

}  // namespace

int64_t host_count(const FatTree& tree) { return hosts_below(tree, tree.levels.size()); }

int64_t host_count(const Torus& torus) {
  int64_t product = 1;
  for (const int64_t extent : torus.shape) product *= extent;
  return product;
}

int64_t host_count(const Dragonfly& fly) { return fly.groups * fly.routers * fly.hosts; }

int64_t node_count(const FatTree& tree, size_t level) {
  return host_count(tree) / hosts_below(tree, level) * switches_above(tree, level);
}

int64_t parent_of(const FatTree& tree, size_t level, int64_t node, int64_t port) {
  const int64_t above = switches_above(tree, level), which = port % tree.levels[level].up;
  return node / above / tree.levels[level].down * (above * tree.levels[level].up) + which * above + node % above;
}

int64_t link_of(const FatTree& tree, size_t level, int64_t node, int64_t port) {
  int64_t first = 0;
  for (size_t l = 0; l < level; ++l) first += node_count(tree, l) * tree.levels[l].up * tree.levels[l].parallel;
  return first + node * tree.levels[level].up * tree.levels[level].parallel + port;
}

int64_t link_of(const Torus& torus, size_t axis, int64_t point) {
  const int64_t hosts = host_count(torus);
  int64_t first = 0, stride = 1;
  for (size_t a = 0; a < axis; ++a) {
    first += torus.shape[a] == 1 ? 0 : torus.shape[a] == 2 ? hosts / 2 : hosts;
    stride *= torus.shape[a];
  }
  if (torus.shape[axis] != 2) return first + point;
  return first + point / (2 * stride) * stride + point % stride;
}

int64_t host_link_of(const Dragonfly&, int64_t host) { return host; }

int64_t local_link_of(const Dragonfly& fly, int64_t group, int64_t a, int64_t b) {
  return host_count(fly) + group * (fly.routers * (fly.routers - 1) / 2) + pair_number(fly.routers, a, b);
}

int64_t global_link_of(const Dragonfly& fly, int64_t a, int64_t b) {
  return local_link_of(fly, fly.groups, 0, 1) + pair_number(fly.groups, a, b);
}

int64_t router_towards(const Dragonfly& fly, int64_t group, int64_t other) {
  return (other < group ? other : other - 1) % fly.routers;
}

int64_t link_count(const FatTree& tree) {
  return link_of(tree, tree.levels.size() - 1, node_count(tree, tree.levels.size() - 1), 0);
}

int64_t link_count(const Torus& torus) {
  int64_t count = 0;
  for (const int64_t extent : torus.shape)
    count += extent == 1 ? 0 : extent == 2 ? host_count(torus) / 2 : host_count(torus);
  return count;
}

int64_t link_count(const Dragonfly& fly) {
  return host_count(fly) + fly.groups * (fly.routers * (fly.routers - 1) / 2) + fly.groups * (fly.groups - 1) / 2;
}

std::vector<Hop> fabric_route(const Fabric& fabric, size_t from, size_t to) {
  return std::visit(
      [&](const auto& shape) { return route(shape, static_cast<int64_t>(from), static_cast<int64_t>(to)); }, fabric);
}

}  // namespace nlsplit::inline cost
