// The states of a session as they are at one moment: weights that are trained, what an optimizer keeps of them, counts.
// A plan decides where a state lies, in one piece or in parts (program/state_parts.h), not what it is called or holds,
// so states that one plan has left can be placed under another.
//
//   ASSIGN_OR_RETURN(const std::vector<StateTensor> now, collect_states(joined, arena, transport, waiting));
//   RETURN_IF_ERROR(place_states(joined, now, place, transport, waiting));     // of another session, before it begins
#pragma once

#include <span>
#include <string>
#include <vector>

#include "exec/collectives.h"
#include "exec/distribute.h"
#include "exec/run.h"
#include "program/program.h"

namespace nlsplit::inline exec {

// All states, once each and whole: replicas have the same. Caches, which have an instance for each micro-batch of
// sequences, belong to those and are left out.
std::vector<StateTensor> states_of(const Program& joined);  // without their bytes, by device and buffer

// On rank 0 all of them, by name, elsewhere none. `joined`: on rank 0 of all devices. `arena`: the host's. All ranks
// call both.
Result<std::vector<StateTensor>> collect_states(const Program& joined, std::byte* arena, Transport& transport,
                                                const Waiting& waiting);
// `states`: on rank 0. Those that are not among them stay as they are. Errors, the same on all ranks: the Program has
// no such state, or one of another type; the bytes are not as many as the type has.
Status place_states(const Program& joined, std::span<const StateTensor> states, const PlaceContent& place,
                    Transport& transport, const Waiting& waiting);

}  // namespace nlsplit::inline exec
