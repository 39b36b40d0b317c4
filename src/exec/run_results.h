// What ranks tell rank 0 when the repeats of a run (exec/run.h) are over.
#pragma once

#include <cstddef>
#include <vector>

#include "exec/backend.h"
#include "exec/collectives.h"
#include "exec/hand_out.h"

namespace nlsplit::inline exec {

double last_finish(const std::vector<Interval>& times);

// All ranks call these, in the same order; errors are the same on all.

// Of the last `kept` repeats the one nearest the median of all. makespans_s: on rank 0; all ranks get its answer.
Result<size_t> choose_repeat(const std::vector<double>& makespans_s, size_t kept, Transport& transport,
                             const Waiting& waiting);

// Of all devices on rank 0, of the own one on the others. own: when each instance of this device ran.
Result<Trace> gather_trace(const Task& task, const std::vector<Interval>& own, const Backend& backend,
                           Transport& transport, const Waiting& waiting);

// On rank 0, of all devices: the order of their slots.
Result<std::vector<std::vector<int>>> gather_decided(const std::vector<int>& mine, Transport& transport,
                                                     const Waiting& waiting);

// On rank 0.
Result<size_t> sum_of_all(size_t mine, Transport& transport, const Waiting& waiting);

}  // namespace nlsplit::inline exec
