// Slowness: a device that is slower at times.
//
//   const Slowness slow = {{0, 1}, {2, 3}, {8, 1}};   // from second 2 to 8 it takes three seconds for one
//   end_of(slow, 1, 2);                               // 5: one second before, then one that takes three
//   done_between(slow, 1, 5);                         // 2
#pragma once

#include <vector>

namespace nlsplit::inline sim {

struct SpeedChange {
  double from = 0;      // seconds since the start
  double slowness = 1;  // from then on: seconds for one second of computing; at least 1
  friend bool operator==(const SpeedChange&, const SpeedChange&) = default;
};
using Slowness = std::vector<SpeedChange>;  // by time, the first from 0; empty: as fast as its costs say, always

// When `work` seconds of computing are done that begin at `now`.
double end_of(const Slowness& slowness, double now, double work);

// The seconds of computing that are done from `from` to `to`.
double done_between(const Slowness& slowness, double from, double to);

// Takes `slowdown` times as long from `from` until `until`, on top of what was.
void slow_down(Slowness& slowness, double slowdown, double from, double until);

}  // namespace nlsplit::inline sim
