// Collectives, expanded into messages. Every algorithm is a list of rounds; a round's messages carry what their senders
// hold when it begins.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "cost/cluster.h"
#include "program/collective.h"
#include "program/program.h"

namespace nlsplit::inline compiler {

// Elements [begin, end) of the value, from one member to another.
struct Piece {
  int from = 0, to = 0;  // members: places in the group
  int64_t begin = 0, end = 0;
  bool adds = false;  // to what the receiver has; else in its place
};
using Rounds = std::vector<std::vector<Piece>>;

// hosts: of each member. Where the sums of an element begin and in which order they go on:
//   ring       chunk k (of n equal ones) at member k, then along the ring to member k - 1 (Patarasuk and Yuan,
//              "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009)
//   halving    pairs of members 2^k apart, the nearest last (Rabenseifner; Thakur, Rabenseifner and Gropp,
//   "Optimization
//              of collective communication operations in MPICH", 2005)
//   doubling   pairs of members 2^k apart, the nearest first (the same)
//   direct     members in their order
//   tree       pairs of members 2^k apart, the nearest first, at the first of the two (a binomial tree)
//   two_level  tree among the members of a host, then ring among the hosts
// If n is no power of two, halving and doubling first add each member behind the largest power p to the one p before
// it.
Rounds rounds_of(CollectiveAlgorithm algorithm, std::span<const HostId> hosts, int64_t elements);

// Where members are, and what they need for a sum of so many operands of so many elements: seconds; infinity: unknown.
struct CollectiveCosts {
  std::span<const HostId> hosts;
  const Cluster& cluster;
  int64_t element_bytes = 4;
  std::function<double(int member, size_t operands, int64_t elements)> sum = {};  // none: no time
};

// One round after the other. A round takes as long as its slowest message, or as long as the busiest link needs for all
// the bytes of the round, and then as long as the slowest member's sums. Error: members that cannot reach each other.
Result<double> seconds_of(const Rounds& rounds, const CollectiveCosts& costs);

// Elements a member needs beside its own: of what arrives in one round to be added.
int64_t received_elements(const Rounds& rounds, int member);

// The fastest of those whose sums are known; of those that no prediction could tell apart, the one whose members need
// the least memory.
// Error: members that cannot reach each other.
Result<CollectiveAlgorithm> choose_algorithm(int64_t elements, const CollectiveCosts& costs);

// What one member does. group: devices, by member; received: a buffer of received_elements().
std::vector<Instr> instructions_of(const Rounds& rounds, std::span<const int> group, int member, const Operand& value,
                                   BufferId received, int tag);

}  // namespace nlsplit::inline compiler
