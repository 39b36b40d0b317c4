// The messages of a collective: a list of rounds. A round's messages carry what their senders hold when it begins.
//
//   const Rounds rounds = rounds_of({CollectiveKind::all_reduce, CollectiveAlgorithm::ring, group, {1000}}, hosts);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cost/cluster.h"
#include "program/collective.h"

namespace nlsplit::inline compiler {

// Elements [begin, end) of a member's value, to another one, who has them from `at` on. from == to: a copy.
struct Piece {
  int from = 0, to = 0;  // members: places in the group
  int64_t begin = 0, end = 0;
  bool adds = false;  // to what the receiver has; else in its place
  int64_t at = 0;     // the same as begin, but in an all-to-all: there, a place in the result
  int64_t count() const { return end - begin; }
};
using Rounds = std::vector<std::vector<Piece>>;

// hosts: of each member. grain: shares of a whole value begin at multiples of so many elements. Pieces of no elements
// are left out, and so are rounds of none.
//   ring       Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009. A
//              broadcast: the first member gives everybody a share, then a ring of those (van de Geijn)
//   halving, doubling
//              Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
//              If n is no power of two, each member behind the largest power p has the one p before it stand in for
//              it: in one round more before, and one behind
//   two_level  a share's members are those of one host
// A member's result of an all-to-all is its share of each member's value, in their order.
Rounds rounds_of(const Collective& collective, std::span<const HostId> hosts, int64_t grain = 1);

// [member]: the pieces that it sends or receives.
std::vector<Rounds> rounds_of_members(const Rounds& rounds, size_t members);

// Elements a member needs beside its own: of what arrives in one round to be added.
int64_t received_elements(const Rounds& rounds, int member);
std::vector<int64_t> received_by_members(const Rounds& rounds, size_t members);  // of each

}  // namespace nlsplit::inline compiler
