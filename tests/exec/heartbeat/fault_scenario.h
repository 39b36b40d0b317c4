// What happens in a simulated run (simulation.h): delays, strangers, and faults. Everything follows from the draws.
#pragma once

#include <string>
#include <vector>

#include "base/random.h"

namespace nlsplit {

inline constexpr double limit_s = 10, start_s = 60;  // the heartbeat's limit, and that of the start
inline constexpr double for_ever_s = 1e6;

struct Cut {
  int from, to;
  double begin_s, end_s;
};

// What is going to happen.
struct FaultScenario {
  int ranks = 2;
  double least_delay_s = 0, most_delay_s = 0, lateness_s = 0;  // lateness: of a thread that is due
  int victim = -1;                                             // of death or stop
  double dies_s = for_ever_s, stops_s = for_ever_s, goes_on_s = for_ever_s;
  int dies_after_steps = -1;
  std::vector<Cut> cuts;
  int strangers = 0, floods = 0;
  double odd_addresses = 0;  // share of ranks with addresses before the right one that lead nowhere
  int faults = 0;
  bool harmless = true;
  std::string text;
};

// Delays and faults of all kinds, or none.
FaultScenario choose(Random& random);
// One of so many ranks dies, nothing else.
FaultScenario choose_death(Random& random, int ranks, bool in_start);

}  // namespace nlsplit
