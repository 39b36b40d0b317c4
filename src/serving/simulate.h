// A server in simulated time: the same queue and the same batch as the real one's, driven by what executions take.
#pragma once

#include <vector>

#include "serving/admission.h"
#include "serving/arrivals.h"
#include "serving/served.h"

namespace nlsplit::inline serving {

// Seconds of an execution: from one choice to the next. Attention makes it grow in a straight line with the positions
// that it sees, so by their mean over the slots (those that do nothing see none).
struct ExecutionTime {
  double at_none_s = 0, per_position_s = 0;
};

// Of so many sequences.
struct DecodeTime {
  int64_t sequences = 1;
  ExecutionTime time;
};

// With caches in pages a prefill is of one sequence.
struct ServerTimes {
  ExecutionTime prefill, decode;
  double copied_position_s = 0;        // that one slot lends another one
  std::vector<DecodeTime> fewer = {};  // decodes of fewer sequences than there are slots, ascending
};

// [request], in the order of the trace. A request that never fits the context fails.
std::vector<ServedRequest> simulate_serving(const RequestTrace& trace, const BatchForm& form, int64_t most_waiting,
                                            const ServerTimes& times, PrefixReuse reuse);

}  // namespace nlsplit::inline serving
