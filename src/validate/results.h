// Runs of a set of plans, appended to a file one by one, so that an interrupted validation can resume.
//
//   ASSIGN_OR_RETURN(ResultsFile file, ResultsFile::open("results.jsonl", set, machine));
//   if (!file.has(fingerprint, round)) RETURN_IF_ERROR(file.append(run));
//   const std::vector<ValidatedPlan> plans = join(set, file.runs());   // predicted beside measured
//
// Lines of JSON. The first: {"format": "nlsplit-validation", "version": 4, "model", "batch", "machine"}; then a run
// each, in the order in which they were made:
// {"fingerprint", "round", "launch", "control", "makespans_s", "calibrations_s", "latency_mean_s", "compute_s",
// "messages_s", "timeline"} or
// {"fingerprint", "round", "launch", "control", "error"}.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "validate/plan_set.h"
#include "validate/statistics.h"

namespace nlsplit::inline validation {

struct PlanRun {
  std::string fingerprint;  // of the Program
  int round = 0;
  int launch = 0;        // runs of one launch followed each other without a pause
  bool control = false;  // of PlanSet::control
  std::string error;     // not empty: it failed, and has no figures
  std::vector<double> makespans_s;
  std::map<std::string, std::vector<double>>
      calibrations_s;  // by device; of its core before each execution: base/calibration.h
  double latency_mean_s = 0;
  std::vector<double> compute_s;  // by device
  double messages_s = 0;
  std::string timeline;
};

class ResultsFile {
 public:
  // Opens or begins it. What an interruption left half-written at its end is cut off. Errors: it is of another model,
  // batch or machine, not such a file, or cannot be written.
  static Result<ResultsFile> open(const std::string& path, const PlanSet& set, const std::string& machine);

  const std::vector<PlanRun>& runs() const { return runs_; }
  bool has(const std::string& fingerprint, int round) const;  // and it did not fail; controls do not count
  int next_launch() const;                                    // a number that no run has
  Status append(const PlanRun& run);                          // on disk when this returns

 private:
  std::string path_;
  std::vector<PlanRun> runs_;
};

// The executions of a run during which no device's core was slower than at its best, judged by all runs there are: a
// processor may have been slow during all of this one.
std::vector<size_t> undisturbed(const PlanRun& run, const std::map<std::string, double>& best);
// By device, of all runs and what was known before.
std::map<std::string, double> best_calibrations(const std::vector<PlanRun>& runs,
                                                const std::map<std::string, double>& known);

// The figures `nlbench run --json` wrote.
Result<PlanRun> parse_run(const std::string& text, const std::string& file);

// A plan and all its runs.
struct ValidatedPlan {
  const PredictedPlan* predicted = nullptr;
  std::vector<const PlanRun*> runs;  // that did not fail
  std::string error;                 // of the last one that did, if none did not
  Outcome outcome;                   // if there are runs: over all their repeats
  // The same as if computing had been as fast as predicted in each run: the control says how fast it was, before and
  // after that run in its launch, and PredictedPlan::makespan_by_computing how much of that is in the plan's figure. Of
  // the runs that have a control; none: no run has, or the control mostly waits for messages.
  std::optional<Outcome> relative = {};
  bool disturbed = false;  // in all of them a processor was slower than at its best
  // Relative to what was predicted: the computing of the device that was to compute longest, and all messages' times
  // (clocks of hosts agree as well as their starts do: to about a message's latency).
  double compute_error = 0, message_error = 0;
};
// Of the plans that ran and have messages: absolute values. None: no plan.
struct ErrorSources {
  std::optional<Quantiles> computing, messages;
};
ErrorSources error_sources(const std::vector<ValidatedPlan>& plans);

// The figures that order and regret use: relative to the control if there is one, since a disturbance slows down the
// plan and the control alike.
const Outcome& judged(const ValidatedPlan& plan);  // that has runs

// Over the plans that ran. None: fewer than two. relative: of those that have figures relative to the control.
std::optional<Quality> quality_of(const std::vector<ValidatedPlan>& plans);
std::optional<Quality> relative_quality_of(const std::vector<ValidatedPlan>& plans);

// The control's times in all launches. None: there is no control, or it has not run.
struct ControlRuns {
  Figure makespan;  // seconds for the whole batch
  size_t runs = 0;
};
std::optional<ControlRuns> control_runs(const PlanSet& set, const std::vector<PlanRun>& runs);

std::vector<ValidatedPlan> join(const PlanSet& set, const std::vector<PlanRun>& runs);

}  // namespace nlsplit::inline validation
