// What several simulators say of one plan, and how far apart they are.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ranking/ranking.h"
#include "scenario/scenario.h"

namespace nlsplit::inline tools {

struct Opinion {
  std::string name, title;
  double makespan_s = 0;
};

struct Opinions {
  std::vector<Opinion> all;
  size_t judge = 0;       // whose word counts elsewhere: SimGrid's
  double throughput = 0;  // of the plan, in samples/s, times its makespan
};

// Every tier's, and that of SMPI's replay of `folder` (sim/smpi/replay_files.h). Errors: a simulator's; no smpirun.
Result<Opinions> ask_opinions(const Scenario& scenario, const TimedPlan& timed, const std::string& folder);

// The largest makespan less the smallest, of the judge's.
double spread_of(const Opinions& opinions);

std::string opinions_text(const Opinions& opinions);
nlohmann::json opinions_json(const Opinions& opinions);

}  // namespace nlsplit::inline tools
