// A collective operation: what several devices do together. A Program has it expanded into sends, receives and sums;
// the instructions of each device name the collective that they are part of.
//
//   collective reduce-scatter ring of A, B, C elements 4, 4, 3 { … }
//
// A *native* collective is run by one call of the transport's own collective instead, which begins when the value is
// ready and ends with the result. Its instructions specify the call, and simulators time them.
//
//   collective all-reduce tree of A, B, C elements 300 native gradients[0:300] { … }
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "program/operand.h"

namespace nlsplit::inline program {

// A value is cut into shares, one for each member, in their order.
enum class CollectiveKind : uint8_t {
  all_reduce,      // every member has the sum of all members' values
  reduce_scatter,  // every member has its share of that sum
  all_gather,      // every member has all shares, of which each had its own
  all_to_all,      // every member has its share of each member's value, in their order
  broadcast,       // every member has the first one's value
};
std::span<const CollectiveKind> all_kinds();
std::string_view name_of(CollectiveKind kind);                   // all-reduce
Result<CollectiveKind> parse_collective(std::string_view text);  // error: unknown, with the list
bool adds_up(CollectiveKind kind);
// Whether its value is one thing to all members. Else every member has a share of it.
bool is_whole(CollectiveKind kind);

// How n members do it with S bytes; compile/collective_rounds.h has the messages, compile/sum_tree.h the order of sums.
enum class CollectiveAlgorithm : uint8_t {
  ring,      // n - 1 rounds of S / n, each member to the next one; an all-to-all: to the one r places on in round r
  halving,   // recursive halving: log2 n rounds of S / 2, S / 4, …; where all get all, then doubling
  doubling,  // recursive doubling: log2 n rounds, of S or of twice as many shares each time
  direct,    // one round, to every other member what it gets; an all-reduce: two
  tree,      // a binomial tree: log2 n rounds of S; an all-reduce: to the first member and back; a reduce-scatter: to
             // the first member, which gives each its share
  two_level  // a tree on each host, a ring (of a broadcast: a tree) of the hosts' first members, and a tree back
};
std::string_view name_of(CollectiveAlgorithm algorithm);
std::span<const CollectiveAlgorithm> algorithms_of(CollectiveKind kind);
Result<CollectiveAlgorithm> parse_algorithm(CollectiveKind kind, std::string_view text);  // error: the kind has none
// Whether every sum has the members in their order, one after the other, wherever it is made.
bool adds_in_order(CollectiveAlgorithm algorithm);

// The device's bytes that a native collective works on. The result overwrites the value, except for an all-to-all.
struct NativeBytes {
  Operand value, result;
  friend bool operator==(const NativeBytes&, const NativeBytes&) = default;
};

struct Collective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  std::vector<int> group;                  // devices of the Program; the algorithm knows them by their place here
  std::vector<int64_t> elements;           // of the value, if it is whole; else of each member's share
  std::optional<NativeBytes> native = {};  // none: its instructions are run
  friend bool operator==(const Collective&, const Collective&) = default;
};
int64_t value_elements(const Collective& collective);
int64_t result_elements(const Collective& collective, size_t member);  // of an all-to-all not those of the value
// Whether two members take part in the same collective, each with its own bytes.
bool same_collective(const Collective& a, const Collective& b);
// The elements that a member must receive at least, whatever the algorithm. member: its place in the group.
int64_t least_received(const Collective& collective, size_t member);

// Error: a group of fewer than two devices or with one twice, an algorithm of another kind, not as many sizes as there
// must be, or sizes that no value has.
Status check_collective(const Collective& collective, size_t devices);

}  // namespace nlsplit::inline program
