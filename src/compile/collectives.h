// Collectives, expanded into the instructions of one member.
#pragma once

#include <span>
#include <vector>

#include "compile/collective_rounds.h"
#include "graph/memory.h"
#include "program/program.h"

namespace nlsplit::inline compiler {

struct CollectivePlaces {
  Operand value;
  Operand result;     // of an all-to-all; of all others the value itself
  BufferId received;  // of received_elements()
  int tag = 0;
  // Messages of a type of fewer bits than the value's: of message_room(). The rounds have a grain of `converted_grain`.
  // All members end with the same bits: a member rounds what it sends to be added in its own value too, and sums that
  // others will get as copies are rounded where they are made (sums_are_copied).
  BufferId outgoing = {}, incoming = {};
};

// Elements of f32: conversions write to aligned places (graph/memory.h).
inline constexpr int64_t converted_grain = arena_alignment / 4;

// A conversion is a `compute` without a desc: its caller knows the kernel.
struct RoundInstrs {
  std::vector<Instr> begin;   // conversions of what is sent, and the messages
  std::vector<Instr> finish;  // when what is received is there: conversions of it, and the sums
};

// Round r of the rounds of a member, or of all. group: devices, by member. The terms of a sum stand in the order of the
// members.
RoundInstrs instructions_of(const std::vector<Piece>& round, std::span<const int> group, int member,
                            const CollectivePlaces& places, bool sums_are_copied = false);
// Whether the sums of round r are the last ones, and are sent as copies later. rounds: of all members.
bool sums_are_copied(const Rounds& rounds, size_t r);

// Elements that messages of another type take on their way in a round of a member.
struct MessageRoom {
  int64_t outgoing = 0, incoming = 0;
};
MessageRoom message_room(const Rounds& rounds, int member);

}  // namespace nlsplit::inline compiler
