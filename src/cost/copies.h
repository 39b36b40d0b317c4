// What copies between a host and its GPU take: `nlbench profile` measures them, profiles keep them, and a GPU without a
// `bus` in its scenario gets one from them.
//
//   profile.copies->pinned.in.cost.latency + size / profile.copies->pinned.in.cost.bandwidth
#pragma once

#include <map>
#include <string>

#include "base/units.h"
#include "cost/cluster.h"
#include "cost/topology.h"

namespace nlsplit::inline cost {

struct CopyLine {
  MessageCost cost;
  double largest_error = 0;  // of the line over the sizes measured, relative
  friend bool operator==(const CopyLine&, const CopyLine&) = default;
};

// Of one kind of host memory.
struct Copies {
  CopyLine in, out;       // to the GPU, and from it
  BytesPerSecond both{};  // of each direction while the other is used too
  friend bool operator==(const Copies&, const Copies&) = default;
};

struct HostCopies {
  std::string gpu;          // "NVIDIA H200, sm_90, 139 GiB"
  Copies pinned, pageable;  // what messages pass through is page-locked
  friend bool operator==(const HostCopies&, const HostCopies&) = default;
};

// The line through the median seconds of several sizes. Error: longer copies took no longer.
Result<CopyLine> fit_copies(const std::map<int64_t, double>& seconds_of);

// Both directions of a bus are one figure: what a byte takes on the average of both. Full duplex if that is nearer to
// what was measured both ways at once.
Bus bus_of(const Copies& copies);

// latency + x / bandwidth with the least relative errors. Two sizes at least; the bandwidth is not positive where
// longer took no longer.
MessageCost line_through(const std::map<int64_t, double>& seconds_of);

}  // namespace nlsplit::inline cost
