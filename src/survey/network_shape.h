// The shape of a network from what messages between its hosts take: one switch, racks, or a link between each two.
//
//   const NetworkShape shape = network_shape(survey.machines.size(), survey.paths);
//
// One switch: each host has a link of its own. A path's latency is the sum of its links', its bandwidth the least of
// theirs. Latencies are fitted by least squares of the relative errors, none below 0; a host's bandwidth is the most
// that any path from it has. Racks: hosts between which messages are quicker, or larger ones faster, than to others
// share a switch, which has a link to the other racks'. Both are taken where they fit what was measured. Else every
// path is a link, if all of them were measured; if not, the nearest of the shapes is the answer, which explains()
// nothing.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "survey/survey.h"

namespace nlsplit::inline survey {

struct Wire {
  Seconds latency;
  BytesPerSecond bandwidth;
  bool half_duplex = false;
  size_t kind = 0;  // wires that measure alike have the same, and the same figures
};

struct NetworkShape {
  enum class Kind { none, one_switch, racks, paths };
  Kind kind = Kind::none;                         // none: one host
  std::vector<Wire> wires;                        // of one_switch and racks: [host]; of paths: of each path
  std::vector<size_t> rack_of;                    // of racks: [host]
  std::vector<Wire> uplinks;                      // of racks: [rack]
  size_t kinds = 0;                               // that `wires` have
  double latency_error = 0, bandwidth_error = 0;  // of the worst path, relative
};

// Wires whose bandwidths and latencies differ by less are of one kind.
inline constexpr double alike = 0.05;
// Paths may be so far off from a switch that explains them.
inline constexpr double fits = 0.15;

// No path is further off than `fits`.
bool explains(const NetworkShape& shape);

NetworkShape network_shape(size_t hosts, std::span<const Path> paths);

}  // namespace nlsplit::inline survey
