// A Trace as a file that chrome://tracing and https://ui.perfetto.dev open: a process for each device, a thread for
// each stream. Format: "Trace Event Format" (Google), JSON object with complete events ("X") and metadata ("M"); times
// in microseconds.
#pragma once

#include <string>

#include "program/trace.h"

namespace nlsplit::inline reports {

// The fingerprint stands under "otherData", so that two traces can be told to be of one Program.
std::string chrome_trace(const Program& program, const Trace& trace);

}  // namespace nlsplit::inline reports
