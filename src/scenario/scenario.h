// Scenario: what the user wants to know, read from YAML. docs/scenario.md lists every key, unit and default.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cost/cluster.h"
#include "cost/corrections.h"
#include "cost/cost_table.h"
#include "cost/noise.h"
#include "cost/platform.h"
#include "graph/differentiate/step_graph.h"
#include "graph/weights.h"
#include "partition/search.h"
#include "program/collective.h"

namespace nlsplit::inline scenario {

// What plans are ordered by. weighted: Scenario::weights.
enum class Objective : uint8_t { throughput, latency, weighted };

// Plans by weights.throughput * makespan + weights.latency * latency, each relative to the best single device's, so
// that 0.7 and 0.3 trade 3 % of the one for 7 % of the other.
struct ObjectiveWeights {
  double throughput = 1;  // >= 0, not both 0
  double latency = 0;
};

struct UserPlan {
  std::string name;
  std::vector<std::string> stages;  // plan parts, partition/plan.h
  std::vector<int> micro_batches;   // empty: all of the workload's
  std::string schedule;             // empty: all of the search's
  Location where;  // of its stages, and the line there: errors found later (unknown layers) point there
  std::string line;
};

// What plans that generate are ordered by: the time from one token to the next (TPOT), the time to the first one
// (TTFT), or tokens of all sequences in a second, prompts counted.
enum class GenerationObjective : uint8_t { tpot, ttft, tokens_per_second };
inline constexpr std::string_view generation_objectives[] = {"tpot", "ttft", "tokens_per_second"};  // as scenarios say

// What a plan that generates must reach. None: whatever it is.
struct Requirements {
  std::optional<double> tpot_s, ttft_s;     // at most
  std::optional<double> tokens_per_second;  // at least
  std::optional<int64_t> context;           // positions that fit, at least
  bool any() const { return tpot_s || ttft_s || tokens_per_second || context; }
};

// Generation of text: each sequence goes on from a prompt, token by token.
struct Generation {
  int64_t prompt = 128;  // tokens that are given, of each sequence
  int64_t tokens = 64;   // that follow
  int64_t chunk = 64;    // tokens of a prompt that one execution takes; at most `prompt`
  // Positions that are kept of a sequence: at least the prompt's in whole chunks, and prompt + tokens - 1: the last
  // token is never an input.
  int64_t context = 0;
  // Caches in pages that sequences share, for a server: positions of a page, of which `context` is a multiple; 0: each
  // sequence has a cache of its own.
  int64_t page = 0;
  int64_t cache = 0;       // positions of all sequences' pages; 0: `context` of each
  int64_t candidates = 1;  // likeliest next tokens that come back, one of which is sampled
  // Requests to a server, with prompts and answers of the lengths above (`nlsim serve`): a Poisson process.
  struct Arrivals {
    double rate = 1;  // in a second
    int64_t requests = 1;
    uint64_t seed = 0;
  };
  std::optional<Arrivals> arrivals = {};
  std::vector<int64_t> sequences = {1};  // at once, each number by itself; Workload::batch is one of them
  GenerationObjective objective = GenerationObjective::tpot;
  Requirements require;
};

// Pages of the caches of so many sequences; 0: they have none.
int64_t pages_of(const Generation& generation, int64_t sequences);

// What a Program computes: inference of a batch, a step of training, or the next tokens of sequences.
struct Workload {
  int64_t batch = 1;                              // of generation: sequences at once, the first of `sequences`
  std::vector<int> micro_batches;                 // to try; each divides the batch
  Location counts_where;                          // of micro_batches, or of the batch, for errors about them
  std::string counts_line;                        // there
  std::optional<TrainingOptions> training;        // none: inference
  std::optional<Generation> generation;           // none: of what a pass needs nothing is kept
  std::optional<CollectiveAlgorithm> all_reduce;  // of gradients; none: the fastest
  int zero = 0;                                   // compile/compile.h, CompileOptions
  bool native = false;                            // all_reduce: native; compile/compile.h, CompileOptions
  std::optional<int> buckets;                     // all_reduce_buckets: that they are reduced in; none: the fastest
  bool exact = false;                             // all_reduce: exact; compile/compile.h, CompileOptions
};

// One Program of a session (program/session.h): a workload of the scenario's model under the stages of its plan.
struct ScenarioProgram {
  std::string name;
  Workload workload;
  std::string schedule;  // empty: streaming; of training the plan's
};

// Its own workload is the one that plans are ranked for.
struct Scenario : Workload {
  std::string file;
  std::string model;  // scenario/read_model.h; a path is already relative to the working directory
  std::map<std::string, Shape> input_shapes;
  std::map<std::string, int64_t> dims;  // extents an ONNX file names but leaves open
  uint64_t weights_seed = 1;
  std::optional<DType> precision;  // of what is float32 in the model (graph/passes/precision.h); none: as the model is
  std::vector<ScenarioProgram> programs;  // of a session, the first with the scenario's workload; empty: of that alone
  Cluster cluster;
  std::vector<CostSourcePtr> costs;  // one a device
  bool corrected = false;            // costs and measured messages, by the file `corrections` names
  CorrectionSpreads spreads;         // what is left of errors then; none: not known
  Endpoints endpoints;
  SearchOptions search;
  std::vector<std::string> schedules;
  Objective objective = Objective::throughput;
  ObjectiveWeights weights;  // of Objective::weighted
  int keep = 20;             // plans kept in the answer
  std::vector<UserPlan> plans;
  std::optional<Noise> noise;
  Location model_where;  // for errors about the model, with the line there; no file in a bare_scenario
  std::string model_line;
};

struct ScenarioOptions {
  // false: a profile that is not there yet becomes no_costs(). For `nlbench profile`, which is about to make it.
  bool need_profiles = true;
  PlatformReader platforms = {};  // for SimGrid XML files; empty: they are refused
};

// Errors: file:line:column, the offending text, and what would be right.
Result<Scenario> parse_scenario(std::string_view text, const std::string& file, const ScenarioOptions& options = {});
Result<Scenario> read_scenario(const std::string& path, const ScenarioOptions& options = {});

// A plan of one's own in a file of its own: {name?: …, stages: [..conv2@A, rest@B], micro_batches?: 4, schedule?:
// streaming}.
Result<UserPlan> read_plan_file(const std::string& path);
std::string plan_file_text(const UserPlan& plan);  // what read_plan_file reads

// A model alone, to run or profile: one device `cpu0` of one host, which is source and sink, without costs.
Scenario bare_scenario(std::string model, int64_t batch, Bytes memory, Isa isa = Isa::v3);

// The model of the scenario, imported or built, optimized, in the scenario's precision. Of generation the one that goes
// on with so many tokens of each sequence. Errors point at the scenario's line.
Result<Model> load_model(const Scenario& scenario, int64_t tokens = 1);
// A scenario that trains is told which of its model's weights are constants: TrainingOptions::constants.
void name_constants(const Model& model, Scenario& scenario);

// The scenario's costs with the names its errors need. `graph_name`: of load_model's graph.
CostTable cost_table(const Scenario& scenario, const std::string& graph_name);

// An error found later about this plan (an unknown layer), at its place in the scenario.
Error at_plan(const UserPlan& plan, Error error);
Error at_counts(const Workload& workload, Error error);  // of micro-batches

}  // namespace nlsplit::inline scenario
