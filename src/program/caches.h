// Caches of sessions that generate text: states in which each position of a sequence has its place. What is kept of a
// sequence can be cut to any length there, and copied to the place of another one.
//
//   if (!keeps_positions(session)) …                                // a ring of positions, a recurrent network
//   for (const Cache& cache : caches_of(program, device)) …         // one for keys and one for values of each layer
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"
#include "program/session.h"

namespace nlsplit::inline program {

struct Cache {
  BufferId buffer;  // instance m: of the sequences of micro-batch m
  int desc = 0;     // index into Program::descs: a TensorScatter that writes it (kernels/layout.h, CacheUpdate)
};
// Of a device, of a Program or of a joined one; by buffer.
std::vector<Cache> caches_of(const Program& program, size_t device);

// Nothing else writes into a state of the session.
bool keeps_positions(const Session& session);

// [sequence]: those with the same number have their caches on the same devices. All do, unless replicas of a stage
// compute micro-batches of their own.
std::vector<int> cache_groups(const Session& session, int64_t sequences);

}  // namespace nlsplit::inline program
