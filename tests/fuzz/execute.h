// Executes what verify() accepts, watched: an access outside of what an instruction names is a finding.
//
// Of a device's arena an instruction may touch its operands and its workspace, nothing else. With AddressSanitizer all
// other bytes are poisoned while it runs (in granules of 8 bytes), and so are the guards before and behind the arena.
// In every build the bytes it must not write are compared afterwards. One thread plays all devices, in the order that
// the dry run finds.
#pragma once

#include <cstdint>

#include "exec/run.h"
#include "graph/weights.h"

namespace nlsplit::fuzz {

// A case above these is left out, so that a fuzzer has many small ones.
struct Limits {
  int64_t arena_bytes = 256 << 10;  // of each device
  size_t devices = 8;
  size_t instances = 256;             // instructions times the slots they run in
  double work = 4e6;                  // operations and bytes of all computations together
  int64_t compared_bytes = 32 << 20;  // arenas times instructions
  int workers = 16;                   // of a device
};

// The Program must have passed verify(). `seed` decides the inputs' values. Left out: what is beyond the limits, what
// run() refuses (contents that are missing or have another size), GPUs, training, levels this processor lacks.
// True: it was executed.
bool execute_watched(const Program& program, const ContentLookup& contents, uint64_t seed, const Limits& limits = {});

// Values for every content that the Program names, as large as its buffers want them.
ContentLookup seeded_contents(const Program& program, uint64_t seed);

// Lowers the graph to one device or to two, at a level this processor has, and executes that. All by the seed. Without
// weights their contents are seeded, too.
void execute_graph(const Graph& optimized, const WeightStore* weights, uint64_t seed);

// What an importer made of a file verifies, prints back, goes through the passes, and is executed.
void check_imported(const Model& model, uint64_t seed);

}  // namespace nlsplit::fuzz
