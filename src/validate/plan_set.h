// A set of plans to run for real, with what was predicted of each: what `nlsim lower --validation-set` writes and
// `nlbench validate` reads.
//
//   DIR/plans.json   the list
//   DIR/p1 …         a saved Program each (program/saved.h); DIR/control is that of the unsplit network
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline validation {

struct PredictedPlan {
  std::string folder;                    // within DIR
  std::string text;                      // the plan, for people
  std::vector<std::string> stages = {};  // and for parse_stages
  int micro_batches = 1;
  std::string schedule;
  std::string fingerprint;  // of its Program
  size_t number = 0;        // in the ranking that chose it; 0: drawn at random, and worse than those that were ranked
  bool sampled = false;     // drawn at random
  bool in_confidence_set = false;           // Ranking::confidence, for PlanDraw::confidence
  std::vector<std::string> devices, hosts;  // of the Program, so by rank
  // Of a plan that generates text: the time of each token (TPOT), the tokens of all sequences in a second, and the time
  // to the first token (TTFT).
  double makespan_s = 0, throughput = 0, latency_mean_s = 0;
  // d ln makespan / d ln time of all computing, and of the latency: 1 where only computing takes time, 0 where links
  // do.
  double makespan_by_computing = 1, latency_by_computing = 1;
  std::vector<double> compute_s;  // by device
  double messages_s = 0;          // of all messages together, from ready until their buffers are free
  std::string timeline;           // report/timeline.h
};

// The options that a set was made with.
struct PlanDraw {
  size_t top = 0, also = 0;
  uint64_t seed = 1;
  double confidence = 0;  // of a set that holds the best plan; 0: not asked for
  friend bool operator==(const PlanDraw&, const PlanDraw&) = default;
};

// The scenario's objective as a score; smaller is better.
struct Judge {
  std::string objective = "throughput";
  double per_makespan = 1, per_latency = 0;
  double score(double makespan_s, double latency_s) const {
    return per_makespan * makespan_s + per_latency * latency_s;
  }
};

struct PlanSet {
  std::string scenario, model;
  int64_t batch = 1;
  std::vector<PredictedPlan> plans;  // in the order of the ranking that chose them
  // The unsplit network on the device where it is best. It runs before and after each round of the plans, and what it
  // takes then says how fast the machines are in that minute. None: it fits nowhere.
  std::optional<PredictedPlan> control = {};
  Judge judge = {};
  std::map<std::string, double> calibrations_s =
      {};  // by device: of its processor at its best (Profile::calibration_s), where known
  PlanDraw draw = {};
  bool generates = false;  // its plans are sessions that generate text
};

std::string to_json(const PlanSet& set);
// Errors: not JSON, another format or version, missing figures; they name `file`.
Result<PlanSet> parse_plan_set(const std::string& text, const std::string& file);

}  // namespace nlsplit::inline validation
