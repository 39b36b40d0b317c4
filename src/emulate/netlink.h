// What `ip link`, `ip address` and `ip route` do, for the network namespace of the calling thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace nlsplit::inline emulation {

struct InterfaceOptions {
  uint32_t address = 0;    // IPv4, host byte order
  int prefix = 16;         // bits of it that all places have in common
  int mtu = 0;             // bytes
  int queue = 0;           // packets that may wait for the switch
  int largest_burst = 0;   // bytes TCP hands over in one piece at most; 0: as it likes
  int initial_window = 0;  // segments TCP may send, and let others send, before it has learned anything; 0: Linux's
  std::string congestion;  // TCP's congestion control towards the others; empty: Linux's
  bool needs_neighbours = true;  // Ethernet: false turns off the asking for addresses
};

Status raise_loopback();
// Up, with its address and the route to the others.
Status raise_interface(const std::string& name, const InterfaceOptions& options);
// A pair of Ethernet ends: `name` here, `peer` in the namespace open as peer_namespace.
Status add_veth(const std::string& name, const std::string& peer, int peer_namespace);
// Packets to this address leave over `name`.
Status add_route_to(uint32_t address, const std::string& name);

// What `tc qdisc add dev NAME root tbf` does: packets leave at `rate`, after a pause up to `burst` at once, and wait in
// a queue of `limit` meanwhile. What finds it full is thrown away. Bytes with their Ethernet headers.
struct TokenBucket {
  uint64_t rate = 0;   // byte/s
  uint32_t burst = 0;  // at least the largest packet
  uint32_t limit = 0;
};
Status add_token_bucket(const std::string& name, const TokenBucket& bucket);

}  // namespace nlsplit::inline emulation
