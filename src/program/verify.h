// Is this Program sound? Every message names device, slot and instruction.
#pragma once

#include <cstdint>
#include <vector>

#include "program/dependencies.h"
#include "program/program.h"

namespace nlsplit::inline program {

// Ids, slices, instances and places in range; names unique. What parse_program promises, and all other functions rely
// on.
Status check_structure(const Program& program);

// The structure; every instruction touches no byte outside its operands: types fit the operator and the kernel, which
// accepts them, packed weights have the form it wants, its workspace is a scratch buffer of its own and suffices; every
// send has one matching recv (peer, tag, bytes, order); every micro-batch runs exactly once through every (stage,
// shard, phase); the dry run ends; buffers that overlap in an arena are separated by happens-before; arenas fit in the
// devices' memory. What passes may be executed.
Status verify(const Program& program);

// The same, where its dependencies (program/dependencies.h) are known.
Status verify(const Program& program, const Dependencies& dependencies);

// The same, and the dependencies that it found on the way.
Result<Dependencies> verified(const Program& program);

// What a rank checks of the part it received (program/part.h), so that even a wrong part touches no byte outside its
// buffers: structure, instructions and memory. Returns the device's dependencies. verify() of the whole Program has
// checked that messages match and arrive, and that overlapping buffers are ordered.
Result<Dependencies> verified_part(const Program& part, size_t device);

// Executes the dependencies with every message as rendezvous. Returns a topological order, in which a message's send
// and recv are neighbours. A Program that passes cannot deadlock, whatever its eager limit. Error: the cycle of
// instructions that wait for each other.
Result<std::vector<uint32_t>> dry_run(const Program& program, const Dependencies& dependencies);

}  // namespace nlsplit::inline program
