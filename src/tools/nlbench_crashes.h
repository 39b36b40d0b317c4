// What a rank did last, when it crashes.
#pragma once

#include "exec/flight_recorder.h"

namespace nlsplit::inline tools {

// From now on a crash, of a kernel perhaps, writes the records before the process ends. They must outlive all threads.
void record_crashes(FlightRecords& records);

}  // namespace nlsplit::inline tools
