// Collectives, written out as sends, receives and sums.
#pragma once

#include <functional>
#include <vector>

#include "program/program.h"

namespace nlsplit {

// Ring all-reduce of `values` among the devices of `ring` (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms
// for clusters of workstations", 2009), as device `self` runs it: a chunk's sum is made in the order of the ring,
// beginning behind the device where it ends. The instructions are a collective of the segment. make_chunk: a buffer for
// so many elements.
std::vector<Instr> all_reduce_ring(Segment& segment, const std::vector<int>& ring, int self, const Operand& values,
                                   int tag, const std::function<BufferId(int64_t)>& make_chunk);

}  // namespace nlsplit
