// Is this Program sound? Every message names device, slot and instruction.
#pragma once

#include "program/dependencies.h"
#include "program/program.h"

namespace nlsplit {

// Ids in range; every compute's types fit its desc and its kernel accepts it; every send has one matching recv (peer, tag, bytes,
// order); buffers that overlap in an arena are separated by happens-before; arenas fit in the devices' memory; every micro-batch
// runs exactly once through every (stage, shard, phase); and the dry run ends.
Status verify(const Program& program);

// Executes the dependencies with every message as rendezvous. What ends here cannot deadlock, whatever the eager limit.
// Error: the circle of instructions that wait for each other.
Status dry_run(const Program& program, const Dependencies& dependencies);

}  // namespace nlsplit
