// What of a Program's order is left when an online policy chooses what its devices do next: everything but the places
// of the slots in their device's order.
//
//   ASSIGN_OR_RETURN(const RelaxedOrder relaxed, relax(program));
//   relaxed.devices[d][s].after     slots of the device that end before slot s may begin
//
// A device still runs one slot at a time, from its first computation to its last. What stays as the Program has it:
//   - the order within a slot
//   - data: what is read is what the Program's order would have read there; reuse: nothing is overwritten that somebody
//     still has to read. So two slots that touch the same memory, one of them writing, keep their order. Scratch is
//     each slot's own, unless some slot reads what it has not written.
//   - the order of the messages of one tag from one device to another. Messages of different tags may overtake each
//     other: their ends are told apart by the tag.
//   - the place of a slot that waits in its middle for what depends on its beginning, as in a ring: all slots of the
//     device before it come before it, and those behind it after it. All others have all that comes from outside before
//     they begin, so they end by themselves.
//
// Nothing can deadlock, whatever is chosen. All that is waited for are edges of a graph whose nodes are the messages,
// the computations of slots that keep their place, and the other slots as one node each. It has no circle: relax()
// gives a slot its place as long as one goes through it, and a circle through none but messages and computations of
// slots with a place would be one of the Program, whose order has none. So of what has not happened yet the first in an
// order of that graph waits for nothing but its device; and who has the device ends without it.
#pragma once

#include <vector>

#include "program/dependencies.h"

namespace nlsplit::inline program {

struct RelaxedSlot {
  // Slots of its device that end before it begins, ascending.
  std::vector<int> after;
  bool computes = false;  // else it has messages only, and no turn
  bool fixed = false;     // keeps its place
  bool chosen = false;    // F, I or W without a fixed place: a policy is asked. Others go as soon as they can
  ScheduledSlot slot;     // of stages: what a policy is told
};

struct RelaxedOrder {
  // The Program's, but stream edges bind only the computations of a slot and the messages of a tag, and the data and
  // reuse edges have a message at one end at least: those between computations are in `after`.
  Dependencies dependencies;
  std::vector<std::vector<RelaxedSlot>> devices;  // [device][slot]
};

// Of a Program that verify accepts. Errors: those of dependencies(); a Program that recomputes: a schedule has no place
// for that.
Result<RelaxedOrder> relax(const Program& program);

}  // namespace nlsplit::inline program
