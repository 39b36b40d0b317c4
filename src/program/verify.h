// Is this Program sound? Every message names device, slot and instruction.
#pragma once

#include <cstdint>
#include <vector>

#include "program/dependencies.h"
#include "program/program.h"

namespace nlsplit::inline program {

// Ids, slices, banks and places in range; names unique. What parse_program promises, and all other functions rely on.
Status check_structure(const Program& program);

// The structure; every instruction touches no byte outside its operands: types fit the operator and the kernel, which
// accepts them, packed weights have the form it wants, its workspace is a scratch buffer of its own and suffices; every
// send has one matching recv (peer, tag, bytes, order); every micro-batch runs exactly once through every (stage,
// shard, phase); the dry run ends; buffers that overlap in an arena are separated by happens-before; arenas fit in the
// devices' memory. What passes may be executed.
Status verify(const Program& program);

// The same, and the dependencies that it found on the way.
Result<Dependencies> verified(const Program& program);

// What a device needs that does not want to rely on others: all that concerns its own memory, and that its messages
// match and come. The instructions, micro-batches and memory of other devices are not looked at.
Result<Dependencies> verified_device(const Program& program, size_t device);

// Executes the dependencies with every message as rendezvous and answers the order it found (a topological one, send
// and recv of a message next to each other). What ends here cannot deadlock, whatever the eager limit. Error: the
// circle of instructions that wait for each other.
Result<std::vector<uint32_t>> dry_run(const Program& program, const Dependencies& dependencies);

}  // namespace nlsplit::inline program
