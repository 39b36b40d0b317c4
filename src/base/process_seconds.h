// The processor time of this process.
#pragma once

#include <time.h>

namespace nlsplit::inline base {

// Seconds of computing that this process has had, all threads together.
inline double process_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace nlsplit::inline base
