// Collectives, expanded into the instructions of one member.
#pragma once

#include <span>
#include <vector>

#include "compile/collective_rounds.h"
#include "program/program.h"

namespace nlsplit::inline compiler {

struct CollectivePlaces {
  Operand value;
  Operand result;     // of an all-to-all; of all others the value itself
  BufferId received;  // of received_elements()
  int tag = 0;
};

// rounds: the member's, or all. group: devices, by member. The terms of a sum stand in the order of the members.
std::vector<Instr> instructions_of(const Rounds& rounds, std::span<const int> group, int member,
                                   const CollectivePlaces& places);

}  // namespace nlsplit::inline compiler
