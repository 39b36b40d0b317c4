// Is this Program sound? Every message names device, slot and instruction.
#pragma once

#include <cstdint>
#include <vector>

#include "program/dependencies.h"
#include "program/program.h"

namespace nlsplit {

// Ids, slices, banks and places in range; names unique. What parse_program promises, and all other functions rely on.
Status check_structure(const Program& program);

// The structure; every compute's types fit its operator and its kernel accepts it; every send has one matching recv
// (peer, tag, bytes, order); every micro-batch runs exactly once through every (stage, shard, phase); the dry run ends;
// buffers that overlap in an arena are separated by happens-before; arenas fit in the devices' memory.
Status verify(const Program& program);

// Executes the dependencies with every message as rendezvous and answers the order it found (a topological one, send
// and recv of a message next to each other). What ends here cannot deadlock, whatever the eager limit. Error: the
// circle of instructions that wait for each other.
Result<std::vector<uint32_t>> dry_run(const Program& program, const Dependencies& dependencies);

// Buffers that overlap in their arena must never hold values at the same time. Part of verify.
Status check_overlaps(const Program& program, const Dependencies& dependencies, const std::vector<uint32_t>& order);

}  // namespace nlsplit
