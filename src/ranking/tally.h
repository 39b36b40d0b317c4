// What a ranking has looked at, and what it left out and why. The phases that time and judge plans add to it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ranking/candidate.h"
#include "ranking/ranking.h"

namespace nlsplit::inline ranking {

struct Tally {
  // As in Ranking.
  double space = 0;
  size_t considered = 0, split_inside = 0, untimed = 0;
  bool interrupted = false;
  std::vector<Misfit> misfits;
  std::vector<OwnMisfit> own_misfits;
  std::vector<OwnLeftOut> own_left_out;
  std::vector<OwnRefused> own_refused;
  size_t unscheduled = 0, left_out = 0;
  std::string why_unscheduled, why_left_out;
  // Of the user's own plans, by name.
  std::map<std::string, size_t> own_pairs;    // of micro-batches and schedule, that may still be possible
  std::map<std::string, Error> own_troubles;  // why the first impossible pair is not possible
};

// A plan that cannot be compiled: more shards than rows, a split that training refuses. If the search found it, it is
// left out; if it is the user's, it is reported, and the others are ranked.
// Error: nothing is left of a plan of the user's for want of a cost, whose key stands in the error's fragment. A
// ranking without it would be no answer, and the cost can be measured.
Status leave_out(const Scenario& scenario, const Candidate& candidate, const Error& error, Tally& tally);
// A plan that its schedule does not exist for. Error: as above.
Status leave_out_unscheduled(const Scenario& scenario, const Candidate& candidate, const Error& error, Tally& tally);
// A plan that does not fit in a device's memory.
void count_misfit(const Misfit& misfit, const Candidate& candidate, Tally& tally);

// Why no plan is left.
Error nothing_fits(const Scenario& scenario, const Tally& tally);

// What the ranking reports of it.
void report_tally(Tally tally, Ranking& ranking);

}  // namespace nlsplit::inline ranking
