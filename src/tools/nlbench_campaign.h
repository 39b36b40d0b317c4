// Campaign: runs the plans of a set interleaved, in as few launches as possible, and saves each result at once.
//
//   Campaign campaign(launch, folder, set, results, pace);
//   RETURN_IF_ERROR(campaign.run(plans, {0, 3}));         // rounds 0, 1 and 2 of these plans
//
// A round runs each plan once, in another order than the round before, with the control before the first one; the
// control also ends a launch. Runs that are in the results are not repeated. A plan whose rank is lost ends the
// launch; another launch continues with the plans after it.
#pragma once

#include <string>
#include <vector>

#include "measure/launch.h"
#include "validate/results.h"

namespace nlsplit::inline tools {

struct Pace {
  std::string duration;  // of a turn, at least
  int repeats = 1;       // executions in a turn, at least
};

struct Rounds {
  int first = 0, end = 1;
};

class Campaign {
 public:
  // folder: what `nlsim lower --validation-set` saved. All are borrowed.
  Campaign(const LaunchArguments& launch, const std::string& folder, const PlanSet& set, ResultsFile& results,
           Pace pace);

  // Ends early after an interrupt, and when so many plans failed one after the other that the others will not run
  // either. doing: for the progress line. Errors: no launch can be started, results cannot be kept.
  Status run(const std::vector<const PredictedPlan*>& plans, Rounds rounds, const std::string& doing);

  bool gives_up() const;  // after an interrupt, and as above
  size_t losses() const { return losses_; }

 private:
  struct Planned {
    const PredictedPlan* plan = nullptr;
    int round = 0;
    bool control = false;
    std::string figures;
  };
  std::vector<Planned> missing(const std::vector<const PredictedPlan*>& plans, Rounds rounds) const;
  std::vector<int> ranks_of(const PredictedPlan& plan) const;
  void add_control(std::vector<Planned>& planned, int round) const;
  Result<bool> launch_once(std::vector<Planned>& planned, const std::string& doing);
  Status collect(const std::vector<Planned>& planned, int launch, size_t& done);
  Status keep(PlanRun run, const Planned& planned, int launch);

  const LaunchArguments& launch_;
  const std::string& folder_;
  const PlanSet& set_;
  ResultsFile& results_;
  const Pace pace_;
  std::vector<std::string> hosts_;  // of the ranks that plans need
  std::vector<int> ranks_;          // of each of those
  size_t failures_ = 0;             // one after the other
  size_t losses_ = 0, all_ = 0, kept_ = 0;
};

}  // namespace nlsplit::inline tools
