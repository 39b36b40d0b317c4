// The main job: which plans are best for a scenario, how good are they, and is splitting worth it at all.
//
//   ASSIGN_OR_RETURN(const Scenario scenario, read_scenario("mine.yaml"));
//   ASSIGN_OR_RETURN(const Model model, load_model(scenario));
//   ASSIGN_OR_RETURN(const Ranking ranking, rank_plans(scenario, model, {}));
//   ranking.judged[0].text;                  // the best plan: "A ..features.4 | B+C+D rest"
//   ranking.judged[0].estimate.throughput;   // 49.9 samples/s
//
// Candidates come from search (partition/search.h) and from the scenario; every one is lowered and timed by the fast
// tier, the best go to SimGrid, or another tier, whose word is final; where the scenario has noise, these are simulated
// under it too.
// Plans that do not fit in a device's memory are left out, and counted.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "partition/expand.h"
#include "partition/plan.h"
#include "program/program.h"
#include "program/saved.h"
#include "program/trace.h"
#include "ranking/confidence.h"
#include "scenario/scenario.h"
#include "sim/breakdown.h"
#include "sim/simgrid/simgrid_tier.h"
#include "sim/timed_graph.h"

namespace nlsplit::inline ranking {

struct DeviceEstimate {
  std::string name;
  double share = 0;  // of the makespan it computes
  Bytes memory;      // its arena
  DeviceBreakdown breakdown = {};
  PhaseTimes phases = {};  // seconds it computes in each
};

struct LinkEstimate {
  std::string name;  // "a>sw", with the direction; "a-sw" if half duplex
  LinkUse use;
};

// What a simulation says of one plan.
struct Estimate {
  double makespan_s = 0;      // of the whole batch, source to sink
  double throughput = 0;      // samples/s
  double latency_mean_s = 0;  // from a micro-batch's first instruction to its last
  double latency_max_s = 0;
  std::vector<DeviceEstimate> devices;  // those that compute, in the order of the Program
  std::string busiest_device;
  double busiest_device_share = 0;  // of the makespan
  std::string busiest_link;         // "a>sw", with the direction; "a-sw" if half duplex; empty: nothing crosses a link
  double busiest_link_share = 0;
  std::string largest_device;  // by memory
  Bytes largest_memory;
  std::vector<LinkEstimate> links;  // that carry something; these and `breakdown` come from the judging tier only
};

// Over the runs of a noise.
struct Spread {
  double mean = 0;
  double p95 = 0;   // 95 of 100 runs are at least this good
  int p95_run = 0;  // the run it is of, from 0
};

// What a plan's estimate becomes under the scenario's noise.
struct NoisyEstimate {
  Spread makespan_s;
  Spread latency_s;  // of the mean over a run's micro-batches
};

// How fast a plan generates text.
struct GenerationTimes {
  double first_token_s = 0;  // TTFT: from the prompt to its first token, in chunks one after the other
  double next_token_s = 0;   // TPOT: from one token to the next, at the middle of the workload's tokens
  double tokens_per_s = 0;   // of all sequences, from their prompts on
  std::string fullest_device;
  Bytes fullest_memory;  // of the device of the plan that needs the most: prompts and tokens, weights and caches
  // Positions that could be kept of each sequence, until a device's memory is full, in steps of 16. 0: not known, or
  // not computed, because the plan is not among told() and `require` has no context.
  int64_t largest_context = 0;
};

// How far a plan is from something that is required of it.
struct Miss {
  std::string text;  // "TTFT 3.1 s instead of 2 s"
  double times = 1;  // as long as allowed; above 1
};

struct RankedPlan {
  Plan plan;
  std::string text;                      // to_string(plan, …)
  std::vector<std::string> layers = {};  // of each stage: "..layer2", "rest"; "all" of the only one
  bool own = false;                      // the scenario's; plan.name is its name there
  bool sampled = false;                  // drawn at random (RankOptions::samples), whatever its place
  std::vector<PlanNote> notes;           // where its cuts really are; of a split inside layers: what had to be gathered
  Promise promise;                       // how near to the unsplit results it comes, between devices of one level
  // A hash of the slots that devices have, in their order: schedules of two names may be the same, and a device of the
  // plan may have nothing to do. 0: not known.
  uint64_t slots = 0;
  Estimate estimate;  // without noise
  std::optional<NoisyEstimate> noisy;
  std::optional<GenerationTimes> generation;  // of a scenario that generates, if the plan can
  std::string why_not;                        // it cannot: prompts need more memory than there is, …
  std::vector<Miss> misses;                   // of what the scenario requires
};
// "mine: A ..layer2 | B rest" of the scenario's own, else the text alone.
std::string named_text(const RankedPlan& plan);

// The plan of a baseline (partition/baselines.h), at the micro-batch count and schedule that suit it best.
// The plan is one of Ranking::judged, so no baseline is better than the first plan.
struct RankedBaseline {
  std::string name, rule;
  Plan plan;
  std::string text;                           // to_string(plan, …)
  std::optional<Estimate> estimate;           // by the judging tier; none: `why_not`
  std::optional<GenerationTimes> generation;  // of a scenario that generates
  std::string why_not;                        // it cannot run: too little memory, no route, no such schedule
};

struct Misfit {  // of the plans considered, those left out because a device's memory is too small
  std::string device;
  Bytes has;
  Bytes least_needed;  // by the smallest of them
  size_t plans = 0;
};

// A device that no plan was searched for on: whatever it computes, it would hold the inputs or the results of the whole
// batch for its host, which alone are more than its memory.
struct NoRoom {
  std::string device;
  Bytes has;
  Bytes needs;
};

struct OwnMisfit {  // a plan of the scenario that does not fit at these micro-batch counts
  std::string name;
  std::vector<int> micro_batches;
  std::string device;
  Bytes has;
  Bytes least_needed;
};
std::string to_string(const OwnMisfit& misfit);

struct OwnLeftOut {  // a plan of the scenario that cannot be run in so many micro-batches
  std::string name;
  int micro_batches = 1;
  std::string schedule;  // under this one; empty: whatever the schedule
  std::string why;
};
std::string to_string(const OwnLeftOut& left_out);

struct OwnRefused {  // a plan of the scenario that cannot be run in any way it asks for
  std::string name;
  Error error;  // the first reason, at the plan's place
};
std::string to_string(const OwnRefused& refused);

// A count of micro-batches that leaves a BatchNormalization one value a channel (batch_norm: batch).
struct LeftOutCount {
  int micro_batches = 1;
  std::string why;
};
// Takes such counts out of the workload's and of those of its plans. Error, at the line that names them: none is left.
Result<std::vector<LeftOutCount>> leave_out_counts(Scenario& scenario, const Graph& optimized);

// What plans are ordered by. For Objective::weighted it needs to know what the best single device does.
struct Goal {
  Objective objective = Objective::throughput;
  ObjectiveWeights weights = {};
  double makespan_s = 0, latency_s = 0;  // of the best single device in each respect; 0: none known yet
};

enum class PlanKind : uint8_t {
  split,   // over several devices that are not only replicas: layers on different ones, or a layer on several
  single,  // the whole model on one device
  copies,  // the whole model on several devices
};
inline constexpr size_t plan_kind_count = 3;
PlanKind kind_of(const Plan& plan);
bool is_split(const Plan& plan);

// Plans within this factor are equally good: simulations are not more exact.
inline constexpr double clearly_faster = 1.02;

// Default probability that the best plan is in the confidence set.
inline constexpr double usual_confidence = 0.9;

// The best plan of each kind in one respect: indices into Ranking::judged. None: does not fit, or was not asked for.
struct Yardsticks {
  std::optional<size_t> split;   // layers over several devices, or a layer: is_split
  std::optional<size_t> single;  // the whole model on one device
  std::optional<size_t> copies;  // the whole model on several devices
};

struct Verdict {
  Yardsticks throughput;  // highest
  Yardsticks latency;     // lowest mean
  Yardsticks memory;      // smallest on the device that needs the most
  // Of generation: tokens per second, the time of a token, the memory of prompts and tokens; and the time to the first.
  Yardsticks first_token;
  // Of all simulated splits against throughput.single, by the fast tier and the load bounds.
  // With all links scaled by this factor the first split is clearly faster. > 1: links must become faster before
  // splitting pays. None: no bandwidth changes the answer.
  std::optional<double> break_even;
  // How many times as fast the best split is if messages take no time at all: what is left to gain by better links.
  std::optional<double> gain_without_network;
};

// Why a plan is as good as it is.
struct Explanation {
  enum class Bottleneck : uint8_t { stage, link, nothing };  // nothing is busy: filling, draining, waiting for messages
  size_t plan = 0;                                           // index into Ranking::judged
  Bottleneck bottleneck = Bottleneck::nothing;
  std::string name;             // of the busiest device, or of the link
  std::optional<size_t> stage;  // that the busiest device has; none: it has several
  double share = 0;             // of the makespan that it is busy
  std::string fullest_device;   // by memory: the one with the largest part of it taken
  double fullest_share = 0;     // of its memory
  // With every bandwidth, or every latency and handshake, scaled by this the plan is just clearly faster than the best
  // single device, by the fast tier and the load bounds. Bandwidth: it pays above; latency: below. None: no factor
  // between a thousandth and a million changes the answer, or no device holds the whole model.
  std::optional<double> break_even_bandwidth, break_even_latency;
  double gain = 0;                  // over the best single device, as the links are; 0: there is none
  double gain_without_network = 0;  // the same if messages took no time
};

// The best plan for a number of sequences.
struct OfSequences {
  int64_t sequences = 1;
  std::optional<RankedPlan> best;  // none: `why_not`
  std::string why_not;
};

struct Ranking {
  std::string model;
  bool generates = false;  // its samples are sequences, and an execution makes a token of each
  GenerationObjective generation_objective = GenerationObjective::tpot;  // if it does
  int64_t batch = 1;
  Objective objective = Objective::throughput;
  Goal goal;  // the same, with what a weighted one is relative to
  // By RankOptions::tier, without noise, best first; of those as good as each other the one with the most memory left.
  // Of generation those first that reach what is required, those last that cannot.
  // A plan's number is its index + 1.
  std::vector<RankedPlan> judged;
  // No plan of the searched kinds has a lower cost_of, at the scenario's micro-batch counts (ranking/lower_bound.h).
  // None: layers may be split, and their pieces' times are measured.
  std::optional<double> bound;
  std::optional<Confidence> confidence;  // of judged; none: not asked for, or `no_error_bars`
  std::string no_error_bars;             // why not, if they were asked for
  std::vector<size_t> order;  // into judged, as the user wants to see them: as they are, or by p95 if `robust`
  bool robust = false;
  int noise_runs = 0;                  // that each plan's `noisy` is of; 0: not asked for, or interrupted
  size_t keep = 0;                     // how many of them the user wants to see
  const Tier* tier = &simgrid_tier();  // that judged
  size_t considered = 0;               // lowered and timed by the fast tier; what ranking/pruning.h leaves out is not
  size_t untimed = 0;   // that might be among the best, but lowering so large a model so often takes too long
  bool proved = false;  // search has seen that no other plan of its space has a better bound, for all counts
  size_t devices = 0;   // that search looked at; fewer than the cluster has if it has very many
  double space = 0;     // plans there are; more than `considered` if some were pruned
  double seconds = 0;   // it took, after loading
  std::vector<Misfit> misfits;
  std::vector<NoRoom> no_room;
  std::vector<OwnMisfit> own_misfits;
  std::vector<OwnLeftOut> own_left_out;
  std::vector<OwnRefused> own_refused;
  std::vector<LeftOutCount> counts_left_out;
  size_t unscheduled = 0;       // plans that their schedule does not exist for (in training)
  std::string why_unscheduled;  // of the first of them
  size_t split_inside = 0;      // of those considered have stages split inside their layers
  size_t left_out = 0;          // plans that split layers and that search found, but that cannot be planned for
  std::string why_left_out;     // of the first of them: a shard's kernel without a cost, …
  std::string why_not_inside;   // search was asked for splits inside layers, and such a training has none
  bool interrupted = false;     // by RankOptions::interrupted: not all candidates were looked at
  size_t measured_costs = 0;    // distinct computations costed from measurements
  size_t predicted_costs = 0;   // from measurements of others like them
  size_t estimated_costs = 0;   // and by a formula
  double largest_spread = 0;    // of the predicted ones: each is right within that in 9 of 10 cases
  Verdict verdict;
  std::vector<OfSequences> by_sequences;  // if RankOptions::all_sequences and the scenario names several numbers
  std::vector<RankedBaseline> baselines;  // if RankOptions::baselines
  // [node of the model]: share of the time of the whole model, mean over the devices; for drawings.
  std::vector<double> node_shares;
  std::vector<Explanation> explanations;  // if RankOptions::explain, of the kept plans in the user's order
};

struct RankOptions {
  const Tier* tier = &simgrid_tier();  // that judges: its word on the best plans is final
  std::function<void(std::string_view phase, size_t done, size_t total)> progress = {};  // may be empty
  std::function<bool()> interrupted = {};  // true: stop with the best so far; may be empty
  // This many random plans of those that fit are simulated too: a ranking that is validated on its best plans alone
  // looks better than it is.
  size_t samples = 0;
  uint64_t seed = 1;
  bool noise = false;                     // simulate the judged plans under the scenario's noise too, if it has any
  bool robust = false;                    // that, and Ranking::order by p95
  bool all_sequences = false;             // fill Ranking::by_sequences; all else is of the scenario's first number
  bool baselines = false;                 // fill Ranking::baselines
  bool explain = false;                   // fill Ranking::explanations
  bool error_bars = false;                // fill Ranking::confidence where costs have spreads and it is little work
  std::optional<double> confidence = {};  // fill it for this level; an error where costs have none
  size_t workers = 0;                     // cores that share the work; 0: all. The answer is the same
};

// The scenario's model at one micro-batch count, ready to be lowered.
struct PreparedModel {
  int micro_batches = 1;
  KernelGraph kernels;
};
// prefer: which kernels; none: what the scenario's profiles say is fastest. trained: names of weights that another
// Program of a session trains. like: of the same network for other lengths: where its kernels have weights in a form of
// their own, these are taken, so that both read the same weights.
Result<PreparedModel> prepare_model(const Scenario& scenario, const Graph& optimized, int micro_batches,
                                    const KernelPreference& prefer = {}, const std::set<std::string>& trained = {},
                                    const KernelGraph* like = nullptr);

// A plan of the scenario or of a file, resolved against the model: one Plan for each micro-batch count and schedule to
// try.
Result<std::vector<RankedPlan>> resolve_own_plan(const Scenario& scenario, const Graph& optimized, const UserPlan& own);

// What plans are ordered by; smaller is better. Of generation only what its bound is of: a token at the end of the
// context (ranking/generation.h has the rest).
double cost_of(const Ranking& ranking, const Estimate& estimate);

// The largest part of plan 1's cost_of that another plan could save: 1 - bound / cost. None: there is no bound.
std::optional<double> within_bound(const Ranking& ranking);

// The first `keep` in the user's order, without those alike to one before (ranking/alike.h).
std::vector<size_t> kept(const Ranking& ranking);

// The verdict's comparison by the scenario's objective; of a weighted objective by throughput.
const Yardsticks& of_objective(const Ranking& ranking);

// The rows of a table, in the user's order: kept(), the best of each plan of the user's own, the confidence set, and
// the best single device and replicas by the objective.
std::vector<size_t> shown(const Ranking& ranking);

// shown(), all plans of the user's own, and the plans of the verdict, in the user's order: the plans in JSON and CSV.
std::vector<size_t> told(const Ranking& ranking);

// Errors: a missing cost, a plan of one's own that names what there is not, nothing fits (says what is missing on which
// device), every plan is refused, `robust` without noise in the scenario, `confidence` where costs have no spreads.
Result<Ranking> rank_plans(const Scenario& scenario, const Model& model, const RankOptions& options);

// Plan number K, or the best one called K. Error: says which there are.
Result<RankedPlan> find_plan(const Ranking& ranking, const std::string& which);

// One plan timed by a tier, with all that is needed to explain or draw it.
struct TimedPlan {
  Program program;
  Trace trace;
  Estimate estimate;
  Breakdown breakdown;
  TimedGraph graph;                 // with the noise of the run, if it is one
  std::vector<WeightSlice> slices;  // of a plan that splits layers: the WeightStore must know them (add_slices)
  std::shared_ptr<const Training> training;  // Compiled's
  std::vector<PlanNote> notes;               // of such a plan
  Promise promise;                           // how near to the unsplit results it comes
  // [device]: its slots in the order in which they ran; of an online plan those that compute
  std::vector<std::vector<int>> decided;
};
// noise_run: under the scenario's noise, in this run of it. Error: there is no such run. timed_by: the same scenario
// with other costs, which time the Program that the scenario's own made.
Result<TimedPlan> time_plan(const Scenario& scenario, const Graph& optimized, const Plan& plan,
                            std::optional<int> noise_run = std::nullopt, const Scenario* timed_by = nullptr,
                            const Tier& tier = simgrid_tier());

}  // namespace nlsplit::inline ranking
