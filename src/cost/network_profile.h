// What messages between hosts take, as `nlbench network` measured it and scenarios name it.
#pragma once

#include <string>
#include <vector>

#include "cost/cluster.h"

namespace nlsplit::inline cost {

struct RouteEnds {
  std::string from, to;  // hosts
  friend auto operator<=>(const RouteEnds&, const RouteEnds&) = default;
};

struct NamedRoute {
  std::string from, to;  // hosts
  MessageCost eager, rendezvous;
  Overheads overheads;
  double largest_error = 0;  // of the two lines over the sizes measured, relative
  // Of large messages while others come the other way: each way's. 0: not measured, there is one way only.
  BytesPerSecond crossing{};
  Seconds clear_to_send_delay = seconds(0);  // cost/cluster.h, MeasuredRoute; 0 also: not measured
  bool starts_early = false;                 // the same; false also: not measured
  // Not measured itself: its figures are the medians of these routes of the file, which were, and which the scenario
  // describes alike. Empty: measured.
  std::vector<RouteEnds> median_of = {};
};

struct NetworkProfile {
  std::string file;       // where it was read from, for messages
  std::string machine;    // of rank 0
  std::string transport;  // "mpi"; empty: the file does not say
  Bytes eager_limit;
  std::vector<NamedRoute> routes;
};

// JSON {"format": "nlsplit-network", "version": 4, "machine": …, "transport": …, "eager_limit_bytes": …, "routes":
// [{"from", "to", "eager": {"latency_s", "bytes_per_s"}, "rendezvous": {…}, "overheads": {"sender_s_per_byte",
// "receiver_s_per_byte", "slowed", "busy_s", "held_s", "handover_s_per_byte"}, "largest_error", "crossing_bytes_per_s",
// "clear_to_send_delay_s", "starts_early"}]}, and "median_of": [{"from", "to"}] where a route was not measured itself.
// Errors: not JSON, another format or version, missing or impossible figures, a route twice, the median of a route that
// the file did not measure; each names the file and entry.
Result<NetworkProfile> read_network_profile(const std::string& path);
Status write_network_profile(const std::string& path, const NetworkProfile& profile);

// Adds the measured routes and the eager limit to the cluster. Ignores hosts that the cluster does not have.
void apply(const NetworkProfile& profile, Cluster& cluster);

}  // namespace nlsplit::inline cost
