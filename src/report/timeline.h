// A Trace as the bars of a Gantt chart: what reports draw.
#pragma once

#include <string>

#include "program/trace.h"

namespace nlsplit::inline reports {

// JSON {"devices": ["A", "B"], "makespan_s": …, "bars": [[device, lane, micro-batch, stage, start_s, finish_s], …]}.
// lane 0: the computations of one slot, from the first to the last; 1: a message from ready until its buffer is free.
// micro-batch -1: none. Computations without any duration are left out.
std::string timeline_json(const Program& program, const Trace& trace);

}  // namespace nlsplit::inline reports
