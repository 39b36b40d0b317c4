// A collective operation: what several devices do together. A Program has it expanded into sends, receives and sums;
// the instructions of each device name the collective that they are part of.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline program {

enum class CollectiveKind : uint8_t {
  all_reduce,  // every member has the sum of all members' values
};
std::string_view name_of(CollectiveKind kind);  // all-reduce

// How an all-reduce of n members and S bytes is done; compile/collectives.h has the messages and the order of sums.
enum class CollectiveAlgorithm : uint8_t {
  ring,      // 2 (n - 1) rounds of S / n
  halving,   // recursive halving and doubling: 2 log2 n rounds of S / 2, S / 4, …
  doubling,  // recursive doubling: log2 n rounds of S
  direct,    // 2 rounds, in each S / n to every other member
  tree,      // to the first member and back: 2 log2 n rounds of S
  two_level  // a tree on each host, a ring of the hosts' first members, and a tree back
};
std::string_view name_of(CollectiveAlgorithm algorithm);
std::span<const CollectiveAlgorithm> all_algorithms();
Result<CollectiveAlgorithm> parse_algorithm(std::string_view text);  // error: unknown, with the list

struct Collective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  std::vector<int> group;  // devices of the Program; the algorithm knows them by their place here
  friend bool operator==(const Collective&, const Collective&) = default;
};

}  // namespace nlsplit::inline program
