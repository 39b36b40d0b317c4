// In which order an algorithm adds up the members' values, and so which bits a sum has. All members get the same bits:
// a sum is made once, or by members that make the same one.
//
//   to_string(sum_tree(collective, hosts, 0))      // "((0+1)+(2+3))"
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cost/cluster.h"
#include "program/collective.h"

namespace nlsplit::inline compiler {

// The value of a member, or the terms' sum, one after the other from the first one on.
struct SumTree {
  int member = -1;
  std::vector<SumTree> terms;
  friend bool operator==(const SumTree&, const SumTree&) = default;
};
std::string to_string(const SumTree& tree);

// Of one element of an all-reduce, or of a reduce-scatter.
//   ring       from member to member. Of an all-reduce the k-th of n equal parts from member k on; of a reduce-scatter
//              the share of member k from k + 1 on, so that it ends there
//   halving    pairs of members 2^k apart, the nearest last
//   doubling   pairs of members 2^k apart, the nearest first
//   direct     members in their order
//   tree       as doubling
//   two_level  a tree of the members of each host, then a ring of the hosts
// If n is no power of two, halving and doubling first add each member behind the largest power p to the one p before
// it. Of two terms the one made by the member that comes first stands first.
SumTree sum_tree(const Collective& collective, std::span<const HostId> hosts, int64_t element);

}  // namespace nlsplit::inline compiler
